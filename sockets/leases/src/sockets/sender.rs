//! The sending side of a socket that has a lease: datagrams leave as frames of our own, with the headers with which the kernel has
//! just sent another one to the same peer.
//!
//! So the kernel decides on the headers: route, neighbour, source address, hop limit, traffic class, address
//! translation. Frames are learned only from whole datagrams that the kernel sends at this interface. What takes a path
//! that fragments, or another interface, therefore stays with the kernel. So does what comes from a device above the
//! interface (macvlan, ipvlan with an address of its own), whose sender is another one. A frame passes the interface's
//! queueing discipline and egress filters as the kernel's do. It bypasses the host's rules for what it sends (nftables
//! at `output` and `postrouting`, programs on the cgroup) and the counters of UDP: these see only two datagrams in
//! about [`FRESH`]. So an application has to ask for it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{SendFlags, send};
use twinpath_attach::Sending;
use twinpath_rings::sample::Head;
use twinpath_time::{Duration, Instant};
use twinpath_wire::udp_template::{HEADER_LEN_MAX, UdpTemplate};

/// How long headers are used after the kernel has sent with them. So changes of routes, neighbours and options are in force
/// after that time, and the kernel sees often enough that a neighbour is in use.
const FRESH: Duration = Duration::from_millis(10);

/// Maximum number of known peers, a power of two. A new peer takes the place of another one with the same hash.
const PLACES: usize = 256;

/// What is known of a peer.
#[derive(Debug)]
struct Peer {
    to: SocketAddr,
    /// When the kernel has last sent to it.
    at: Instant,
    template: Option<UdpTemplate>,
}

#[derive(Debug)]
pub(crate) struct Sender {
    sending: Sending,
    port: u16,
    peers: Box<[Option<Peer>]>,
    buffer: Box<[u8]>,
    by_frame: u64,
    by_kernel: u64,
}

impl Sender {
    /// For a socket that is bound to `port`, on an interface for IP packets of up to `mtu` bytes.
    pub(crate) fn new(sending: Sending, port: u16, mtu: u32) -> Self {
        let buffer = vec![0; HEADER_LEN_MAX + mtu as usize].into();
        let peers = std::iter::repeat_with(|| None).take(PLACES).collect();
        Self { sending, port, peers, buffer, by_frame: 0, by_kernel: 0 }
    }

    pub(crate) fn into_sending(self) -> Sending {
        self.sending
    }

    /// Datagrams that left as frames, and by the kernel.
    pub(crate) const fn counts(&self) -> (u64, u64) {
        (self.by_frame, self.by_kernel)
    }

    /// The next datagram to any peer is sent by the kernel, as options of the socket have changed.
    pub(crate) fn forget(&mut self) {
        self.peers.fill_with(|| None);
    }

    /// Sends a datagram, as a frame or else by the kernel.
    pub(crate) fn send(
        &mut self,
        payload: &[u8],
        to: SocketAddr,
        now: Instant,
        by_kernel: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let place = place_of(to);
        let known = self.peers[place].as_ref().filter(|peer| peer.to == to && now < peer.at + FRESH);
        if let Some(template) = known.and_then(|peer| peer.template.as_ref())
            && payload.len() <= template.payload_len()
            && let Some(len) = template.write(&mut self.buffer, payload)
            && let Some(frames) = &self.sending.frames
            // If there is no room, or the interface is down, the kernel's call reports the error, or waits.
            && send(frames, &self.buffer[..len], SendFlags::DONTWAIT).is_ok()
        {
            self.by_frame += 1;
            return Ok(payload.len());
        }
        // A peer that nothing was sent to lately is not worth asking for.
        let asks = known.is_some();
        let (sent, head) = if asks { self.sending.sample.of(by_kernel) } else { (by_kernel(), None) };
        let len = sent?;
        let template = head.and_then(|head| template_of(&head, to, self.port));
        let template = template.filter(|template| template.source_mac() == self.sending.mac);
        self.peers[place] = Some(Peer { to, at: now, template });
        self.by_kernel += 1;
        Ok(len)
    }
}

/// Of a frame from our port to the peer.
fn template_of(head: &Head, to: SocketAddr, port: u16) -> Option<UdpTemplate> {
    let frame_len = head.frame_len as usize;
    let template = UdpTemplate::parse(&head.bytes[..frame_len.min(head.bytes.len())], frame_len)?;
    let is_to = template.destination() == SocketAddr::new(to.ip().to_canonical(), to.port());
    (is_to && template.source().port() == port).then_some(template)
}

/// Where a peer is looked for.
fn place_of(to: SocketAddr) -> usize {
    let address = match to.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    // Fibonacci hashing: the upper bits depend on all.
    let mixed = (address ^ u64::from(to.port()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % PLACES
}
