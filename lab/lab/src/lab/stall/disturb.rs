//! What disturbs a switch, beside controllers: a log that nobody reads, a resolver that does not answer, and ports that come
//! and go.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use twinpath_sys::Namespace;

use crate::lab::instance::Instance;
use crate::lab::topology;

/// A name that only a resolver can know, as nobody may have it (RFC 6761).
pub(super) const CONTROLLER: &str = "tcp:controller.invalid:6653";
/// Where glibc asks if no other resolver is configured.
const RESOLVER: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A pipe without room: what is written to it waits until somebody reads, which nobody does.
#[derive(Debug)]
pub(super) struct FullPipe {
    _read: OwnedFd,
}

impl FullPipe {
    /// The pipe, and its end for writing.
    pub(super) fn new() -> anyhow::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context("no pipe")?;
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK)?;
        let mut file = std::fs::File::from(write);
        while file.write(&[b'\n'; 4096]).is_ok() {}
        let write = OwnedFd::from(file);
        rustix::fs::fcntl_setfl(&write, OFlags::empty())?;
        Ok((Self { _read: read }, write))
    }
}

/// The resolver of this host's configuration, which takes questions in one namespace and answers none.
#[derive(Debug)]
pub(super) struct SilentResolver {
    socket: UdpSocket,
}

impl SilentResolver {
    pub(super) fn new(namespace: &Namespace) -> anyhow::Result<Self> {
        let configured = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let address = resolver(&configured)?;
        if !address.is_loopback() {
            topology::address_of_its_own(namespace, address)?;
        }
        let socket = namespace.run(|| UdpSocket::bind(SocketAddr::new(IpAddr::V4(address), 53)))?;
        let socket = socket.with_context(|| format!("cannot be the resolver at {address}"))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// # Errors
    /// Nobody has asked it, so nobody waits for it.
    pub(super) fn has_been_asked(&self) -> anyhow::Result<()> {
        ensure!(
            self.socket.recv(&mut [0; 512]).is_ok(),
            "the switch has asked no resolver for its controller"
        );
        Ok(())
    }
}

/// The first one of resolv.conf(5).
fn resolver(configured: &str) -> anyhow::Result<Ipv4Addr> {
    let mut lines = configured.lines().map(str::split_whitespace);
    let address = lines.find_map(|mut words| (words.next() == Some("nameserver")).then(|| words.next())?);
    address.map_or(Ok(RESOLVER), |address| {
        address.parse().with_context(|| format!("the resolver {address} has no IPv4 address"))
    })
}

/// Adds ports one by one and removes them, over and over. Ends with the first failure only.
pub(super) async fn change_ports(instance: &Instance, ports: &[&str]) -> anyhow::Error {
    let round = async || -> anyhow::Result<()> {
        for port in ports {
            instance.add_port(port).await?;
        }
        for port in ports {
            instance.remove_port(port).await?;
        }
        Ok(())
    };
    loop {
        if let Err(error) = round().await {
            return error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_resolver_is_taken_or_the_usual_one() {
        let found = |text: &str| resolver(text).ok();
        assert_eq!(found("search x\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"), "192.0.2.1".parse().ok());
        assert_eq!(found("options edns0\n"), Some(RESOLVER));
        assert_eq!(found("nameserver 2001:db8::1\n"), None);
    }

    #[test]
    fn a_full_pipe_takes_nothing() {
        let (_pipe, write) = FullPipe::new().unwrap();
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
        assert_eq!(rustix::io::write(&write, b"x"), Err(rustix::io::Errno::AGAIN));
    }
}
