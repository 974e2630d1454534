//! The learning bridge (IEEE 802.1Q, 8.6): each step as a function of snapshot, shared state, time and frame.

use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::learning::arrival::{Arrival, BROADCAST, PAUSE, is_group, is_reserved};
use crate::learning::outputs::{Judgement, Outputs, Tagged};
use crate::learning::shared::Shared;
use crate::learning::snapshot::{NO_PORT, NO_VLAN, Port, Snapshot};
use crate::learning::storm::Kind;
use crate::learning::table::{Learned, Place, tick_of};
use crate::learning::vlan::VLAN_DEFAULT;
use twinpath_inspect::SwitchCounters;

/// A frame whose VLAN is known, and the places of its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classified {
    /// Its VLAN, or why it is dropped.
    pub(crate) vlan: Result<u16, Reason>,
    pub(crate) source: Place,
    pub(crate) destination: Place,
}

impl Classified {
    pub(crate) const NONE: Self = Self::dropped(Reason::Truncated);

    const fn dropped(reason: Reason) -> Self {
        const NOWHERE: Place = Place { upper: 0, buckets: [0, 1] };
        Self { vlan: Err(reason), source: NOWHERE, destination: NOWHERE }
    }
}

/// Finds the VLAN of a frame, and where its addresses are in the table.
#[inline]
pub(crate) fn classify(snapshot: &Snapshot, shared: &Shared, arrival: &Arrival) -> Classified {
    match vlan_of(snapshot, arrival) {
        Err(reason) => Classified::dropped(reason),
        Ok(vlan) => Classified {
            vlan: Ok(vlan),
            source: shared.table.place(arrival.source, vlan),
            destination: shared.table.place(arrival.destination, vlan),
        },
    }
}

/// The VLAN of a frame, or why it is dropped and not learned from. A bridge also learns the sender of a frame that it
/// does not forward. The exception is flow control, which comes from the other end of the link (`br_handle_frame`,
/// net/bridge/br_input.c).
#[inline]
pub(crate) fn vlan_of(snapshot: &Snapshot, arrival: &Arrival) -> Result<u16, Reason> {
    let vlan = vlan_by_port(snapshot, arrival)?;
    if arrival.destination == PAUSE {
        return Err(Reason::ReservedAddress);
    }
    Ok(vlan)
}

/// The same, whatever its destination.
#[inline]
fn vlan_by_port(snapshot: &Snapshot, arrival: &Arrival) -> Result<u16, Reason> {
    if arrival.runt {
        return Err(Reason::Truncated);
    }
    let port = snapshot.port(arrival.port);
    if port.is_none() && arrival.port != NO_PORT {
        return Err(Reason::PortDown);
    }
    if is_group(arrival.source) || arrival.source == 0 {
        return Err(Reason::MartianSource);
    }
    let Some(port) = port else { return Ok(vlan_without_port(snapshot, arrival)) };
    let vlan = if snapshot.config().vlans { ingress(port, arrival)? } else { NO_VLAN };
    if vlan == NO_VLAN && !snapshot.takes_part(arrival.port) {
        return Err(Reason::VlanNotMember);
    }
    Ok(vlan)
}

/// The VLAN of a frame that came by no port: that of its tag, or the default one.
#[cold]
fn vlan_without_port(snapshot: &Snapshot, arrival: &Arrival) -> u16 {
    match arrival.tagged_vlan() {
        _ if !snapshot.config().vlans => NO_VLAN,
        0 => VLAN_DEFAULT,
        vlan => vlan,
    }
}

/// The VLAN of a frame by its port and tag (IEEE 802.1Q, 6.9.1 and 8.6.2).
#[inline]
fn ingress(port: &Port, arrival: &Arrival) -> Result<u16, Reason> {
    match arrival.tagged_vlan() {
        // A tag behind a priority tag would become the frame's own tag once the priority tag is removed.
        0 if arrival.tagged_twice => Err(Reason::VlanTag),
        0 if port.untagged != NO_VLAN => Ok(port.untagged),
        0 => Err(Reason::VlanNotMember),
        _ if !port.takes_tags => Err(Reason::VlanTag),
        vlan if port.is_member(vlan) => Ok(vlan),
        _ => Err(Reason::VlanNotMember),
    }
}

/// Learns the source of a frame that is not dropped for its VLAN or address.
#[inline]
pub(crate) fn learn(
    snapshot: &Snapshot,
    shared: &Shared,
    now: Instant,
    arrival: &Arrival,
    classified: &Classified,
) -> Option<Learned> {
    let port = snapshot.port(arrival.port).filter(|_| classified.vlan.is_ok())?;
    if shared.guard.is_blocked(arrival.port, now) {
        return None;
    }
    let rules = (tick_of(now), snapshot.ageing);
    let gone = |mac, vlan, from| shared.moved(mac, vlan, from);
    Some(shared.table.learn(&classified.source, arrival.port, rules, port.mac_limit, gone))
}

