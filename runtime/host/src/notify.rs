//! Tells the service manager how far an instance is: sd_notify(3), over the socket that `NOTIFY_SOCKET` names.

use sd_notify::NotifyState;

/// It serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Its configuration is read again; [`ready`] follows, whatever comes of it.
pub fn reloading() {
    // The time tells this notification from one of an earlier reload.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("the service manager is not told of a reload: {error}"),
    }
}

/// It is alive, as the service manager has asked to be told.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// It is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // Without a service manager nothing is sent, and that is no error.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager at NOTIFY_SOCKET cannot be told: {error}");
    }
}
