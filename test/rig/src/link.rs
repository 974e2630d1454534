//! Links between namespaces.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Stdio;

use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;

use crate::command::{command, ip};

/// One end of a pair of virtual interfaces.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The namespace that it is in.
    pub namespace: &'a Namespace,
    /// Its name.
    pub name: &'a str,
    /// Its addresses, with the lengths of their prefixes. They can be used at once.
    pub addresses: &'a [&'a str],
    /// More that `ip link add` is told of it, such as `address 02:00:00:00:00:01 numrxqueues 4`.
    pub with: &'a str,
}

impl<'a> End<'a> {
    /// An end as the kernel makes it by default.
    #[must_use]
    pub const fn new(namespace: &'a Namespace, name: &'a str, addresses: &'a [&'a str]) -> Self {
        Self { namespace, name, addresses, with: "" }
    }
}

/// Makes a veth pair, with addresses, up, as are both namespaces' loopback interfaces.
pub fn pair(one: End<'_>, other: End<'_>) {
    let peer = format!("peer name {} {} netns {}", other.name, other.with, name_of(other.namespace));
    let add = format!("link add {} {} type veth {peer}\n", one.name, one.with);
    for (namespace, lines) in [(one.namespace, add + &up(one)), (other.namespace, up(other))] {
        batch(namespace, &lines).unwrap_or_else(|error| panic!("ip: {error}"));
    }
}

fn up(end: End<'_>) -> String {
    let mut commands = String::from("link set lo up\n");
    for address in end.addresses {
        let at_once = if address.contains(':') { " nodad" } else { "" };
        let _ = writeln!(commands, "address add {address} dev {}{at_once}", end.name);
    }
    let _ = writeln!(commands, "link set {} up", end.name);
    commands
}

/// Runs lines of `ip`, up to the first that fails, by one process.
///
/// # Errors
/// What `ip` says of the line that fails.
pub fn batch(namespace: &Namespace, lines: &str) -> io::Result<()> {
    let mut command = command(namespace, "ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let written = child.stdin.take().expect("piped").write_all(lines.as_bytes());
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written;
    }
    Err(io::Error::other(format!("{lines}{}", String::from_utf8_lossy(&output.stderr))))
}

/// The name of a namespace for `ip link ... netns NAME`, as long as this process holds it.
#[must_use]
pub fn name_of(namespace: &Namespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd())
}

/// Moves an interface to another namespace, where it is down and has no address.
pub fn move_link(from: &Namespace, name: &str, to: &Namespace) {
    ip(from, &["link", "set", name, "netns", &name_of(to)]);
}

/// The index of an interface.
#[must_use]
pub fn ifindex(namespace: &Namespace, name: &str) -> u32 {
    namespace
        .run(|| interface_index(name))
        .expect("entered")
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A namespace without IPv6, so that the kernel sends nothing by itself.
#[must_use]
pub fn quiet() -> Namespace {
    let namespace = Namespace::new().expect("a namespace");
    let off = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    namespace.run(off).expect("entered").expect("IPv6 is switched off");
    namespace
}

/// A namespace whose loopback interface is up, and that has no other.
#[must_use]
pub fn loopback() -> Namespace {
    let namespace = Namespace::new().expect("a namespace");
    ip(&namespace, "link set lo up");
    namespace
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::wait::PATIENCE;

    #[test]
    fn a_pair_carries_both_families_at_once_and_an_end_can_be_moved() {
        if !crate::root_or_skip() {
            return;
        }
        let [here, there] = [(); 2].map(|()| Namespace::new().unwrap());
        pair(
            End::new(&here, "near0", &["10.9.0.1/24", "fd09::1/64"]),
            End {
                with: "address 02:00:00:00:00:02",
                ..End::new(&there, "far0", &["10.9.0.2/24", "fd09::2/64"])
            },
        );
        for (from, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
            let bound = |namespace: &Namespace, address| {
                namespace.run(|| UdpSocket::bind((address, 0u16))).unwrap().unwrap()
            };
            let (sends, receives) = (bound(&here, from), bound(&there, to));
            receives.set_read_timeout(Some(PATIENCE)).unwrap();
            sends.send_to(b"x", receives.local_addr().unwrap()).unwrap();
            assert_eq!(receives.recv_from(&mut [0; 8]).unwrap(), (1, sends.local_addr().unwrap()));
        }
        assert!(ip(&there, "link show far0").contains("02:00:00:00:00:02"));
        move_link(&there, "far0", &here);
        assert!(ifindex(&here, "far0") > 0 && !ip(&there, "link").contains("far0"));
    }

    #[test]
    fn a_quiet_namespace_has_no_address_that_would_speak() {
        if !crate::root_or_skip() {
            return;
        }
        let namespace = quiet();
        ip(&namespace, "link add near0 up type veth peer name far0");
        assert!(!ip(&namespace, "address show near0").contains("inet6"));
    }
}
