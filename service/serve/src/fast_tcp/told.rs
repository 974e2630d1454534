//! What routers have said of the paths to peers, for connections that begin later. Without it each of them would lose its
//! first long segments.

use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::net::IpAddr;

use twinpath_time::{Duration, Instant};

/// How long it is believed (RFC 1191 section 6.3, RFC 8201 section 4; Linux's `mtu_expires`).
const TOLD_FOR: Duration = Duration::from_secs(600);

/// The same is not noted again within this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Maximum number of peers. The first one is forgotten for another.
const TOLD_MAX: usize = 4096;

/// The MTUs, and until when they are believed.
#[derive(Debug, Default)]
pub(crate) struct ToldPaths {
    mtus: HashMap<IpAddr, (u16, Instant), RandomState>,
    /// The same peers in order; one that was told of again is here more than once.
    order: VecDeque<(Instant, IpAddr)>,
}

impl ToldPaths {
    /// A router says that the path to a peer carries packets of at most `mtu` bytes. A larger one than before is no news.
    pub(crate) fn add(&mut self, now: Instant, peer: IpAddr, mtu: u16) {
        if self.find(now, peer).is_some_and(|known| known < mtu) {
            return;
        }
        // Repeating it must not make others forgotten.
        let is_repeated = |(known, until): &(u16, Instant)| *known == mtu && now + TOLD_FOR < *until + AGAIN;
        if self.mtus.get(&peer).is_some_and(is_repeated) {
            return;
        }
        while self.order.len() >= TOLD_MAX
            && let Some((until, oldest)) = self.order.pop_front()
        {
            if self.mtus.get(&oldest).is_some_and(|(_, last)| *last == until) {
                self.mtus.remove(&oldest);
            }
        }
        let until = now + TOLD_FOR;
        self.mtus.insert(peer, (mtu, until));
        self.order.push_back((until, peer));
    }

    /// What the path to a peer carries, if somebody has said so lately.
    #[inline]
    pub(crate) fn find(&self, now: Instant, peer: IpAddr) -> Option<u16> {
        if self.mtus.is_empty() {
            return None;
        }
        self.mtus.get(&peer).filter(|(_, until)| now < *until).map(|(mtu, _)| *mtu)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn what_was_told_is_known_for_ten_minutes_and_of_so_many_peers() {
        let mut told = ToldPaths::default();
        let peer = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number));
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        told.add(at(0), peer(0), 1300);
        told.add(at(1), peer(0), 1400);
        assert_eq!((told.find(at(599), peer(0)), told.find(at(600), peer(0))), (Some(1300), None));
        told.add(at(300), peer(0), 1300);
        assert_eq!((told.find(at(899), peer(0)), told.find(at(900), peer(0))), (Some(1300), None));
        told.add(at(900), peer(0), 1400);
        assert_eq!(told.find(at(900), peer(0)), Some(1400));
        // One that is repeated takes no place of another.
        told.add(at(900), peer(20_000), 1300);
        (0..10_000).for_each(|_| told.add(at(901), peer(0), 1400));
        assert_eq!((told.order.len(), told.find(at(901), peer(20_000))), (4, Some(1300)));
        for number in 1..=10_000 {
            told.add(at(901), peer(number), 1300);
        }
        assert!(told.mtus.len() <= TOLD_MAX && told.order.len() <= TOLD_MAX);
        assert_eq!((told.find(at(901), peer(0)), told.find(at(901), peer(10_000))), (None, Some(1300)));
    }
}
