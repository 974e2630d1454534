//! Tests classic filters beside foreign ones, and the life of the qdisc that holds them.

use twinpath_bpf::{Kept, Path, SteerError, Steering, TcAttach, leftovers, tidy};
use twinpath_claims::Claim;
use twinpath_wire::Protocol;

use crate::foreign::ForeignProgram;
use crate::lab::{Lab, NEAR, PacketSocket, near_udp, take, tc};
use crate::{attached, counter, fence, packet_path};

const CLSACT: TcAttach = TcAttach::Clsact;

fn claim(lab: &Lab) -> (Steering, PacketSocket) {
    packet_path(lab, CLSACT, &[Claim::port(Protocol::Udp, 7)])
}

fn discipline() -> bool {
    tc(&["qdisc", "show", "dev", NEAR]).contains("clsact")
}

/// Adds a foreign filter: classic bytecode that matches nothing.
fn foreign(priority: &str, protocol: &str) {
    let place = ["filter", "add", "dev", NEAR, "ingress", "prio", priority, "protocol", protocol];
    tc(&[&place[..], &["bpf", "bytecode", "1,6 0 0 0", "flowid", "1:1"]].concat());
}

#[test]
fn a_foreign_discipline_and_its_filters_stay() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    tc(&["qdisc", "add", "dev", NEAR, "clsact"]);
    drop(claim(&lab));
    assert!(discipline(), "it was there before us");
    foreign("7", "all");
    let (steering, socket) = claim(&lab);
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    sender.send_to(b"ours", "10.0.0.2:7").unwrap();
    fence(&sender, 99);
    assert!(socket.take().is_some());
    assert_eq!((take(&kernel), counter(&steering, "withheld_from_kernel")), (None, 1));
    drop(steering);
    let left = tc(&["filter", "show", "dev", NEAR, "ingress"]);
    assert!(left.contains("pref 7") && !left.contains("twinpath"), "{left}");
    assert!(discipline());
}

#[test]
fn a_discipline_of_ours_goes_with_its_last_filter() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let (first, second) = (claim(&lab), claim(&lab));
    drop(first);
    assert!(discipline(), "the second one needs it");
    drop(second);
    assert!(!discipline());
    let ours = claim(&lab);
    foreign("7", "all");
    drop(ours);
    assert!(discipline(), "somebody else uses it now");
    assert_eq!(attached(CLSACT), 1, "theirs alone");
}

#[test]
fn a_filter_removed_by_others_is_attached_again() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let (mut steering, socket) = claim(&lab);
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    tc(&["qdisc", "del", "dev", NEAR, "clsact"]);
    assert_eq!(steering.keep_first(lab.ifindex).unwrap(), Kept::PutBack);
    assert_eq!(steering.keep_first(lab.ifindex).unwrap(), Kept::First);
    sender.send_to(b"once", "10.0.0.2:7").unwrap();
    fence(&sender, 99);
    assert!(socket.take().is_some());
    assert_eq!((take(&kernel), attached(CLSACT)), (None, 1));
    drop(steering);
    assert!(!discipline());
}

#[test]
fn a_program_that_cannot_be_overtaken_is_named_and_nothing_is_attached() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let refused = || Steering::load(Path::Packet).unwrap().attach_tc(lab.ifindex, CLSACT).unwrap_err();
    tc(&["qdisc", "add", "dev", NEAR, "clsact"]);
    // Within one priority all filters have the same kind and protocol.
    foreign("1", "ip");
    let error = refused();
    assert!(matches!(&error, SteerError::NotFirst { who, .. } if who.contains("priority 1")), "{error}");
    assert_eq!(
        (tc(&["filter", "show", "dev", NEAR, "ingress"]).contains("twinpath"), discipline()),
        (false, true)
    );
    tc(&["filter", "del", "dev", NEAR, "ingress", "prio", "1"]);
    if TcAttach::here() == TcAttach::Tcx {
        let foreign = ForeignProgram::in_front("foreign_pass", TcAttach::Tcx);
        let error = refused();
        assert!(
            matches!(&error, SteerError::NotFirst { who, .. } if who.contains("foreign_pass")),
            "{error}"
        );
        foreign.detach();
    }
    drop(claim(&lab));
}

#[test]
fn filters_of_a_living_process_are_no_leftovers() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let ours = claim(&lab);
    assert_eq!((leftovers(None).unwrap(), tidy(None).unwrap()), (Vec::new(), Vec::new()));
    assert_eq!(attached(CLSACT), 1);
    // The name tells other tools to whom the filter belongs.
    let listed = tc(&["filter", "show", "dev", NEAR, "ingress"]);
    let words = format!(":{}:discipline", std::process::id());
    assert!(listed.contains("twinpath_ingress:") && listed.contains(&words), "{listed}");
    drop(ours);
}
