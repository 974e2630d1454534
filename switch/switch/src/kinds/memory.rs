//! A port for another process: it connects to a socket that the switch offers, gets its end of the shared memory, and
//! keeps the port until it hangs up. One application has a port at a time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use twinpath_frame::BURST_MAX;
use twinpath_host::{readable_copy, until};
use twinpath_port::PortId;
use twinpath_shm::{Listener, OfferError, SLOTS_DEFAULT, ShmConfig, ShmPort};
use twinpath_sys::event_loop::{Watched, timeout};
use twinpath_sys::socket_kind::peer;
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};

use super::kind::{About, Due, Kind, Making, OpenError, Opened, Opening, Step};

/// How long an application may take to say which version it uses.
const GREETING: Duration = Duration::from_secs(2);

/// Pause after accepting has failed: without free descriptors it would fail again immediately.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a connection.
enum Stage {
    /// Nobody is connected.
    Waits,
    /// One is connected, and has not said its version; until then.
    Greets(Watched<OwnedFd>, Instant),
    /// It has its end of the port.
    Has(Watched<OwnedFd>),
}

/// The socket of a memory port, and its application.
pub(crate) struct Memory {
    listener: Listener,
    offered: Watched<OwnedFd>,
    path: PathBuf,
    stage: Stage,
    /// No connection is accepted before this time.
    paused_until: Option<Instant>,
}

impl Memory {
    /// Listens at the path of the port. A socket of a process that has died is replaced.
    ///
    /// # Errors
    /// [`OpenError::Listen`].
    pub(crate) fn offer(making: &Making<'_>) -> Result<Self, OpenError> {
        let path = making.socket()?;
        let listen = |error| OpenError::Listen { path: path.display().to_string(), error };
        let listener = Listener::bind(&path).map_err(listen)?;
        let offered = readable_copy(listener.as_fd()).map_err(listen)?;
        Ok(Self { listener, offered, path, stage: Stage::Waits, paused_until: None })
    }

    /// The process ID of the application that has the port.
    fn application(&self) -> Option<u32> {
        let Stage::Has(connection) = &self.stage else { return None };
        peer(connection.get_ref()).ok()?.pid()
    }

    /// Waits until [`Kind::step`] has something to do. Cancelling it loses nothing.
    async fn is_due(&self) {
        let accepts = async {
            if self.paused_until.is_some() {
                until(self.paused_until).await;
            }
            self.offered.event().await;
        };
        let said = async {
            match &self.stage {
                Stage::Waits => std::future::pending().await,
                Stage::Greets(connection, until) => {
                    // Late is as good as said.
                    let _ = timeout(until.since(clock::now()), connection.event()).await;
                }
                Stage::Has(connection) => connection.event().await,
            }
        };
        race!(accepts, said);
    }

