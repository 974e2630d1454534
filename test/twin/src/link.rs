//! Two links that are the same but for their names in the kernel: each with the host's end, where the subject runs, and the peer's, from
//! where frames are injected.

use std::fs;
use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::{PacketSocket, interface_index};
use twinpath_sys::udp_socket::set_segment_size;
use twinpath_test_rig::{batch, name_of};

use crate::frame::{HOST_MAC, PEER_MAC, Sent, frames};
use crate::subject::starts;

/// The address that only marks are sent to, and their port. IPv6: no script changes routes by which the kernel judges
/// their sender.
const MARKS: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 0x250), 6999);
const MARKS_FROM: &str = "src=fd09::2";
/// Longer than any frame that arrives takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// One of both.
#[derive(Debug)]
pub struct Link {
    /// Where the subject runs.
    pub host: Namespace,
    /// Sends frames to the first and to the second interface.
    senders: [PacketSocket; 2],
    /// Sockets of the peer's kernel, of both families.
    peers: [UdpSocket; 2],
    marks: UdpSocket,
    sent: u32,
    has_unseen: bool,
    changes: Vec<String>,
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs `ip` with several commands in a namespace.
fn ip(namespace: &Namespace, commands: &str) -> Result<()> {
    let _alone = starts();
    batch(namespace, commands).context("ip")
}

fn set(namespace: &Namespace, name: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{}", name.replace('.', "/"));
    namespace.run(|| fs::write(&path, value)).context("the namespace")?.with_context(|| path.clone())
}

fn value_of(namespace: &Namespace, name: &str) -> Result<String> {
    let path = format!("/proc/sys/net/{}", name.replace('.', "/"));
    Ok(namespace.run(|| fs::read_to_string(&path))?.with_context(|| path.clone())?.trim().to_owned())
}

/// What both ends have alike: no traffic of their own, and no limit on what they answer to errors.
fn quiet(namespace: &Namespace) -> Result<()> {
    for (name, value) in [
        ("ipv6.conf.all.accept_dad", "0"),
        ("ipv6.conf.default.accept_dad", "0"),
        ("ipv6.conf.default.router_solicitations", "0"),
        ("ipv6.conf.default.accept_ra", "0"),
        ("ipv4.icmp_ratemask", "0"),
        ("ipv6.icmp.ratelimit", "0"),
        ("ipv4.conf.all.rp_filter", "0"),
        ("ipv4.conf.default.rp_filter", "0"),
    ] {
        set(namespace, name, value)?;
    }
    Ok(())
}

impl Link {
    /// Makes it.
    ///
    /// # Errors
    /// Without root.
    pub fn new() -> Result<Self> {
        let (host, peer) = (Namespace::new()?, Namespace::new()?);
        quiet(&host)?;
        quiet(&peer)?;
        let (ours, theirs, there) = (text_of(HOST_MAC), text_of(PEER_MAC), name_of(&peer));
        let mut commands = String::from("link set lo up\n");
        for (number, net) in [(0, 9), (1, 8)] {
            commands += &format!(
                "link add in{number} index 1{number} address {ours} type veth peer name out{number} index 1{number} \
                 address {theirs} netns {there}\naddr add 10.{net}.0.1/24 dev in{number}\n\
                 addr add fd0{net}::1/64 dev in{number} nodad\nlink set in{number} up\n\
                 neigh add 10.{net}.0.2 lladdr {theirs} dev in{number} nud permanent\n\
                 neigh add fd0{net}::2 lladdr {theirs} dev in{number} nud permanent\n"
            );
        }
        let (mark, _) = MARKS;
        commands += &format!(
            "addr add {mark}/128 dev in0 nodad\naddr add 10.9.0.250/32 dev in0\naddr add 10.9.0.11/24 dev in0\n\
             addr add fd09::11/64 dev in0 nodad\n"
        );
        // Hosts behind the peer.
        commands += "route add 10.7.0.0/16 via 10.9.0.2\nroute add fd07::/64 via fd09::2 dev in0\n";
        ip(&host, &commands)?;
        let mut commands = String::from("link set lo up\n");
        for (number, net) in [(0, 9), (1, 8)] {
            commands += &format!(
                "addr add 10.{net}.0.2/24 dev out{number}\naddr add fd0{net}::2/64 dev out{number} nodad\nlink set out{number} up\n\
                 neigh add 10.{net}.0.1 lladdr {ours} dev out{number} nud permanent\n\
                 neigh add fd0{net}::1 lladdr {ours} dev out{number} nud permanent\n"
            );
        }
        ip(&peer, &commands)?;
        let open = |name: &str| PacketSocket::open(interface_index(name)?, 0);
        let senders = peer.run(|| -> std::io::Result<_> { Ok([open("out0")?, open("out1")?]) })??;
        let bound = |host: &str| UdpSocket::bind((host, 4002));
        let peers = peer.run(|| -> std::io::Result<_> { Ok([bound("10.9.0.2")?, bound("fd09::2")?]) })??;
        let marks = host.run(|| UdpSocket::bind(MARKS))??;
        marks.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { host, senders, peers, marks, sent: 0, has_unseen: false, changes: Vec::new() })
    }

