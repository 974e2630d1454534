//! Selects the remote of a frame: the one behind which its destination was last seen, or all of them (RFC 7348
//! section 4.1).

use std::net::Ipv6Addr;

use twinpath_time::{Duration, Instant};
use twinpath_wire::eth::{self, EtherType, TAG_LEN};

/// Maximum number of addresses that a port knows, of both remotes and their hosts: a power of two. 16 bytes each.
const ADDRESSES: usize = 16_384;

/// Number of entries among which an address can choose. If all are taken, the one that was silent for longest is
/// replaced: its frames go to all remotes until it is seen again.
const CHOICES: usize = 8;

/// An Ethernet address and its VLAN, as one number that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

impl Key {
    /// Of six bytes on the wire.
    fn of(address: &[u8], frame: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f] = *address.first_chunk()?;
        let [high, low] = *frame.get(12..)?.first_chunk()?;
        let vlan = if u16::from_be_bytes([high, low]) == EtherType::VLAN.0 {
            let [high, low] = *frame.get(eth::HEADER_LEN..eth::HEADER_LEN + TAG_LEN)?.first_chunk()?;
            u16::from_be_bytes([high, low]) & 0xfff
        } else {
            0
        };
        Some(Self(1 << 63 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]) << 12 | u64::from(vlan)))
    }
}

/// One address: its remote, and when it was last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    key: u64,
    remote: u16,
    /// Seconds since the first time of the clock.
    at_s: u32,
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One remote, by its index.
    One(u16),
    /// Each of them.
    All,
}

/// The remotes of a port, and the learnt addresses behind them.
#[derive(Debug)]
pub(crate) struct Remotes {
    addresses: Box<[Ipv6Addr]>,
    /// With a single remote, nothing is learnt.
    seen: Box<[[Seen; CHOICES]]>,
    seed: [u64; 2],
    ageing: Duration,
}

impl Remotes {
    /// Remotes by their addresses, with IPv4 addresses mapped. `seed` must be secret.
    pub(crate) fn new(addresses: Box<[Ipv6Addr]>, ageing: Duration, seed: [u64; 2]) -> Self {
        let places = if addresses.len() > 1 { ADDRESSES / CHOICES } else { 0 };
        Self { addresses, seen: vec![[Seen::default(); CHOICES]; places].into_boxed_slice(), seed, ageing }
    }

    pub(crate) const fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The index of the remote with that address.
    #[inline]
    pub(crate) fn place_of(&self, address: Ipv6Addr) -> Option<u16> {
        self.addresses.iter().position(|known| *known == address).map(|at| at as u16)
    }

    /// Learns from a frame that came from that remote.
    #[inline]
    pub(crate) fn learn(&mut self, frame: &[u8], remote: u16, now: Instant) {
        if self.seen.is_empty() || frame.get(6).is_none_or(|first| first & 1 != 0) {
            return;
        }
        let Some(key) = frame.get(6..).and_then(|source| Key::of(source, frame)) else { return };
        let place = self.place(key);
        let choices = &mut self.seen[place];
        let known = choices.iter().position(|seen| seen.key == key.0);
        // An empty entry counts as last seen at time 0.
        let oldest = || (0..CHOICES).min_by_key(|at| choices[*at].at_s);
        if let Some(at) = known.or_else(oldest) {
            choices[at] = Seen { key: key.0, remote, at_s: seconds(now) };
        }
    }

    /// The destination of a frame that leaves through the port.
    #[inline]
    pub(crate) fn target(&self, frame: &[u8], now: Instant) -> Target {
        if self.seen.is_empty() {
            return Target::One(0);
        }
        let is_group = frame.first().is_none_or(|first| first & 1 != 0);
        let Some(key) = Key::of(frame, frame).filter(|_| !is_group) else { return Target::All };
        let seen = self.seen[self.place(key)].iter().find(|seen| seen.key == key.0);
        let fresh =
            seen.filter(|seen| u64::from(seconds(now).saturating_sub(seen.at_s)) <= self.ageing.as_secs());
        fresh.map_or(Target::All, |seen| Target::One(seen.remote))
    }

