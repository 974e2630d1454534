//! Signals to a running instance.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGINT, SIGTERM: its end.
    End,
    /// SIGHUP: its configuration is to be read again.
    Reload,
}

/// The signals that an instance listens to.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.interrupt.recv() => Signalled::End,
            _ = self.terminate.recv() => Signalled::End,
            _ = self.hangup.recv() => Signalled::Reload,
        }
    }
}
