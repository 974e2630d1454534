//! Finds the process that holds a port of this host, for the message "already in use".

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP: listeners only.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A socket that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The transport.
    pub transport: Transport,
    /// The port.
    pub port: u16,
    /// The address it is bound to.
    pub address: IpAddr,
    /// User of the socket.
    pub uid: u32,
    /// Process id and name; `None` if we may not look into the process.
    pub process: Option<(i32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, port, uid, .. } = self;
        write!(f, "port {port}/{transport} is held by ")?;
        match &self.process {
            Some((pid, name)) => write!(f, "{name} (pid {pid})"),
            None => write!(f, "a process of user {uid} (run as root to see which)"),
        }
    }
}

/// The sockets of this network namespace that hold `port`, IPv4 first. Empty if there are none, or if /proc
/// cannot be read: the result is only used for a message.
#[must_use]
pub fn holders(transport: Transport, port: u16) -> Vec<Holder> {
    let mut sockets = sockets(transport, port).unwrap_or_default();
    sockets.dedup_by_key(|(inode, _)| *inode);
    sockets.into_iter().map(|(inode, holder)| Holder { process: process_of(inode), ..holder }).collect()
}

/// Whether any socket of this network namespace holds `port` (for TCP, a listening one); `None` if that
/// cannot be read.
#[must_use]
pub fn is_held(transport: Transport, port: u16) -> Option<bool> {
    sockets(transport, port).map(|sockets| !sockets.is_empty())
}

/// The sockets that hold a port, each with its inode, IPv4 first; `None` if they cannot be read.
fn sockets(transport: Transport, port: u16) -> Option<Vec<(u64, Holder)>> {
    // /proc/net shows the namespace of the process's main thread; this path shows that of the calling
    // thread.
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let table =
        |suffix: &str| fs::read_to_string(format!("/proc/self/task/{thread}/net/{transport}{suffix}"));
    // Without IPv6 there is no second table.
    let tables = [table("").ok()?, table("6").unwrap_or_default()];
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    Some(rows.filter_map(|row| socket(row, transport)).filter(|(_, holder)| holder.port == port).collect())
}

/// The socket in a row of a table (`udp4_seq_show`, `tcp4_seq_show`: number, own and other address, state, queues, timer,
/// retransmissions, user, timeout, inode); `None` for TCP sockets that do not listen.
fn socket(row: &str, transport: Transport) -> Option<(u64, Holder)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = row.split_ascii_whitespace().collect();
    let [_, own, _, state, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
    if transport == Transport::Tcp && state != LISTEN {
        return None;
    }
    let (address, port) = own.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((inode.parse().ok()?, holder(transport, ip(address)?, port, uid.parse().ok()?)))
}

/// An address in the format of the tables: words of 32 bits, each written as a number in the machine's byte
/// order.
fn ip(text: &str) -> Option<IpAddr> {
    let mut bytes = [0; 16];
    for (at, word) in bytes.chunks_exact_mut(4).enumerate().take(text.len() / 8) {
        let number = u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?;
        word.copy_from_slice(&number.to_ne_bytes());
    }
    match text.len() {
        8 => bytes.first_chunk::<4>().map(|v4| Ipv4Addr::from(*v4).into()),
        32 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

const fn holder(transport: Transport, address: IpAddr, port: u16, uid: u32) -> Holder {
    Holder { transport, port, address, uid, process: None }
}

/// The process that has the socket of that inode open, as text; `None` if it cannot be determined.
#[must_use]
pub fn holder_of_socket(inode: u64) -> Option<String> {
    process_of(inode).map(|(pid, name)| format!("{name} (pid {pid})"))
}

/// The first process that has that socket open.
fn process_of(inode: u64) -> Option<(i32, String)> {
    let socket = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let descriptors = fs::read_dir(process.path().join("fd")).ok()?;
        let holds =
            descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|is| is == Path::new(&socket)));
        let name = holds.then(|| fs::read_to_string(process.path().join("comm")))?;
        Some((pid, name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())))
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_is_held_for_as_long_as_a_socket_has_it() {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = [(Transport::Udp, udp.local_addr()), (Transport::Tcp, tcp.local_addr())];
        let ports = ports.map(|(transport, address)| (transport, address.unwrap().port()));
        let held = || ports.map(|(transport, port)| is_held(transport, port));
        assert_eq!(held(), [Some(true); 2]);
        drop((udp, tcp));
        assert_eq!(held(), [Some(false); 2]);
    }

    #[test]
    fn the_holder_of_a_port_is_named() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("[::1]:0");
        let own = i32::try_from(std::process::id()).unwrap();
        let port = udp.local_addr().unwrap().port();
        let found = holders(Transport::Udp, port);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].address, "127.0.0.1".parse::<IpAddr>().unwrap());
        let (pid, name) = found[0].process.clone().unwrap();
        assert_eq!(pid, own);
        assert_eq!(found[0].to_string(), format!("port {port}/udp is held by {name} (pid {own})"));
        if let Ok(tcp) = tcp {
            let found = holders(Transport::Tcp, tcp.local_addr().unwrap().port());
            assert_eq!(found[0].process.as_ref().map(|(pid, _)| *pid), Some(own));
        }
    }

    #[test]
    fn rows_of_the_tables_are_read() {
        let row = "  40: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 14713 1 ffff 100 0";
        let (inode, held) = socket(row, Transport::Tcp).unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!(held, holder(Transport::Tcp, IpAddr::from([127, 0, 0, 1]), 631, 101));
        }
        assert_eq!(inode, 14_713);
        assert_eq!(socket(&row.replace(" 0A ", " 01 "), Transport::Tcp), None, "a connection");
        assert!(socket(&row.replace(" 0A ", " 07 "), Transport::Udp).is_some());
        assert_eq!(socket(&row[..60], Transport::Tcp), None, "cut short");
        assert_eq!(ip(&"0".repeat(32)), Some(Ipv6Addr::UNSPECIFIED.into()));
        assert_eq!((ip("0100007"), ip(""), ip("0100007G")), (None, None, None));
    }

    #[test]
    fn a_free_port_has_no_holder_and_an_invisible_process_is_named_by_its_user() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        drop(socket);
        assert_eq!(holders(Transport::Udp, port), []);
        let other = Holder { uid: 1000, ..holder(Transport::Udp, IpAddr::from([0; 4]), 7, 0) };
        assert_eq!(
            other.to_string(),
            "port 7/udp is held by a process of user 1000 (run as root to see which)"
        );
    }
}
