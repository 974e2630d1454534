//! Signals to a running instance.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// SIGINT, SIGTERM: its end.
    End,
    /// SIGHUP: its configuration is to be read again.
    Reload,
}

/// The signals that an instance listens to.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens to them from now on. Called within a tokio runtime.
    ///
    /// # Errors
    /// What registering a handler returns.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.interrupt.recv() => Signalled::End,
            _ = self.terminate.recv() => Signalled::End,
            _ = self.hangup.recv() => Signalled::Reload,
        }
    }
}