    /// Takes connections: the first one may get the port, others are closed while it has it.
    fn accept(&mut self) {
        self.paused_until = None;
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some(connection)) => match (&self.stage, Watched::readable(connection)) {
                    (Stage::Waits, Ok(connection)) => {
                        self.stage = Stage::Greets(connection, clock::now() + GREETING)
                    }
                    // One that is refused finds its connection closed.
                    (_, Ok(_)) => {}
                    (_, Err(error)) => tracing::warn!("{}: {error}", self.path.display()),
                },
                Err(error) => {
                    tracing::warn!("{}: cannot accept an application: {error}", self.path.display());
                    self.paused_until = Some(clock::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn greet(&mut self, connection: Watched<OwnedFd>, until: Instant, number: Option<u16>) -> Step {
        let Some(number) = number else {
            // The queue of the application before is still on its way back.
            if clock::now() < until {
                self.stage = Stage::Greets(connection, until);
            }
            return Step::Nothing;
        };
        let id = PortId { port: number, queue: 0 };
        let created = ShmPort::create(&ShmConfig { id, slots: SLOTS_DEFAULT });
        let (port, offer) = match created {
            Ok(created) => created,
            Err(error) => {
                tracing::warn!("{}: {error}", self.path.display());
                return Step::Nothing;
            }
        };
        match offer.answer(connection.get_ref()) {
            Ok(()) => {
                self.stage = Stage::Has(connection);
                let who = format!("process {} is connected", self.application().unwrap_or(0));
                Step::Connected(vec![Box::new(port)], who)
            }
            Err(OfferError::Silent) if clock::now() < until => {
                self.stage = Stage::Greets(connection, until);
                Step::Nothing
            }
            Err(error) => {
                tracing::warn!("{}: {error}", self.path.display());
                Step::Nothing
            }
        }
    }
}

impl Kind for Memory {
    /// An application has to connect first.
    fn open(&mut self, _opening: Opening<'_>) -> Result<Opened, OpenError> {
        Ok(Opened::Nothing)
    }

    /// Hangs up. An application that has connected since then waits for the port.
    fn release(&mut self) {
        if matches!(self.stage, Stage::Has(_)) {
            self.stage = Stage::Waits;
        }
    }

    fn due(&self) -> Option<Due<'_>> {
        Some(Box::pin(self.is_due()))
    }

    fn step(&mut self, number: Option<u16>) -> Step {
        self.accept();
        match std::mem::replace(&mut self.stage, Stage::Waits) {
            Stage::Waits => Step::Nothing,
            Stage::Greets(connection, until) => self.greet(connection, until, number),
            Stage::Has(connection) if is_open(connection.get_ref()) => {
                self.stage = Stage::Has(connection);
                Step::Nothing
            }
            Stage::Has(_) => Step::Left("the application has gone".to_owned()),
        }
    }

    /// Its queue holds no frames: 128 KiB.
    fn pool_frames(&self) -> u32 {
        BURST_MAX as u32
    }

    fn absent(&self) -> &'static str {
        "waiting"
    }

    fn why(&self, _about: &About<'_>) -> String {
        match self.application() {
            Some(pid) => format!("process {pid} has it; it connected to {}", self.path.display()),
            None => format!("an application connects to {}", self.path.display()),
        }
    }
}

/// Whether the application has neither hung up nor said more than it may.
fn is_open(connection: &OwnedFd) -> bool {
    matches!(
        recv(connection, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    };
    use twinpath_shm::{MAGIC, VERSION};

    use twinpath_sys::event_loop::EventLoop;

    use super::*;

    /// An application that has connected and said its version.
    fn application(memory: &Memory) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&memory.path).unwrap()).unwrap();
        let mut message = [0; 16];
        message[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        message[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        send(&socket, &message, SendFlags::empty()).unwrap();
        socket
    }

    #[test]
    fn the_next_application_gets_the_port_when_the_queue_of_the_former_one_is_back() {
        let folder = tempfile::tempdir().unwrap();
        EventLoop::new().unwrap().run(async {
            let name = "memory:app".parse().unwrap();
            let making = Making { name: &name, switch: "sw0", folder: folder.path() };
            let mut memory = Memory::offer(&making).unwrap();
            assert_eq!((memory.absent(), memory.path.ends_with("sw0-app")), ("waiting", true));
            let first = application(&memory);
            memory.is_due().await;
            assert!(matches!(memory.step(Some(3)), Step::Connected(queues, who)
                if queues.len() == 1 && who == format!("process {} is connected", std::process::id())));
            // The second one finds its connection closed.
            let second = application(&memory);
            assert!(matches!(memory.step(Some(3)), Step::Nothing) && !is_open(&second));
            drop(first);
            memory.is_due().await;
            assert!(matches!(memory.step(None), Step::Left(_)));
            let third = application(&memory);
            assert!(matches!(memory.step(None), Step::Nothing));
            memory.release();
            assert!(matches!(memory.step(Some(3)), Step::Connected(..)) && memory.application().is_some());
            memory.release();
            assert!(memory.application().is_none());
            drop(third);
        });
    }
}
