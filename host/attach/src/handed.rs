//! Hands over the contents of a lease's ring to the kernel's socket when nobody will read it from the ring:
//! its process has ended, or the socket may be read by a process that does not know the ring.
//!
//! Each datagram is sent on the interface, with a mark. A program at tc egress turns it around, so that it
//! arrives at the interface again. The program at ingress passes it if it is for the socket that had the
//! lease when it first arrived. Otherwise it drops it, just as the kernel drops datagrams that a closed
//! socket had not received (`stack/bpf/bpf/lease.c`). The memory of the ring belongs to another process,
//! which may have written anything there. So only a whole datagram to that very socket is sent, and the
//! kernel checks it like any packet from a wire.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use twinpath_bpf::{Assigned, LEASE_SLOTS};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_rings::remains::Remains;
use twinpath_sys::{PacketSocket, clock};
use twinpath_time::Duration;
use twinpath_wire::checksum::Sum;
use twinpath_wire::udp::HEADER_LEN;
use twinpath_wire::{ChecksumFound, ChecksumTrust, Mac, udp_frame};

use crate::leased::{Handing, LeaseError, LeasedInterface, OWN};

/// How long frames may take from the packet socket to the program at ingress. Usually they are there when
/// the send returns.
const ARRIVAL: Duration = Duration::from_millis(5);

/// The outcome for the datagrams that were in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Datagrams passed to the kernel for their socket.
    pub passed: u64,
    /// Lost datagrams: the socket is closed, or passing failed.
    pub lost: u64,
}

/// The conditions under which a frame is sent.
struct Wanted<'a> {
    trust: ChecksumTrust,
    mac: Mac,
    own: &'a [IpAddr],
    local: SocketAddr,
}

impl LeasedInterface {
    /// Hands over the contents of a lease's ring, which nobody may read meanwhile. Afterwards the ring is
    /// closed and empty. If the ring is open, datagrams that arrive until then are handed over as well, so
    /// order is kept. Neither the lease nor its socket ends by this.
    ///
    /// # Errors
    /// [`LeaseError::Memory`]: the ring is as it was.
    pub fn hand_over(&mut self, process: u32, number: u32) -> Result<HandedOver, LeaseError> {
        let Some((lent, local)) =
            self.place(process, number).and_then(|place| Some((place.lent, place.local?)))
        else {
            return Ok(HandedOver::default());
        };
        let mut remains = self.remains(process, number)?;
        if remains.is_empty() && remains.close() {
            return Ok(HandedOver::default());
        }
        let assigned = Assigned { process, number, lent };
        let mut handing = self.begin_handing(assigned).inspect_err(|error| {
            tracing::warn!("{}: what is in rings cannot be handed over: {error}", self.facts.name);
        });
        let mut unsent = if handing.is_err() { vec![0; SLOT_LEN] } else { Vec::new() };
        let before = self.leases.handed();
        let (mut taken, mut sent) = (0, 0);
        let trust =
            if self.facts.is_virtual() { ChecksumTrust::AcceptPartial } else { ChecksumTrust::Verify };
        let wanted = Wanted { trust, mac: self.target.mac, own: &self.target.addresses, local };
        loop {
            let into = handing.as_mut().map_or(&mut unsent[..], |handing| &mut handing.frame[..]);
            let Some(len) = remains.take(into, std::thread::yield_now) else {
                self.await_arrival(before.came.wrapping_add(sent));
                if remains.close() {
                    break;
                }
                continue;
            };
            taken += 1;
            if let Ok(Handing { socket, frame }) = &mut handing {
                let is_sent = wanted.completes(&mut frame[..len]) && socket.send(&frame[..len]).is_ok();
                sent += u64::from(is_sent);
            }
        }
        let passed = self.leases.handed().passed.wrapping_sub(before.passed).min(taken);
        self.handing = handing.ok();
        Ok(HandedOver { passed, lost: taken - passed })
    }

    /// Whether there is anything to be handed over.
    #[must_use]
    pub fn is_unread(&self, process: u32, number: u32) -> bool {
        self.remains(process, number).is_ok_and(|remains| !remains.is_empty())
    }

    /// Like [`Self::hand_over`], for a lease of this process ([`LeasedInterface::lend`]).
    ///
    /// # Errors
    /// As for [`Self::hand_over`].
    pub fn hand_over_own(&mut self, number: u32) -> Result<HandedOver, LeaseError> {
        self.hand_over(OWN, number)
    }

    fn remains(&self, process: u32, number: u32) -> Result<Remains, LeaseError> {
        let Some([states, slots]) = self.leases.rings(process) else { return Err(self.full()) };
        let states = Mapping::of_fd(states, self.leases.capacity() as usize * STATE_LEN, 0);
        let bytes = LEASE_SLOTS as usize * SLOT_LEN;
        let slots = Mapping::of_fd(slots, bytes, u64::from(number) * bytes as u64);
        let (states, slots) = (states.map_err(LeaseError::Memory)?, slots.map_err(LeaseError::Memory)?);
        let ring = DirectRing::new(Arc::new(states), number, slots, LEASE_SLOTS as usize);
        ring.map(Remains::new).map_err(|_| LeaseError::Memory(rustix::io::Errno::INVAL))
    }

