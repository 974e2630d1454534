//! Where all frames from one learned address to another go. Something other than a worker, such as the kernel, needs
//! this to forward them. It must report back, so that the table stays true.
//!
//! A worker forwards such frames by the destination, and learns nothing from them except that the source is still
//! there. So they may bypass the worker as long as both addresses stay where they are. A move is reported immediately
//! ([`OnMove`](crate::learning::OnMove)). The time when the destination expires is known in advance. [`Shared::heard`] reports
//! afterwards that the source was there.

use twinpath_time::Instant;
use twinpath_wire::Mac;

use crate::learning::arrival::{Arrival, is_group, mac_of, number_of};
use crate::learning::judge::vlan_of;
use crate::learning::outputs::{Tagged, Tagging};
use crate::learning::shared::Shared;
use crate::learning::snapshot::{NO_PORT, Snapshot};

/// The addresses of a frame that is not dropped for them or its VLAN, and goes to one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stations {
    /// Where it comes from.
    pub source: Mac,
    /// Where it goes to.
    pub destination: Mac,
    /// Its VLAN; 0 where the switch has none.
    pub vlan: u16,
}

/// How frames leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The port.
    pub port: u16,
    /// When the destination expires if no frame comes from it; [`Instant::NEVER`]: a static entry.
    pub until: Instant,
}

impl Snapshot {
    /// The addresses of a frame; `None` if the frame is dropped because of them, or goes to a group.
    #[must_use]
    pub fn stations(&self, arrival: &Arrival) -> Option<Stations> {
        let vlan = vlan_of(self, arrival).ok()?;
        let (source, destination) = (mac_of(arrival.source), mac_of(arrival.destination));
        (!is_group(arrival.destination)).then_some(Stations { source, destination, vlan })
    }
}

impl Shared {
    /// The one port by which all frames with this frame's addresses and tag leave, unchanged and without a mirror copy.
    /// Given only if there is nothing to learn from them: the source is known on the port that the frame came in by, or
    /// has a static entry.
    #[must_use]
    pub fn way(
        &self,
        snapshot: &Snapshot,
        now: Instant,
        arrival: &Arrival,
        stations: &Stations,
    ) -> Option<Way> {
        let vlan = stations.vlan;
        let place = |mac| self.table.place(number_of(mac), vlan);
        let (source, destination) = (place(stations.source), place(stations.destination));
        if snapshot.mirror_ingress(arrival.port).is_some()
            || !self.table.heard(&source, arrival.port, now, now, snapshot.ageing)
        {
            return None;
        }
        let port = self.table.lookup(&destination, crate::learning::table::tick_of(now), snapshot.ageing)?;
        let member = snapshot.member(port, vlan)?;
        let tagged = Tagged { tag: arrival.tag, vlan };
        let is_plain = port != arrival.port
            && member.mirror_egress == NO_PORT
            && tagged.towards(member.untagged) == Tagging::Keep;
        let until = self.table.known_until(&destination, port, now, snapshot.ageing)?;
        is_plain.then_some(Way { port, until })
    }

    /// Whether nothing is learned from frames that come in by a port, as it is one of a loop.
    #[must_use]
    pub fn is_blocked(&self, port: u16, now: Instant) -> bool {
        self.guard.is_blocked(port, now)
    }

    /// Notes that frames which no worker has seen came from an address, the last one at this time. Returns whether the
    /// address is still known there. If not, its frames must go to the workers, which learn where it is.
    #[must_use]
    pub fn heard(
        &self,
        snapshot: &Snapshot,
        (mac, vlan): (Mac, u16),
        port: u16,
        at: Instant,
        now: Instant,
    ) -> bool {
        if self.is_blocked(port, now) {
            return true;
        }
        let place = self.table.place(number_of(mac), vlan);
        self.table.heard(&place, port, at, now, snapshot.ageing)
    }

    /// Until when an address is known to be on a port, as in [`Way`]; `None`: it is not known to be there.
    #[must_use]
    pub fn known_until(
        &self,
        snapshot: &Snapshot,
        (mac, vlan): (Mac, u16),
        port: u16,
        now: Instant,
    ) -> Option<Instant> {
        let place = self.table.place(number_of(mac), vlan);
        self.table.known_until(&place, port, now, snapshot.ageing)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
