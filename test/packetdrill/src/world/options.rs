//! Options of sockets, and what they mean to the engine.

use twinpath_tcp::{CongestionKind, Options};
use twinpath_time::Duration;

use crate::engine::Connection;
use crate::errno::{Answer, Errno};
use crate::profile::Profile;
use crate::world::World;
use crate::world::socket::{Phase, Socket};

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::SOL_TCP;
/// What buffers hold (include/uapi/linux/sock_diag.h).
const SO_MEMINFO: i32 = 55;
/// FreeBSD's options of TCP that Linux has no like of, by the numbers that the runner defines.
const TCP_KEEPINIT: i32 = 1000;
pub(crate) const TCP_NOOPT: i32 = 1001;

impl World {
    pub(crate) fn setsockopt(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<i32> {
        let profile = self.profile;
        let socket = self.socket_of(fd)?;
        if (level, name) == (TCP, libc::TCP_CONGESTION) {
            let kind = match String::from_utf8_lossy(value).trim_end_matches('\0') {
                "cubic" => 0,
                "reno" => 1,
                _ => return Err(Errno::ENOENT),
            };
            socket.values.insert((level, name), kind);
            self.apply_options(fd);
            return Ok(0);
        }
        let number = match (value.first_chunk::<4>(), value.first()) {
            (Some(number), _) => i32::from_ne_bytes(*number),
            // Some options of IP take one byte.
            (None, Some(byte)) if level == libc::IPPROTO_IP => i32::from(*byte),
            _ => return Err(Errno::EINVAL),
        };
        if (level, name) == (SOCKET, libc::SO_LINGER) {
            let seconds: [u8; 4] = value.get(4..8).and_then(|it| it.try_into().ok()).ok_or(Errno::EINVAL)?;
            socket.linger = (i32::from(number != 0), i32::from_ne_bytes(seconds));
            return Ok(0);
        }
        let kept = match (level, name) {
            (SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => profile.buffer(number),
            (SOCKET, libc::SO_ERROR) | (TCP, libc::TCP_INFO) => return Err(Errno::ENOPROTOOPT),
            (TCP, libc::TCP_MAXSEG) if number != 0 && !(88..=65_535).contains(&number) => {
                return Err(Errno::EINVAL);
            }
            (TCP, libc::TCP_SYNCNT) if !(1..=127).contains(&number) => return Err(Errno::EINVAL),
            (TCP, libc::TCP_KEEPCNT) if !(1..=127).contains(&number) => return Err(Errno::EINVAL),
            (TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL) if !(1..=32_767).contains(&number) => {
                return Err(Errno::EINVAL);
            }
            (TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_MD5SIG) => {
                return Err(Errno::ENOPROTOOPT);
            }
            _ => number,
        };
        socket.values.insert((level, name), kept);
        if (profile, level, name) == (Profile::Linux, TCP, libc::TCP_NODELAY) && number != 0 {
            self.send_waiting(fd);
        }
        self.apply_options(fd);
        Ok(0)
    }

    /// Linux sends what waits each time that TCP_NODELAY is set, also if it was set before.
    fn send_waiting(&mut self, fd: i32) {
        let now_us = self.now_us();
        let connection = self.sockets.get(&fd).and_then(Socket::connection);
        if let (Some(connection), Ok(options)) = (connection, self.engine_options(fd)) {
            self.engine().set_options(now_us, connection, Options { no_delay: false, ..options });
        }
    }

    pub(crate) fn getsockopt(&mut self, fd: i32, level: i32, name: i32) -> Answer<Vec<u8>> {
        match (level, name) {
            (TCP, libc::TCP_INFO) => return self.info(fd),
            // packetdrill asks for these beside it; no script looks at them.
            (TCP, libc::TCP_CC_INFO) => return Ok(Vec::new()),
            (SOCKET, SO_MEMINFO) => return Ok(vec![0; 36]),
            _ => {}
        }
        let number = self.number_of_option(fd, level, name)?;
        Ok(number.to_ne_bytes().to_vec())
    }

    fn number_of_option(&mut self, fd: i32, level: i32, name: i32) -> Answer<i32> {
        let (receive, send) = self.knobs.buffers();
        let of = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let socket = self.socket_of(fd)?;
        if (level, name) == (SOCKET, libc::SO_ERROR) {
            return Ok(socket.error.take().map_or(0, |errno| errno.0));
        }
        let kept = socket.value(level, name);
        let (phase, connection) = (socket.phase, socket.connection());
        Ok(match (level, name) {
            (TCP, libc::TCP_MAXSEG) if connection.is_some() => {
                let view = connection.and_then(|it| self.view(it));
                view.map_or(536, |it| it.mss as i32)
            }
            (SOCKET, libc::SO_RCVBUF) if self.profile.rounds_buffers() && connection.is_some() => {
                of(self.rounded(kept.map_or(receive, |it| it as u32), connection))
            }
            (SOCKET, libc::SO_ACCEPTCONN) => i32::from(matches!(phase, Phase::Listening(_))),
            (SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            _ => match kept {
                Some(value) => value,
                None => match (level, name) {
                    (SOCKET, libc::SO_RCVBUF) => of(receive),
                    (SOCKET, libc::SO_SNDBUF) => of(send),
                    (TCP, libc::TCP_NOTSENT_LOWAT) => 0,
                    (TCP, libc::TCP_MAXSEG) => 536,
                    _ => self.default_of(level, name),
                },
            },
        })
    }

    /// Times are in seconds, as each system's own settings have them.
    fn default_of(&self, level: i32, name: i32) -> i32 {
        let seconds =
            |setting: &str, default: i64| self.knobs.number(setting).map_or(default, |it| it / 1000) as i32;
        match (self.profile, level, name) {
            (Profile::FreeBsd, TCP, TCP_KEEPINIT) => seconds("net.inet.tcp.keepinit", 75),
            (Profile::FreeBsd, TCP, libc::TCP_KEEPIDLE) => seconds("net.inet.tcp.keepidle", 7200),
            (Profile::FreeBsd, TCP, libc::TCP_KEEPINTVL) => seconds("net.inet.tcp.keepintvl", 75),
            (Profile::FreeBsd, TCP, libc::TCP_KEEPCNT) => {
                self.knobs.number("net.inet.tcp.keepcnt").unwrap_or(8) as i32
            }
            (Profile::Linux, TCP, libc::TCP_KEEPIDLE) => 7200,
            (Profile::Linux, TCP, libc::TCP_KEEPINTVL) => 75,
            (Profile::Linux, TCP, libc::TCP_KEEPCNT) => 9,
            (Profile::Linux, TCP, libc::TCP_SYNCNT) => 6,
            (_, SOCKET, libc::SO_RCVLOWAT) => 1,
            _ => 0,
        }
    }

    /// What a socket's options mean to the engine.
    pub(crate) fn engine_options(&mut self, fd: i32) -> Answer<Options> {
        let unsent_low = self.unsent_low(fd);
        let (receive, send) = self.knobs.buffers();
        let (profile, mtu) = (self.profile, self.knobs.path_mtu());
        let defaults: Vec<i32> = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT]
            .into_iter()
            .map(|name| self.default_of(TCP, name))
            .collect();
        let opening = self.default_of(TCP, TCP_KEEPINIT);
        let connection = self.socket_of(fd)?.connection();
        let exact = match self.rounded(1, connection) {
            1 => None,
            segment => Some(segment),
        };
        let socket = self.socket_of(fd)?;
        // How long FreeBSD tries to connect.
        let is_opening =
            profile == Profile::FreeBsd && matches!(socket.phase, Phase::New | Phase::Connecting(_));
        let of = |name: i32| socket.value(TCP, name);
        let is_on = |name: i32| of(name).is_some_and(|value| value != 0);
        let seconds = |value: i32| Duration::from_secs(u64::try_from(value).unwrap_or(0));
        let whole = |value: i32| u32::try_from(value).unwrap_or(0);
        let set = |name: i32| socket.value(SOCKET, name).map(whole);
        let keeps = socket.value(SOCKET, libc::SO_KEEPALIVE).is_some_and(|value| value != 0);
        let rounded = set(libc::SO_RCVBUF).unwrap_or(receive);
        let headers = if socket.family == libc::AF_INET6 { 60 } else { 40 };
        let segment = exact.unwrap_or_else(|| u32::from(mtu.saturating_sub(headers)).max(1));
        Ok(Options {
            no_delay: is_on(libc::TCP_NODELAY),
            cork: is_on(libc::TCP_CORK),
            quick_ack: is_on(libc::TCP_QUICKACK),
            acks: profile.acks(),
            keepalive: if keeps {
                seconds(of(libc::TCP_KEEPIDLE).unwrap_or(defaults[0]))
            } else {
                Duration::MAX
            },
            keepalive_interval: seconds(of(libc::TCP_KEEPINTVL).unwrap_or(defaults[1])),
            keepalive_count: of(libc::TCP_KEEPCNT).unwrap_or(defaults[2]).clamp(1, 255) as u8,
            user_timeout: match of(libc::TCP_USER_TIMEOUT) {
                Some(milliseconds) if milliseconds > 0 => Duration::from_millis(milliseconds as u64),
                _ if is_opening => seconds(of(TCP_KEEPINIT).unwrap_or(opening)),
                _ => Duration::MAX,
            },
            advertised_timeout: Duration::ZERO,
            mss: of(libc::TCP_MAXSEG).map_or(0, |mss| mss as u16),
            receive_buffer: match profile {
                Profile::Linux => set(libc::SO_RCVBUF),
                Profile::FreeBsd => Some(rounded.next_multiple_of(segment)),
            },
            send_buffer: Some(set(libc::SO_SNDBUF).unwrap_or(send)),
            syn_retries: of(libc::TCP_SYNCNT).map(|count| count as u8),
            fin_wait: of(libc::TCP_LINGER2).filter(|it| *it > 0).map(seconds),
            unsent_low,
            congestion: of(libc::TCP_CONGESTION).map(|kind| match kind {
                0 => CongestionKind::Cubic,
                _ => CongestionKind::NewReno,
            }),
        })
    }

    /// Bytes that a socket's send buffer has.
    pub(crate) fn send_buffer(&self, fd: i32) -> usize {
        let set = self.sockets.get(&fd).and_then(|it| it.value(SOCKET, libc::SO_SNDBUF));
        set.map_or(self.knobs.buffers().1 as usize, |bytes| usize::try_from(bytes).unwrap_or(0))
    }

    pub(crate) fn unsent_low(&self, fd: i32) -> u32 {
        let of_socket = self.sockets.get(&fd).and_then(|it| it.value(TCP, libc::TCP_NOTSENT_LOWAT));
        of_socket.map(|low| low as u32).filter(|low| *low != 0).unwrap_or_else(|| self.knobs.unsent_low())
    }

    /// The engine takes the socket's options as they are now.
    pub(crate) fn apply_options(&mut self, fd: i32) {
        let now_us = self.now_us();
        let Ok(options) = self.engine_options(fd) else { return };
        match self.sockets.get(&fd).map(|it| it.phase) {
            Some(Phase::Connecting(connection) | Phase::Connected(connection)) => {
                self.engine().set_options(now_us, connection, options);
            }
            Some(Phase::Listening(listener)) => self.engine().set_listener_options(listener, options),
            Some(Phase::New) | None => {}
        }
    }

    /// FreeBSD makes a connection's receive buffer a multiple of its largest segment, once it has seen the peer's SYN
    /// (`tcp_mss` in its tcp_input.c).
    fn rounded(&mut self, bytes: u32, connection: Option<Connection>) -> u32 {
        let Some(view) = connection.and_then(|it| self.view(it)).filter(|it| it.has_answer) else {
            return bytes;
        };
        let segment = view.mss + if view.has_timestamps { 12 } else { 0 };
        bytes.next_multiple_of(segment.max(1))
    }

    /// A connection has begun: the socket's options hold for it.
    pub(crate) fn adopt(&mut self, connection: Connection) {
        let Some(fd) = self.owners.get(&connection).copied() else { return };
        self.apply_options(fd);
    }

    fn info(&mut self, fd: i32) -> Answer<Vec<u8>> {
        let now_us = self.now_us();
        let phase = self.socket_of(fd)?.phase;
        let connection = self.socket_of(fd)?.connection();
        let found = connection.and_then(|it| self.engine().info(now_us, it));
        Ok(found.unwrap_or_else(|| crate::info::without_connection(matches!(phase, Phase::Listening(_)))))
    }
}
