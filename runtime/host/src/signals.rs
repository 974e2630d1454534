//! Signals to a running instance.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// SIGINT or SIGTERM: end.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals that an instance handles.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Registers the handlers. Called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// What registering a handler returns.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.interrupt.recv() => Signalled::End,
            _ = self.terminate.recv() => Signalled::End,
            _ = self.hangup.recv() => Signalled::Reload,
        }
    }
}
