//! One connection, and how it comes about: by listening, or by connecting.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Sleep, sleep};
use twinpath_openflow_switch::{ControllerId, Datapath, OpenFlowSwitch};
use twinpath_time::{Duration, Instant};

use crate::endpoint::Endpoint;

/// Bytes read at once, and at most in a turn that several connections share.
const READ_EACH: usize = 16 << 10;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The first pause before a controller is connected to again, and the longest; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl Stream {
    async fn connect(endpoint: Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => Self::tcp(TcpStream::connect(address).await?),
            Endpoint::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
        }
    }

    /// Small messages, such as barriers, do not wait for others.
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    fn poll_read_ready(&self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context).is_ready(),
            Self::Unix(stream) => stream.poll_read_ready(context).is_ready(),
        }
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(context).is_ready(),
            Self::Unix(stream) => stream.poll_write_ready(context).is_ready(),
        }
    }
}

/// A socket that controllers connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    accepted: Option<Stream>,
    /// Until when no connection is taken, after an error.
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Binds a socket in the file system; one that nobody listens at any more, as its process died, is in no way.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let is_used = bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_used && std::os::unix::net::UnixStream::connect(path).is_err_and(refuses) {
        std::fs::remove_file(path)?;
        return UnixListener::bind(path);
    }
    bound
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Nothing can be done about one that is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    pub(crate) async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        let socket = match endpoint {
            Endpoint::Tcp(address) => Socket::Tcp(TcpListener::bind(address).await?),
            Endpoint::Unix(path) => Socket::Unix(bind_unix(path)?, path.clone()),
        };
        Ok(Self { socket, accepted: None, pause: None })
    }

    /// Its address, if it is one of TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Whether a connection has come. After an error, such as too many open files, the next try is a little later.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return self.accepted.is_some();
            }
            self.pause = None;
        }
        if self.accepted.is_none() {
            let accepted = match &self.socket {
                Socket::Tcp(socket) => socket.poll_accept(context).map(|accepted| Stream::tcp(accepted?.0)),
                Socket::Unix(socket, _) => {
                    socket.poll_accept(context).map(|accepted| Ok(Stream::Unix(accepted?.0)))
                }
            };
            match accepted {
                Poll::Ready(Ok(stream)) => self.accepted = Some(stream),
                Poll::Ready(Err(_)) => {
                    let mut pause = Box::pin(sleep(ACCEPT_PAUSE));
                    // It has just begun; this makes it wake the loop.
                    let _ = pause.as_mut().poll(context);
                    self.pause = Some(pause);
                }
                Poll::Pending => {}
            }
        }
        self.accepted.is_some()
    }

    pub(crate) fn take(&mut self) -> Option<Stream> {
        self.accepted.take()
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// A controller that is connected to.
pub(crate) struct Outgoing {
    endpoint: Endpoint,
    state: State,
    pause: Duration,
}

enum State {
    /// From then on it may be connected to.
    Pause(Instant),
    Connecting(Connecting),
    Connected(io::Result<Stream>),
    /// The connection is one of the switch's.
    Open,
}

impl Outgoing {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: State::Pause(Instant::ZERO), pause: PAUSE_MIN }
    }

    /// When it has to be connected to.
    pub(crate) const fn deadline(&self) -> Instant {
        match self.state {
            State::Pause(until) => until,
            _ => Instant::NEVER,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let State::Connecting(connecting) = &mut self.state
            && let Poll::Ready(result) = connecting.as_mut().poll(context)
        {
            self.state = State::Connected(result);
        }
        matches!(self.state, State::Connected(_))
    }

    /// A new connection; begins to connect if it is time.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Stream> {
        match std::mem::replace(&mut self.state, State::Open) {
            State::Pause(until) if until <= now => {
                self.state = State::Connecting(Box::pin(Stream::connect(self.endpoint.clone())));
                None
            }
            State::Connected(Ok(stream)) => Some(stream),
            State::Connected(Err(_)) => {
                self.has_ended(now, false);
                None
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// A connection is lost, or there was none. `was_open`: the controller's hello had come.
    pub(crate) fn has_ended(&mut self, now: Instant, was_open: bool) {
        if was_open {
            self.pause = PAUSE_MIN;
        }
        self.state = State::Pause(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// A connection of the switch.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ControllerId,
    stream: Stream,
    /// The number of the controller that was connected to.
    pub(crate) outgoing: Option<usize>,
    /// What was read; the bytes from `taken` to `filled` are not taken yet.
    buffer: Box<[u8]>,
    taken: usize,
    filled: usize,
    has_ended: bool,
}

impl Connection {
    pub(crate) fn new(id: ControllerId, stream: Stream, outgoing: Option<usize>) -> Self {
        let buffer = vec![0; READ_EACH].into();
        Self { id, stream, outgoing, buffer, taken: 0, filled: 0, has_ended: false }
    }

    /// Whether everything that was read is taken.
    const fn is_taken(&self) -> bool {
        self.taken == self.filled
    }

    /// Whether something can be read or sent.
    pub(crate) fn poll<D: Datapath>(&self, context: &mut Context<'_>, switch: &OpenFlowSwitch<D>) -> bool {
        let reads = self.is_taken() && !self.has_ended;
        let can_read = reads && self.stream.poll_read_ready(context);
        let can_write = !switch.output(self.id).is_empty() && self.stream.poll_write_ready(context);
        can_read || can_write
    }

    /// Sends, reads once, does what was read as far as that is possible now, and sends the answers. Whether the connection
    /// stays.
    pub(crate) fn turn<D: Datapath>(&mut self, now: Instant, switch: &mut OpenFlowSwitch<D>) -> bool {
        if !self.send(now, switch) {
            return false;
        }
        self.read();
        loop {
            let used = switch.receive(now, self.id, &self.buffer[self.taken..self.filled]);
            self.taken += used;
            if !self.send(now, switch) {
                return false;
            }
            if used == 0 || self.is_taken() {
                break;
            }
        }
        let is_done = self.has_ended && self.is_taken() && switch.output(self.id).is_empty();
        !is_done && !switch.is_over(self.id)
    }

    fn read(&mut self) {
        if !self.is_taken() || self.has_ended {
            return;
        }
        let count = match self.stream.try_read(&mut self.buffer) {
            Ok(0) => None,
            Ok(count) => Some(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        };
        self.has_ended = count.is_none();
        (self.taken, self.filled) = (0, count.unwrap_or(0));
    }

    /// Whether the other end still takes something.
    fn send<D: Datapath>(&mut self, now: Instant, switch: &mut OpenFlowSwitch<D>) -> bool {
        loop {
            let output = switch.output(self.id);
            if output.is_empty() {
                return true;
            }
            match self.stream.try_write(output) {
                Ok(count) => switch.sent(now, self.id, count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}