    fn begin_handing(&mut self, of: Assigned) -> Result<Handing, LeaseError> {
        self.leases.attach_egress(self.target.ifindex, self.facts.tc_attach())?;
        self.leases.begin_handing(of)?;
        if let Some(handing) = self.handing.take() {
            return Ok(handing);
        }
        let open = || {
            let socket = PacketSocket::open(self.target.ifindex, 0)?;
            socket.set_mark(self.leases.handing_mark())?;
            Ok(Handing { socket, frame: vec![0; SLOT_LEN].into_boxed_slice() })
        };
        open().map_err(LeaseError::HandOver)
    }

    /// Waits until this many frames have come back, or the time for it is over.
    fn await_arrival(&self, came: u64) {
        let until = clock::now() + ARRIVAL;
        while (came.wrapping_sub(self.leases.handed().came) as i64) > 0 && clock::now() < until {
            std::thread::yield_now();
        }
    }
}

impl Wanted<'_> {
    /// Whether the frame is a whole datagram to the socket. A checksum that was left to hardware is
    /// completed.
    fn completes(&self, frame: &mut [u8]) -> bool {
        let Ok(datagram) = udp_frame::parse(frame, self.trust) else { return false };
        let to = datagram.destination;
        let bound = self.local.ip().to_canonical();
        let is_its = datagram.destination_mac == self.mac
            && to.port() == self.local.port()
            && self.own.contains(&to.ip())
            && (bound.is_unspecified() || bound == to.ip());
        if is_its && datagram.checksum == ChecksumFound::Partial {
            let Some(udp_at) = datagram.payload.start.checked_sub(HEADER_LEN) else { return false };
            let Some(segment) = frame.get_mut(udp_at..datagram.payload.end) else { return false };
            // The field has the sum of the pseudo-header. A checksum of 0 would mean that there is none.
            let checksum = match Sum::ZERO.bytes(segment).checksum() {
                0 => u16::MAX,
                checksum => checksum,
            };
            if let Some(field) = segment.get_mut(6..8) {
                field.copy_from_slice(&checksum.to_be_bytes());
            }
        }
        is_its
    }
}

#[cfg(test)]
mod tests {
    use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn frame(to: &str, payload: &[u8]) -> Vec<u8> {
        let destination: SocketAddr = to.parse().expect("an address");
        let source = if destination.is_ipv4() { "192.0.2.9:5000" } else { "[2001:db8::9]:5000" };
        let repr = UdpFrameRepr {
            source_mac: Mac([2, 0, 0, 0, 0, 2]),
            destination_mac: MAC,
            tag: None,
            source: source.parse().expect("an address"),
            destination,
            hop_limit: 64,
            identification: 1,
        };
        let mut frame = vec![0; repr.header_len()];
        frame.extend(payload);
        write_headers(&mut frame, &repr, payload.len()).expect("it fits");
        frame
    }

    fn wanted<'a>(local: &str, own: &'a [IpAddr]) -> Wanted<'a> {
        let local = local.parse().expect("an address");
        Wanted { trust: ChecksumTrust::AcceptPartial, mac: MAC, own, local }
    }

    #[test]
    fn a_partial_checksum_is_completed_and_anything_but_a_datagram_to_the_socket_is_refused() {
        let own = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|ip| ip.parse().expect("an address"));
        for (to, local, is_its) in [
            ("192.0.2.1:7", "0.0.0.0:7", true),
            ("192.0.2.1:7", "[::]:7", true),
            ("192.0.2.1:7", "192.0.2.1:7", true),
            ("192.0.2.1:7", "[::ffff:192.0.2.1]:7", true),
            ("[2001:db8::1]:7", "[::]:7", true),
            ("192.0.2.2:7", "192.0.2.1:7", false),
            ("192.0.2.1:8", "0.0.0.0:7", false),
            ("192.0.2.3:7", "0.0.0.0:7", false),
        ] {
            for len in [0, 1, 4, 65, 1000] {
                let whole = frame(to, &vec![0xa7; len]);
                let mut partial = whole.clone();
                let datagram = udp_frame::parse(&whole, ChecksumTrust::Verify).expect("a datagram");
                let udp_at = datagram.payload.start - HEADER_LEN;
                let sum = match (datagram.source.ip(), datagram.destination.ip()) {
                    (IpAddr::V4(from), IpAddr::V4(to)) => {
                        Sum::ZERO.pseudo_ipv4(from, to, 17, (len + HEADER_LEN) as u16)
                    }
                    (IpAddr::V6(from), IpAddr::V6(to)) => {
                        Sum::ZERO.pseudo_ipv6(from, to, 17, (len + HEADER_LEN) as u32)
                    }
                    other => panic!("{other:?}"),
                };
                partial[udp_at + 6..udp_at + 8].copy_from_slice(&sum.fold().to_be_bytes());
                for mut sent in [whole.clone(), partial] {
                    assert_eq!(wanted(local, &own).completes(&mut sent), is_its, "{to} for {local}");
                    assert!(!is_its || sent == whole, "{to}, {len} bytes");
                }
                let mut other = whole.clone();
                other[5] ^= 1;
                assert!(!wanted(local, &own).completes(&mut other), "to another host");
            }
        }
        let mut random = [0x5au8; 100];
        assert!(!wanted("0.0.0.0:7", &own).completes(&mut random));
    }
}