    /// Multiplied by secret numbers, so that nobody can choose addresses that share entries.
    #[inline]
    fn place(&self, Key(key): Key) -> usize {
        let [first, second] = self.seed.map(|seed| seed | 1);
        let mixed = (key ^ key >> 31).wrapping_mul(first);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(second);
        (mixed >> 32) as usize & (self.seen.len() - 1)
    }
}

fn seconds(now: Instant) -> u32 {
    // Overflows after 136 years.
    (now.as_nanos() / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remotes(count: u16) -> Remotes {
        let addresses = (0..count).map(|at| Ipv6Addr::from(u128::from(at) + 1)).collect();
        Remotes::new(addresses, Duration::from_secs(300), [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321])
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// A frame from one host to another, with a tag if there is a VLAN.
    fn frame(from: u32, to: u32, vlan: Option<u16>) -> Vec<u8> {
        let address = |host: u32| [&[2, 0][..], &host.to_be_bytes()].concat();
        let tag = vlan.map(|vlan| [&[0x81, 0][..], &vlan.to_be_bytes()].concat()).unwrap_or_default();
        [address(to), address(from), tag, vec![8, 0], vec![0; 46]].concat()
    }

    #[test]
    fn a_frame_follows_the_last_frame_of_its_destination() {
        let mut remotes = remotes(3);
        let to_two = frame(1, 2, None);
        assert_eq!(remotes.target(&to_two, at(1)), Target::All);
        for (remote, now) in [(2, 10), (0, 20)] {
            remotes.learn(&frame(2, 9, None), remote, at(now));
            assert_eq!(remotes.target(&to_two, at(now)), Target::One(remote));
        }
        assert_eq!(remotes.target(&to_two, at(320)), Target::One(0));
        assert_eq!(remotes.target(&to_two, at(321)), Target::All, "it is too old");
        // VLANs are apart; priority does not matter.
        remotes.learn(&frame(2, 9, Some(0x2000 | 10)), 1, at(400));
        assert_eq!(remotes.target(&frame(1, 2, Some(10)), at(400)), Target::One(1));
        assert_eq!(remotes.target(&frame(1, 2, Some(11)), at(400)), Target::All);
        // Groups, and what is no frame, go to all, and are not learned.
        let mut group = frame(1, 2, None);
        group[0] = 1;
        assert_eq!(remotes.target(&group, at(20)), Target::All);
        remotes.learn(&group.iter().rev().copied().collect::<Vec<_>>(), 1, at(20));
        for len in 0..14 {
            remotes.learn(&to_two[..len], 1, at(20));
            assert_eq!(remotes.target(&to_two[..len], at(20)), Target::All);
        }
    }

    #[test]
    fn one_remote_gets_everything() {
        let mut remotes = remotes(1);
        remotes.learn(&frame(2, 9, None), 0, at(1));
        assert_eq!(remotes.target(&frame(1, 3, None), at(2)), Target::One(0));
        assert_eq!(
            (remotes.place_of(Ipv6Addr::from(1)), remotes.place_of(Ipv6Addr::from(2))),
            (Some(0), None)
        );
    }

    #[test]
    fn a_full_table_forgets_what_was_silent_for_longest() {
        let mut remotes = remotes(2);
        let hosts = 4 * ADDRESSES as u32;
        for host in 0..hosts {
            remotes.learn(&frame(host, 0, None), 1, at(u64::from(host / 1024)));
        }
        let now = at(u64::from(hosts / 1024));
        let known = |range: std::ops::Range<u32>| {
            range.filter(|host| remotes.target(&frame(0, *host, None), now) == Target::One(1)).count()
        };
        assert!(known(0..hosts) <= ADDRESSES);
        assert!(known(hosts - 4096..hosts) > 4000, "the latest are known");
    }
}
