//! The engine under test, as the world uses it: times in µs, bytes copied, and what is sent kept until it is taken.

use core::net::SocketAddr;
use std::collections::HashMap;

use twinpath_tcp::{
    Config, ConnectError, ConnectionId, End, Ended, Events, IcmpError, Later, ListenerId, Options, Outgoing,
    Segment, Sink, Tcp, TcpState, Tuple, Unknown,
};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::Flags;

use crate::errno::{Answer, Errno};
use crate::info;
use crate::packet::{self, Built};
use crate::profile::Profile;

/// A connection.
pub(crate) type Connection = ConnectionId;
/// A listener.
pub(crate) type Listener = ListenerId;

/// The engine's clock when the world's is at 0: a host that has been up for a while.
const ORIGIN: Duration = Duration::from_secs(1000);
/// Timers at a time: more than a script has connections.
const BURST: u32 = 1000;

/// What a connection tells its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Connected,
    Ended(Option<Errno>),
}

/// What a socket asks of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Bytes that can be read, and whether these are the last.
    pub(crate) unread: usize,
    pub(crate) has_fin: bool,
    /// Bytes that can be written.
    pub(crate) room: usize,
    /// Bytes that were never sent, and bytes that are not acknowledged, these included.
    pub(crate) unsent: usize,
    pub(crate) unacknowledged: usize,
    /// Bytes received since the connection began.
    pub(crate) received: u64,
    /// Payload bytes of a full-sized segment.
    pub(crate) mss: u32,
    pub(crate) has_timestamps: bool,
    /// The largest window that the peer has offered, bytes.
    pub(crate) peak_window: usize,
    /// The peer's SYN has come.
    pub(crate) has_answer: bool,
}

impl View {
    /// All is read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.has_fin && self.unread == 0
    }
}

/// A connection, as a list of them shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: TcpState,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine {
    tcp: Tcp,
    sent: Sent,
}

/// Segments that were sent.
#[derive(Debug)]
struct Sent {
    profile: Profile,
    segments: Vec<Built>,
    /// FINs that are not acknowledged: the number behind each.
    fins: HashMap<Tuple, u32>,
    /// The last acknowledgement of each connection.
    acknowledged: HashMap<Tuple, u32>,
}

impl Sink for Sent {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let mut segment = *segment;
        let before = self.acknowledged.insert(*tuple, segment.header.acknowledgement);
        let end = segment.header.sequence.wrapping_add(segment.payload.len() as u32);
        if segment.header.flags.0 & Flags::FIN != 0 {
            self.fins.insert(*tuple, end.wrapping_add(1));
        } else if self.profile.repeats_fin()
            && segment.header.flags.0 == Flags::ACK
            && segment.payload.is_empty()
            && before != Some(segment.header.acknowledgement)
            && self.fins.get(tuple) == Some(&end)
        {
            segment.header.sequence = end.wrapping_sub(1);
            segment.header.flags.0 |= Flags::FIN;
        }
        if self.profile == Profile::FreeBsd && segment.header.flags.0 & Flags::RST != 0 {
            // FreeBSD's `tcp_respond`.
            segment.header.window = 0;
        }
        self.segments.extend(packet::build(tuple, &segment, self.profile));
        true
    }
}

fn at(now_us: u64) -> Instant {
    Instant::ZERO + ORIGIN + Duration::from_micros(now_us)
}