    /// Sends frames by the first or the second interface; whether they have arrived is not known before [`Link::arrived`].
    ///
    /// # Errors
    /// By the second: they do not arrive.
    pub fn send(&mut self, frames: &[Vec<u8>], by: usize) -> Result<()> {
        for frame in frames {
            // A frame that is longer than the interface takes is sent by neither.
            let _ = self.senders[by].send(frame);
        }
        if by > 0 {
            self.mark(by)?;
        }
        self.has_unseen = true;
        Ok(())
    }

    /// Sends a datagram, or several in one frame, by the peer's kernel.
    ///
    /// # Errors
    /// A kernel without UDP_SEGMENT.
    pub fn send_by_kernel(&mut self, sent: &Sent) -> Result<()> {
        let peer = &self.peers[usize::from(sent.to.is_ipv6())];
        set_segment_size(peer, sent.segment_len).context("UDP_SEGMENT")?;
        // What it does not send here it does not send on the other link either.
        let _ = peer.send_to(&sent.payload, sent.to);
        self.has_unseen = true;
        Ok(())
    }

    fn mark(&mut self, by: usize) -> Result<()> {
        self.sent += 1;
        let (address, port) = MARKS;
        let (destination, id, port) =
            (format!("dst={address}"), format!("id={}", self.sent), format!("dport={port}"));
        for frame in frames(&["udp", MARKS_FROM, &destination, &port, &id, "len=4", "sport=1"])? {
            self.senders[by].send(&frame)?;
        }
        let mut bytes = [0; 64];
        loop {
            let got = self.marks.recv(&mut bytes).context("no mark arrives")?;
            if bytes[..got] == self.sent.to_be_bytes() {
                return Ok(());
            }
        }
    }

    /// Waits until the kernel has processed everything that was sent: a mark that was sent behind it has arrived.
    ///
    /// # Errors
    /// It does not arrive.
    pub fn arrived(&mut self) -> Result<()> {
        if self.has_unseen {
            self.has_unseen = false;
            self.mark(0)?;
        }
        Ok(())
    }

    /// Changes something of the host's end: `addr+ 10.9.0.9/24 in0`, `route- 10.7.0.0/16`, `sysctl ipv4.conf.all.rp_filter=2`. What
    /// cannot be changed, as it is so already, stays. Returns whether it was changed.
    pub fn change(&mut self, step: &[&str]) -> bool {
        let undo = self.apply(step);
        let is_done = undo.is_ok();
        self.changes.extend(undo);
        is_done
    }

    fn apply(&self, step: &[&str]) -> Result<String> {
        match step {
            ["sysctl", setting] => {
                let (name, value) = setting.split_once('=').context("a value")?;
                let before = value_of(&self.host, name)?;
                set(&self.host, name, value)?;
                Ok(format!("sysctl {name}={before}"))
            }
            ["addr+", address, device] => {
                let nodad = if address.contains(':') { "nodad" } else { "" };
                ip(&self.host, &format!("addr add {address} dev {device} {nodad}\n"))?;
                Ok(format!("addr- {address} {device}"))
            }
            ["addr-", address, device] => {
                ip(&self.host, &format!("addr del {address} dev {device}\n"))?;
                Ok(format!("addr+ {address} {device}"))
            }
            ["route+", rest @ ..] => {
                ip(&self.host, &format!("route add {}\n", rest.join(" ")))?;
                Ok(format!("route- {}", rest.join(" ")))
            }
            ["route-", rest @ ..] => {
                ip(&self.host, &format!("route del {}\n", rest.join(" ")))?;
                Ok(format!("route+ {}", rest.join(" ")))
            }
            _ => anyhow::bail!("no change: {}", step.join(" ")),
        }
    }

    /// Undoes all changes, the last one first.
    ///
    /// # Errors
    /// One that cannot be undone.
    pub fn restore(&mut self) -> Result<()> {
        while let Some(undo) = self.changes.pop() {
            self.apply(&undo.split(' ').collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
