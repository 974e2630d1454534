//! Where a frame goes: the result of judging it.

use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::learning::shared::Shared;
use crate::learning::snapshot::{Member, NO_PORT};

/// What to do with a frame's outer tag before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// Nothing: it leaves with the tag that it came with, or without one.
    Keep,
    /// The outer tag is taken off.
    Strip,
    /// It leaves with this 802.1Q tag (tag control information, host order), which replaces the outer one if there is one.
    Put(u16),
}

/// One port that a frame is sent through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The number of the port.
    pub port: u16,
    /// What to do with the tag.
    pub tagging: Tagging,
    /// Whether it is a copy for a mirror.
    pub mirrored: bool,
}

/// What becomes of a frame.
#[derive(Clone, Debug)]
pub struct Judgement<'a> {
    /// Why it is dropped; `None`: it is forwarded. A dropped frame may still have a copy for a mirror among its outputs.
    pub dropped: Option<Reason>,
    /// Where it goes.
    pub outputs: Outputs<'a>,
}

/// The tag that a frame came with, and its VLAN: what decides with which tag it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged {
    /// Tag control information of the outer tag.
    pub(crate) tag: Option<u16>,
    /// The VLAN that the frame is in; [`NO_VLAN`](crate::learning::snapshot::NO_VLAN) for a switch without.
    pub(crate) vlan: u16,
}

impl Tagged {
    /// What to do with the tag if the frame leaves by a port that sends the VLAN `untagged` without one.
    #[inline]
    pub(crate) fn towards(self, untagged: u16) -> Tagging {
        const ID: u16 = 0xfff;
        let leaves_untagged = untagged == self.vlan;
        match self.tag {
            None if leaves_untagged => Tagging::Keep,
            None => Tagging::Put(self.vlan),
            // Without VLANs, tags pass as they are.
            Some(_) if self.vlan == 0 => Tagging::Keep,
            Some(_) if leaves_untagged => Tagging::Strip,
            // A priority tag gets the VLAN.
            Some(control) if control & ID == 0 => Tagging::Put(control | self.vlan),
            Some(_) => Tagging::Keep,
        }
    }
}

/// The ports that a frame is sent through, each once, and then those of mirrors. Bounded by twice the number of ports.
#[derive(Clone, Debug)]
pub struct Outputs<'a> {
    /// The port that the frame came in by.
    from: u16,
    /// The port that gets a copy of it as it came.
    mirror_ingress: u16,
    tagged: Tagged,
    /// The port of a known address.
    single: Option<Member>,
    members: core::slice::Iter<'a, Member>,
    /// A copy of the last output.
    mirror_egress: Option<Output>,
    /// Where to look for ports that the loop guard blocks.
    shared: Option<(&'a Shared, Instant)>,
}

impl<'a> Outputs<'a> {
    /// None, but a copy for a mirror of the port that the frame came in by.
    pub(crate) fn none(from: u16, mirror_ingress: u16) -> Self {
        let tagged = Tagged { tag: None, vlan: 0 };
        Self {
            from,
            mirror_ingress,
            tagged,
            single: None,
            members: [].iter(),
            mirror_egress: None,
            shared: None,
        }
    }

    pub(crate) fn single(mut self, tagged: Tagged, to: Member) -> Self {
        (self.tagged, self.single) = (tagged, Some(to));
        self
    }

    /// All members but the port that the frame came in by, and those that the loop guard blocks.
    pub(crate) fn flood(
        mut self,
        tagged: Tagged,
        members: &'a [Member],
        shared: &'a Shared,
        now: Instant,
    ) -> Self {
        (self.tagged, self.members, self.shared) = (tagged, members.iter(), Some((shared, now)));
        self
    }

    /// Whether the frame goes to the port of a known address.
    #[inline]
    pub(crate) const fn is_to_known_address(&self) -> bool {
        self.single.is_some()
    }

    /// The only port that the frame leaves by, if it leaves as it came.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<u16> {
        let Member { port, untagged, mirror_egress } = self.single?;
        let is_alone = mirror_egress == NO_PORT && self.mirror_ingress == NO_PORT;
        (is_alone && self.tagged.towards(untagged) == Tagging::Keep).then_some(port)
    }

    /// The same without the copy of the frame as it came.
    pub(crate) fn without_ingress_mirror(mut self) -> Self {
        self.mirror_ingress = NO_PORT;
        self
    }

    /// Whether the frame goes anywhere but to mirrors.
    pub(crate) fn has_any(&self) -> bool {
        self.clone().any(|output| !output.mirrored)
    }

    #[inline]
    fn next_member(&mut self) -> Option<Member> {
        let (from, shared) = (self.from, self.shared);
        let blocked = |port| shared.is_some_and(|(shared, now)| shared.guard.is_blocked(port, now));
        self.members.find(|member| member.port != from && !blocked(member.port)).copied()
    }
}

impl Iterator for Outputs<'_> {
    type Item = Output;

    #[inline]
    fn next(&mut self) -> Option<Output> {
        if let Some(copy) = self.mirror_egress.take() {
            return Some(copy);
        }
        if let Some(Member { port, untagged, mirror_egress }) =
            self.single.take().or_else(|| self.next_member())
        {
            let output = Output { port, tagging: self.tagged.towards(untagged), mirrored: false };
            if mirror_egress != NO_PORT {
                self.mirror_egress = Some(Output { port: mirror_egress, mirrored: true, ..output });
            }
            return Some(output);
        }
        // Its own tag is what came, so the copy is not made from one of the others.
        let target = std::mem::replace(&mut self.mirror_ingress, NO_PORT);
        (target != NO_PORT).then_some(Output { port: target, tagging: Tagging::Keep, mirrored: true })
    }
}