impl Engine {
    pub(crate) fn new(config: Config, profile: Profile) -> Self {
        let tcp = Tcp::new(config, Unknown::Reset, [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        Self {
            tcp,
            sent: Sent { profile, segments: Vec::new(), fins: HashMap::new(), acknowledged: HashMap::new() },
        }
    }

    pub(crate) fn configure(&mut self, config: Config) {
        self.tcp.set_config(config);
    }

    pub(crate) fn listen(&mut self, local: SocketAddr, backlog: u32, options: Options) -> Listener {
        self.tcp.listen(local, backlog, options)
    }

    pub(crate) fn unlisten(&mut self, now_us: u64, listener: Listener) {
        self.tcp.stop_listening(at(now_us), listener);
    }

    /// Connections that can be accepted.
    pub(crate) fn acceptable(&self, listener: Listener) -> usize {
        self.tcp.acceptable(listener)
    }

    pub(crate) fn accept(&mut self, listener: Listener) -> Option<(Connection, Tuple)> {
        let connection = self.tcp.accept(listener)?;
        Some((connection, self.tcp.tuple(connection)?))
    }

    pub(crate) fn connect(
        &mut self,
        now_us: u64,
        local: SocketAddr,
        remote: SocketAddr,
        options: Options,
    ) -> Answer<Connection> {
        self.tcp.connect(at(now_us), local, remote, options).map_err(|error| match error {
            ConnectError::InUse => Errno::EADDRNOTAVAIL,
            ConnectError::Full => Errno::EAGAIN,
        })
    }

    pub(crate) fn view(&mut self, now_us: u64, connection: Connection) -> Option<View> {
        let now = at(now_us);
        let info = self.tcp.info(now, connection)?;
        let stream = self.tcp.stream(now, connection)?;
        let (room, is_at_end) = (stream.room(), stream.is_at_end());
        let has_fin = is_at_end
            || matches!(
                info.state,
                TcpState::CloseWait | TcpState::LastAck | TcpState::Closing | TcpState::TimeWait
            );
        Some(View {
            unread: info.queued as usize,
            has_fin,
            room,
            unsent: info.unsent as usize,
            unacknowledged: info.unacknowledged as usize,
            received: info.bytes_received,
            mss: u32::from(info.mss),
            has_timestamps: info.has_timestamps,
            peak_window: info.peak_window as usize,
            has_answer: info.state != TcpState::SynSent,
        })
    }

    /// Copies what can be read, from byte `from` on; returns how much.
    pub(crate) fn peek(
        &mut self,
        now_us: u64,
        connection: Connection,
        from: usize,
        into: &mut [u8],
    ) -> usize {
        let Some(stream) = self.tcp.stream(at(now_us), connection) else { return 0 };
        let bytes = stream.received().get(from..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    pub(crate) fn consume(&mut self, now_us: u64, connection: Connection, count: usize) {
        if let Some(mut stream) = self.tcp.stream(at(now_us), connection) {
            stream.consume(count);
        }
    }

    /// Takes bytes to be sent, the last of which ends what `end` says; returns how many. `is_whole`: all of them,
    /// whatever the send buffer's size.
    pub(crate) fn send(
        &mut self,
        now_us: u64,
        connection: Connection,
        bytes: &[u8],
        end: End,
        is_whole: bool,
    ) -> usize {
        let now = at(now_us);
        let Some(options) = self.tcp.options(connection) else { return 0 };
        if is_whole {
            self.tcp.set_options(now, connection, Options { send_buffer: Some(u32::MAX / 4), ..options });
        }
        let count = self.tcp.stream(now, connection).map_or(0, |mut stream| stream.write_as(bytes, end));
        if is_whole {
            self.tcp.set_options(now, connection, options);
        }
        count
    }

    pub(crate) fn finish(&mut self, now_us: u64, connection: Connection) {
        if let Some(mut stream) = self.tcp.stream(at(now_us), connection) {
            stream.end();
        }
    }

    pub(crate) fn close(&mut self, now_us: u64, connection: Connection) {
        self.tcp.close(at(now_us), connection);
    }

    pub(crate) fn abort(&mut self, now_us: u64, connection: Connection) {
        self.tcp.abort(at(now_us), connection);
    }

    pub(crate) fn set_options(&mut self, now_us: u64, connection: Connection, options: Options) {
        self.tcp.set_options(at(now_us), connection, options);
    }

    pub(crate) fn set_listener_options(&mut self, listener: Listener, options: Options) {
        self.tcp.set_listener_options(listener, options);
    }

    /// `struct tcp_info`.
    pub(crate) fn info(&self, now_us: u64, connection: Connection) -> Option<Vec<u8>> {
        self.tcp.info(at(now_us), connection).map(|info| info::to_c(&info))
    }

    pub(crate) fn segment(&mut self, now_us: u64, tuple: &Tuple, segment: &Segment<'_>) {
        let acknowledges = |end: &u32| segment.flags.0 & Flags::ACK != 0 && segment.ack.0 == *end;
        if self.sent.fins.get(tuple).is_some_and(acknowledges) {
            self.sent.fins.remove(tuple);
        }
        self.tcp.segment(at(now_us), tuple, segment, &mut Later, &mut self.sent);
    }

    /// Whether the error was believed.
    pub(crate) fn icmp(&mut self, now_us: u64, tuple: &Tuple, sequence: u32, error: IcmpError) -> bool {
        let refused = self.tcp.counters().icmp_refused;
        self.tcp.icmp(at(now_us), tuple, sequence, error);
        self.tcp.counters().icmp_refused == refused
    }

    pub(crate) fn advance(&mut self, now_us: u64) {
        self.tcp.advance(at(now_us), BURST, &mut self.sent);
    }

    /// When something is due, µs.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let next = self.tcp.next_deadline();
        (next != Instant::NEVER).then(|| next.nanos_since(at(0)).div_ceil(1000))
    }

    /// Sends what calls have left to be sent, and takes all that was sent.
    pub(crate) fn output(&mut self, now_us: u64) -> Vec<Built> {
        self.tcp.output(at(now_us), &mut self.sent);
        core::mem::take(&mut self.sent.segments)
    }

    /// The next change of a connection that its socket has to know at once.
    pub(crate) fn next_event(&mut self, now_us: u64) -> Option<(Connection, Event)> {
        loop {
            let (connection, events) = self.tcp.next_event()?;
            if events.has(Events::ENDED) {
                let ended = self.tcp.info(at(now_us), connection).and_then(|info| info.ended);
                return Some((connection, Event::Ended(ended.and_then(errno))));
            }
            if events.has(Events::CONNECTED) {
                return Some((connection, Event::Connected));
            }
        }
    }

    pub(crate) fn forget_time_wait(&mut self) {
        self.tcp.forget_time_wait();
    }

    pub(crate) fn list(&self) -> Vec<Listed> {
        let mut list = Vec::new();
        self.tcp.for_each(|tuple, state| {
            list.push(Listed { local: tuple.local(), remote: tuple.remote(), state });
        });
        list
    }
}

/// What `SO_ERROR` says of the end of a connection; `None` for one that is no error.
fn errno(ended: Ended) -> Option<Errno> {
    match ended {
        Ended::Finished | Ended::Aborted => None,
        Ended::Reset => Some(Errno::ECONNRESET),
        Ended::Refused => Some(Errno::ECONNREFUSED),
        Ended::TimedOut => Some(Errno::ETIMEDOUT),
        Ended::Unreachable => Some(Errno::EHOSTUNREACH),
    }
}
