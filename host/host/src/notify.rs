//! Notifies the service manager of an instance's state: sd_notify(3), over the socket named by
//! `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// The instance serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The instance reloads its configuration; [`ready`] follows, whether or not it succeeds.
pub fn reloading() {
    // The time distinguishes this notification from one of an earlier reload.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("the service manager is not told of a reload: {error}"),
    }
}

/// Calls `now` if the service manager is notified about this instance: not if it runs on one thread of a
/// program.
pub fn if_told(told: bool, now: fn()) {
    if told {
        now();
    }
}

/// The instance is alive (`WATCHDOG=1`).
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The instance is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // Without a service manager nothing is sent, which is no error.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager at NOTIFY_SOCKET cannot be told: {error}");
    }
}
