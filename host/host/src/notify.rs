//! Notifies the service manager of the state of an instance: sd_notify(3), over the socket that `NOTIFY_SOCKET`
//! names.

use sd_notify::NotifyState;

/// The instance serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The instance reads its configuration again; [`ready`] follows, whether it succeeds or not.
pub fn reloading() {
    // The time distinguishes this notification from one of an earlier reload.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("the service manager is not told of a reload: {error}"),
    }
}

/// Calls one of these, if the service manager is told of this instance: it is not of one thread of a program.
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
