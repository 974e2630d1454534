//! Tests with foreign programs at tc ingress.

use aya::programs::tc::{NlOptions, SchedClassifierLinkId, TcAttachOptions};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, include_bytes_aligned};
use twinpath_bpf::{Kept, TcAttach};
use twinpath_claims::Claim;
use twinpath_wire::Protocol;

use crate::lab::{NEAR, near_udp, take};
use crate::{attached, counter, each_way, fence, packet_path};

static FOREIGN: &[u8] = include_bytes_aligned!("../../object/foreign.o");

/// A foreign program that runs before all others.
pub(crate) struct ForeignProgram {
    object: Ebpf,
    name: &'static str,
    link: Option<SchedClassifierLinkId>,
}

impl ForeignProgram {
    pub(crate) fn in_front(name: &'static str, how: TcAttach) -> Self {
        let mut object = Ebpf::load(FOREIGN).unwrap();
        let program: &mut SchedClassifier = object.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        let options = match how {
            TcAttach::Tcx => TcAttachOptions::TcxOrder(LinkOrder::first()),
            // The newest filter of one priority runs first.
            TcAttach::Clsact => TcAttachOptions::Netlink(NlOptions { priority: 1, ..NlOptions::default() }),
        };
        let link = program.attach_with_options(NEAR, TcAttachType::Ingress, options).unwrap();
        Self { object, name, link: Some(link) }
    }

    pub(crate) fn detach(mut self) {
        let program: &mut SchedClassifier = self.object.program_mut(self.name).unwrap().try_into().unwrap();
        program.detach(self.link.take().unwrap()).unwrap();
    }
}

#[test]
fn a_program_that_ends_the_chain_before_ours_is_overtaken_and_no_frame_is_served_twice() {
    each_way(true, |lab, how| {
        let (mut steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        assert_eq!(steering.keep_first(lab.ifindex).unwrap(), Kept::First);
        let foreign = ForeignProgram::in_front("foreign_pass", how);
        sender.send_to(b"twice", "10.0.0.2:7").unwrap();
        fence(&sender, 99);
        // Running after it means that both get the frame.
        assert!(socket.take().is_some());
        assert_eq!(take(&kernel).unwrap().0, b"twice");
        let kept = steering.keep_first(lab.ifindex).unwrap();
        assert!(matches!(&kept, Kept::Passed(name) if name.contains("foreign_pass")), "{kept:?}");
        assert_eq!(steering.keep_first(lab.ifindex).unwrap(), Kept::First);
        assert_eq!(attached(how), 2, "both are there, ours once");
        sender.send_to(b"once", "10.0.0.2:7").unwrap();
        fence(&sender, 98);
        assert!(socket.take().is_some());
        assert_eq!(take(&kernel), None);
        foreign.detach();
        sender.send_to(b"alone", "10.0.0.2:7").unwrap();
        fence(&sender, 97);
        assert!(socket.take().is_some());
        assert_eq!((take(&kernel), attached(how)), (None, 1));
    });
}

#[test]
fn a_frame_dropped_by_a_program_in_front_still_reaches_the_socket_and_leaves_no_stale_note() {
    each_way(true, |lab, how| {
        let (steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        let foreign = ForeignProgram::in_front("foreign_drop", how);
        sender.send_to(b"claimed", "10.0.0.2:7").unwrap();
        sender.send_to(b"not claimed", "10.0.0.2:8").unwrap();
        foreign.detach();
        // A frame that equals the noted one in every byte would be the worst case for a stale note: it is decided
        // anew nevertheless.
        sender.send_to(b"claimed", "10.0.0.2:7").unwrap();
        fence(&sender, 99);
        let taken = std::iter::from_fn(|| socket.take()).count();
        assert_eq!((taken, take(&kernel)), (2, None));
        assert_eq!((counter(&steering, "claimed"), counter(&steering, "withheld_from_kernel")), (2, 1));
        assert_eq!(counter(&steering, "note_of_other_frame"), 0);
    });
}
