//! Tests of XDP: the queue's socket, and the program that holds the hook.

use std::os::fd::AsFd;

use aya::programs::{TestRun, TestRunOptions, Xdp};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_bpf::{
    Attachment, Path, QUEUES_MAX, SteerError, Steering, TcAttach, XdpMode, probe, xdp_holder,
};
use twinpath_claims::{Claim, corpus};
use twinpath_wire::Protocol;

use crate::lab::{Lab, alone};
use crate::table_of;

#[test]
fn a_claimed_frame_goes_to_the_socket_of_its_queue_and_else_to_the_kernel() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let _alone = alone();
    const XDP_PASS: u32 = 2;
    const XDP_REDIRECT: u32 = 4;
    let corpus = corpus::all().unwrap();
    let frame_of = |name: &str| corpus.cases.iter().find(|case| case.name == name).unwrap().frame.clone();
    let (claimed, other) = (frame_of("ipv4_udp_claimed"), frame_of("ipv4_udp_unclaimed_port"));
    let mut steering = Steering::load(Path::Xdp).unwrap();
    steering.apply(&corpus.tables["basic"]).unwrap();
    let run = |steering: &Steering, frame: &[u8]| {
        let program: &Xdp = steering.program("twinpath_xdp").unwrap().try_into().unwrap();
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::default() };
        program.test_run(options).unwrap().return_value
    };
    assert_eq!(run(&steering, &claimed), XDP_PASS);
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    // A test run arrives on queue 0.
    steering.set_queue(1, socket.as_fd()).unwrap();
    assert_eq!(run(&steering, &claimed), XDP_PASS);
    steering.set_queue(0, socket.as_fd()).unwrap();
    assert_eq!(run(&steering, &claimed), XDP_REDIRECT);
    assert_eq!(run(&steering, &other), XDP_PASS);
    steering.clear_queue(0).unwrap();
    steering.clear_queue(0).unwrap();
    assert_eq!(run(&steering, &claimed), XDP_PASS);
    // When a socket closes, its queue's frames pass to the kernel.
    steering.set_queue(0, socket.as_fd()).unwrap();
    drop(socket);
    assert_eq!(run(&steering, &claimed), XDP_PASS);
    let counters = steering.counters().unwrap();
    assert!(counters.contains(&("claimed", 1)) && counters.contains(&("no_socket", 4)), "{counters:?}");
}

#[test]
fn another_program_on_the_hook_is_named_and_stays() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    for (mode, attachment) in [(XdpMode::Native, Attachment::Native), (XdpMode::Generic, Attachment::Generic)]
    {
        let mut holder = Steering::load(Path::Xdp).unwrap();
        assert_eq!(xdp_holder(lab.ifindex).unwrap(), None);
        holder.attach_xdp(lab.ifindex, mode).unwrap();
        let mut late = Steering::load(Path::Xdp).unwrap();
        late.apply(&table_of(&[Claim::port(Protocol::Udp, 7)])).unwrap();
        for asked in [XdpMode::Native, XdpMode::Generic] {
            let error = late.attach_xdp(lab.ifindex, asked).unwrap_err();
            let SteerError::XdpHeld(named) = &error else { panic!("{error}") };
            assert_eq!(named.name.as_deref(), Some("twinpath_xdp"));
            assert_eq!(named.mode, attachment);
            assert!(named.tag.is_some() && named.program_id > 0);
            assert!(named.processes.iter().any(|(pid, _)| *pid == std::process::id()), "{error}");
        }
        drop(holder);
        assert_eq!(xdp_holder(lab.ifindex).unwrap(), None);
        late.attach_xdp(lab.ifindex, mode).unwrap();
        late.detach();
        assert_eq!(xdp_holder(lab.ifindex).unwrap(), None);
    }
}

#[test]
fn each_misuse_has_its_own_error() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let probe = probe();
    assert_eq!((probe.packet, probe.xdp), (Ok(()), Ok(())));
    let mut packet = Steering::load(Path::Packet).unwrap();
    let mut xdp = Steering::load(Path::Xdp).unwrap();
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    assert!(matches!(packet.set_queue(0, socket.as_fd()), Err(SteerError::OtherPath(_))));
    assert!(matches!(packet.attach_xdp(lab.ifindex, XdpMode::Generic), Err(SteerError::OtherPath(_))));
    assert!(matches!(xdp.attach_tc(lab.ifindex, TcAttach::Tcx), Err(SteerError::OtherPath(_))));
    assert!(matches!(xdp.attach_socket_filter(0, socket.as_fd()), Err(SteerError::OtherPath(_))));
    assert!(matches!(xdp.set_queue(QUEUES_MAX, socket.as_fd()), Err(SteerError::Queue { .. })));
    for how in [TcAttach::Tcx, TcAttach::Clsact] {
        assert!(matches!(packet.attach_tc(9999, how), Err(SteerError::NoInterface { ifindex: 9999, .. })));
    }
    assert!(
        matches!(xdp_holder(9999), Err(SteerError::Query(error)) if error.to_string().contains("interface 9999"))
    );
    assert!(matches!(xdp.attach_xdp(9999, XdpMode::Native), Err(SteerError::Xdp { .. })));
}
