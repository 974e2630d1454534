//! A port for another process: it connects to a socket that the switch offers, gets its end of the shared memory, and
//! keeps the port until it hangs up. One application has a port at a time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant as Due;
use twinpath_host::{readable, readable_copy};
use twinpath_port::{PortId, PortQueue};
use twinpath_shm::{Listener, OfferError, SLOTS_DEFAULT, ShmConfig, ShmPort};
use twinpath_time::Duration;

/// How long an application may take to say which version it uses.
const GREETING: Duration = Duration::from_secs(2);

/// Pause after accepting has failed: without free descriptors it would fail again immediately.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a connection.
enum Stage {
    /// Nobody is connected.
    Waits,
    /// One is connected, and has not said its version; until then.
    Greets(AsyncFd<OwnedFd>, Due),
    /// It has its end of the port.
    Has(AsyncFd<OwnedFd>),
}

/// The socket of a memory port, and its application.
pub struct Memory {
    listener: Listener,
    offered: AsyncFd<OwnedFd>,
    path: PathBuf,
    stage: Stage,
    /// No connection is accepted before this time.
    paused_until: Option<Due>,
}

/// What became of a look at the socket.
pub enum Looked {
    /// Nothing to do.
    Nothing,
    /// An application has its end: this is the other one.
    Connected(Box<dyn PortQueue>),
    /// The application has gone.
    Left,
}

impl Memory {
    /// Listens at the path of the port. A socket of a process that has died is replaced.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn offer(path: &Path) -> std::io::Result<Self> {
        let listener = Listener::bind(path)?;
        let offered = readable_copy(listener.as_fd())?;
        Ok(Self { listener, offered, path: path.to_owned(), stage: Stage::Waits, paused_until: None })
    }

    /// Where an application connects.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process ID of the application that has the port.
    pub fn application(&self) -> Option<u32> {
        let Stage::Has(connection) = &self.stage else { return None };
        socket_peercred(connection.get_ref()).ok().map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Waits until [`Self::look`] has something to do. Cancelling it loses nothing.
    pub async fn is_due(&self) {
        let accepts = async {
            if let Some(until) = self.paused_until {
                tokio::time::sleep_until(until).await;
            }
            if let Ok(mut guard) = self.offered.readable().await {
                guard.clear_ready();
            }
        };
        let said = async {
            match &self.stage {
                Stage::Waits => std::future::pending().await,
                Stage::Greets(connection, until) => {
                    if let Ok(Ok(mut guard)) = tokio::time::timeout_at(*until, connection.readable()).await {
                        guard.clear_ready();
                    }
                }
                Stage::Has(connection) => {
                    drop(connection.readable().await.map(|mut guard| guard.clear_ready()))
                }
            }
        };
        tokio::select! {
            () = accepts => {}
            () = said => {}
        }
    }

    /// Does what is due. `id` is the port's, if it may be attached now.
    pub fn look(&mut self, id: Option<PortId>) -> Looked {
        self.accept();
        match std::mem::replace(&mut self.stage, Stage::Waits) {
            Stage::Waits => Looked::Nothing,
            Stage::Greets(connection, until) => self.greet(connection, until, id),
            Stage::Has(connection) if is_open(connection.get_ref()) => {
                self.stage = Stage::Has(connection);
                Looked::Nothing
            }
            Stage::Has(_) => Looked::Left,
        }
    }

    /// Takes connections: the first one may get the port, others are closed while it has it.
    fn accept(&mut self) {
        self.paused_until = None;
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some(connection)) => match (&self.stage, readable(connection)) {
                    (Stage::Waits, Ok(connection)) => {
                        self.stage = Stage::Greets(connection, Due::now() + GREETING)
                    }
                    // One that is refused finds its connection closed.
                    (_, Ok(_)) => {}
                    (_, Err(error)) => tracing::warn!("{}: {error}", self.path.display()),
                },
                Err(error) => {
                    tracing::warn!("{}: cannot accept an application: {error}", self.path.display());
                    self.paused_until = Some(Due::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn greet(&mut self, connection: AsyncFd<OwnedFd>, until: Due, id: Option<PortId>) -> Looked {
        let Some(id) = id else {
            // The queue of the application before is still on its way back.
            if Due::now() < until {
                self.stage = Stage::Greets(connection, until);
            }
            return Looked::Nothing;
        };
        let created = ShmPort::create(&ShmConfig { id, slots: SLOTS_DEFAULT });
        let (port, offer) = match created {
            Ok(created) => created,
            Err(error) => {
                tracing::warn!("{}: {error}", self.path.display());
                return Looked::Nothing;
            }
        };
        match offer.answer(connection.get_ref()) {
            Ok(()) => {
                self.stage = Stage::Has(connection);
                Looked::Connected(Box::new(port))
            }
            Err(OfferError::Silent) if Due::now() < until => {
                self.stage = Stage::Greets(connection, until);
                Looked::Nothing
            }
            Err(error) => {
                tracing::warn!("{}: {error}", self.path.display());
                Looked::Nothing
            }
        }
    }

    /// Hangs up.
    pub fn release(&mut self) {
        self.stage = Stage::Waits;
    }
}

/// Whether the application has neither hung up nor said more than it may.
fn is_open(connection: &OwnedFd) -> bool {
    matches!(
        recv(connection, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK),
        Err(Errno::AGAIN | Errno::INTR)
    )
}
