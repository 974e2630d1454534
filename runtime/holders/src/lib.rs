//! Finds the process that holds a port of this host, for the message "already in use".

use std::fmt;
use std::net::IpAddr;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

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

/// The sockets of this network namespace that hold `port`, IPv4 first. Empty if there are none, or if /proc cannot be
/// read: it is only for a message.
#[must_use]
pub fn holders(transport: Transport, port: u16) -> Vec<Holder> {
    let mut sockets = match transport {
        Transport::Udp => udp(port),
        Transport::Tcp => tcp(port),
    };
    sockets.dedup_by_key(|(inode, _)| *inode);
    sockets.into_iter().map(|(inode, holder)| Holder { process: process_of(inode), ..holder }).collect()
}

/// Whether any socket of this network namespace holds `port`, of TCP a listening one; `None` if that cannot be read.
#[must_use]
pub fn is_held(transport: Transport, port: u16) -> Option<bool> {
    let tables = own_tables()?;
    // Without IPv6 there is no second table.
    let (is_readable, sockets) = match transport {
        Transport::Udp => (tables.udp().is_ok(), udp(port)),
        Transport::Tcp => (tables.tcp().is_ok(), tcp(port)),
    };
    is_readable.then_some(!sockets.is_empty())
}

/// The tables of the calling thread's namespace: /proc/net shows that of the process's main thread.
fn own_tables() -> Option<Process> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    Process::new_with_root(format!("/proc/self/task/{thread}").into()).ok()
}

fn udp(port: u16) -> Vec<(u64, Holder)> {
    let Some(tables) = own_tables() else { return Vec::new() };
    let rows = [tables.udp(), tables.udp6()].into_iter().flatten().flatten();
    rows.filter(|row| row.local_address.port() == port)
        .map(|row| (row.inode, holder(Transport::Udp, row.local_address.ip(), port, row.uid)))
        .collect()
}

fn tcp(port: u16) -> Vec<(u64, Holder)> {
    let Some(tables) = own_tables() else { return Vec::new() };
    let rows = [tables.tcp(), tables.tcp6()].into_iter().flatten().flatten();
    rows.filter(|row| row.local_address.port() == port && row.state == TcpState::Listen)
        .map(|row| (row.inode, holder(Transport::Tcp, row.local_address.ip(), port, row.uid)))
        .collect()
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
    procfs::process::all_processes().ok()?.flatten().find_map(|process| {
        let holds = process
            .fd()
            .ok()?
            .flatten()
            .any(|descriptor| matches!(descriptor.target, FDTarget::Socket(held) if held == inode));
        let name = holds.then(|| process.stat().map_or_else(|_| "?".to_owned(), |stat| stat.comm))?;
        Some((process.pid, name))
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