/// Finds where a frame goes.
#[inline]
pub(crate) fn forward<'a>(
    snapshot: &'a Snapshot,
    shared: &'a Shared,
    counters: &SwitchCounters,
    now: Instant,
    arrival: &Arrival,
    classified: &Classified,
) -> Judgement<'a> {
    let none = outputs_of(snapshot, arrival);
    let vlan = match classified.vlan {
        Ok(vlan) => vlan,
        Err(reason) => return Judgement { dropped: Some(reason), outputs: none },
    };
    if !is_group(arrival.destination) {
        let to = shared.table.lookup(&classified.destination, tick_of(now), snapshot.ageing);
        if to == Some(arrival.port) {
            return Judgement { dropped: Some(Reason::SamePort), outputs: none };
        }
        // A port that has left the VLAN, or the switch, is no longer where the address is.
        if let Some(member) = to.and_then(|to| snapshot.member(to, vlan)) {
            let tagged = Tagged { tag: arrival.tag, vlan };
            return Judgement { dropped: None, outputs: none.single(tagged, member) };
        }
    } else if is_reserved(arrival.destination) {
        return Judgement { dropped: Some(Reason::ReservedAddress), outputs: none };
    }
    spread(snapshot, shared, counters, now, arrival, vlan)
}

/// Floods a frame, whatever its destination.
pub(crate) fn flood<'a>(
    snapshot: &'a Snapshot,
    shared: &'a Shared,
    counters: &SwitchCounters,
    now: Instant,
    arrival: &Arrival,
) -> Judgement<'a> {
    match vlan_by_port(snapshot, arrival) {
        Ok(vlan) => spread(snapshot, shared, counters, now, arrival, vlan),
        Err(reason) => Judgement { dropped: Some(reason), outputs: outputs_of(snapshot, arrival) },
    }
}

/// No output but a mirror's.
#[inline]
pub(crate) fn outputs_of<'a>(snapshot: &Snapshot, arrival: &Arrival) -> Outputs<'a> {
    let mirror_ingress = snapshot.port(arrival.port).map_or(NO_PORT, |port| port.mirror_ingress);
    Outputs::none(arrival.port, mirror_ingress)
}

/// Sends a frame to all other ports of its VLAN.
#[inline]
fn spread<'a>(
    snapshot: &'a Snapshot,
    shared: &'a Shared,
    counters: &SwitchCounters,
    now: Instant,
    arrival: &Arrival,
    vlan: u16,
) -> Judgement<'a> {
    let kind = if !is_group(arrival.destination) {
        Kind::Unknown
    } else if arrival.destination == BROADCAST {
        Kind::Broadcast
    } else {
        Kind::Multicast
    };
    let (none, flood) = (outputs_of(snapshot, arrival), snapshot.flood(vlan));
    let members = if kind == Kind::Unknown { &flood.unknown } else { &flood.group };
    let outputs = none.clone().flood(Tagged { tag: arrival.tag, vlan }, members, shared, now);
    if let Err(reason) = may_flood(snapshot, shared, now, arrival, kind, &outputs) {
        return Judgement { dropped: Some(reason), outputs: none };
    }
    match kind {
        Kind::Broadcast => counters.flooded_broadcast.add(1),
        Kind::Unknown => counters.flooded_unknown.add(1),
        Kind::Multicast => counters.flooded_multicast.add(1),
    }
    Judgement { dropped: None, outputs }
}

/// Whether a port may have a frame flooded now.
#[inline]
fn may_flood(
    snapshot: &Snapshot,
    shared: &Shared,
    now: Instant,
    arrival: &Arrival,
    kind: Kind,
    outputs: &Outputs<'_>,
) -> Result<(), Reason> {
    if shared.guard.is_blocked(arrival.port, now) {
        return Err(Reason::Looped);
    }
    // Checked first, so that a frame that goes nowhere takes no token.
    if !outputs.has_any() {
        return Err(Reason::NoOutputPort);
    }
    let limit = snapshot.port(arrival.port).and_then(|port| port.storm[kind as usize]);
    let bucket = limit.and_then(|limit| Some((limit, shared.storm(arrival.port, kind)?)));
    match bucket {
        Some((limit, bucket)) if !bucket.allows(limit, now, arrival.packets) => Err(Reason::StormLimit),
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
