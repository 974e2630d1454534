//! Changes of a frame's headers (OpenFlow 1.3.5, 5.12 and 7.2.5).
//!
//! Checksums are updated by the change of the bytes that they cover (RFC 1624), so one that was wrong stays wrong. A
//! checksum that was left to hardware holds only the sum of the pseudo-header, so only changes of that are applied. An
//! action on a header that the frame does not have does nothing.

mod checksum;
mod field;
mod tags;
mod ttl;

use twinpath_openflow_wire::Action;

use crate::openflow::pipeline::packet::Packet;

pub(crate) use self::field::set_dscp;

/// Why a frame goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CannotRewrite {
    /// Its TTL has run out.
    InvalidTtl,
    /// There is no room for another header.
    NoRoom,
}

/// Does an action that changes the frame. Others do nothing here.
pub(crate) fn rewrite(packet: &mut Packet, action: &Action) -> Result<(), CannotRewrite> {
    match *action {
        Action::SetField { field, value } => field::set(packet, field, value),
        Action::PushVlan(ethertype) => return tags::push_vlan(packet, ethertype),
        Action::PopVlan => tags::pop_vlan(packet),
        Action::PushMpls(ethertype) => return tags::push_mpls(packet, ethertype),
        Action::PopMpls(ethertype) => tags::pop_mpls(packet, ethertype),
        Action::PushPbb(ethertype) => return tags::push_pbb(packet, ethertype),
        Action::PopPbb => tags::pop_pbb(packet),
        Action::SetMplsTtl(to) => ttl::set_mpls(packet, to),
        Action::SetNwTtl(to) => ttl::set_nw(packet, to),
        Action::DecMplsTtl => return ttl::decrement_mpls(packet),
        Action::DecNwTtl => return ttl::decrement_nw(packet),
        Action::CopyTtlOut => ttl::copy_out(packet),
        Action::CopyTtlIn => ttl::copy_in(packet),
        Action::Output { .. } | Action::Group(_) | Action::SetQueue(_) | Action::Experimenter { .. } => {}
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
