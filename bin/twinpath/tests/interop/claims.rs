//! What is claimed, and that nothing else is.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_sys::PacketSocket;

use crate::rig::{Rig, until};
use crate::root_or_skip;

/// For local experiments (IEEE 802, Local Experimental EtherType 1).
const ETHERTYPE: u16 = 0x88b5;

fn frame(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

/// The next frame, if one comes within that time.
fn next(socket: &PacketSocket, millis: i64) -> Option<Vec<u8>> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    if poll(&mut fds, Some(&timeout)).unwrap() == 0 {
        return None;
    }
    let mut buffer = vec![0; 4096];
    let len = socket.receive(&mut buffer).unwrap();
    buffer.truncate(len);
    Some(buffer)
}

#[test]
fn frames_of_the_type_are_reflected_and_no_others() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::new();
        let server = rig.start(&["reflect", "--on", "vs", "--ethertype", "0x88b5", "--path", path]);
        let socket = rig.client_frames(ETHERTYPE);
        let (client_mac, server_mac) = rig.macs();
        for number in 0..200usize {
            let payload: Vec<u8> = (0..46 + number * 7).map(|at| (at ^ number) as u8).collect();
            socket.send(&frame(server_mac, client_mac, ETHERTYPE, &payload)).unwrap();
            let back = next(&socket, 20_000).expect("reflected");
            assert_eq!(back, frame(client_mac, server_mac, ETHERTYPE, &payload), "{path} {number}");
        }
        assert_eq!(server.worker("frames_in"), 200, "{path}");
        // Another type, another host, a group, a sender that is a group, no sender: not ours, or not to be answered.
        let other = rig.client_frames(ETHERTYPE + 1);
        other.send(&frame(server_mac, client_mac, ETHERTYPE + 1, &[1; 46])).unwrap();
        let stranger = [2, 0xfe, 0, 0, 0, 9];
        for (destination, source) in [
            (stranger, client_mac),
            ([0xff; 6], client_mac),
            (server_mac, [3, 0, 0, 0, 0, 1]),
            (server_mac, server_mac),
        ] {
            socket.send(&frame(destination, source, ETHERTYPE, &[2; 46])).unwrap();
        }
        until("what must not be answered was seen", || server.drops("martian_source") == 2);
        assert_eq!((next(&other, 50), next(&socket, 50)), (None, None), "{path}");
        assert_eq!(server.worker("frames_in"), 202, "{path}");
        let claims = server.show("rules")["claims"].clone();
        assert!(claims[0].as_str().unwrap().contains("ethertype 0x88b5"), "{claims}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_type_without_a_fast_path_is_refused() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let refused = |arguments: &[&str]| rig.try_start(&[&["reflect"], arguments].concat()).err().unwrap();
    let said = refused(&["--on", "vs", "--ethertype", "0x88b5", "--path", "kernel"]);
    assert!(said.contains("0x88b5") && said.contains("fast path only"), "{said}");
    let said = refused(&["--on", "lo", "--ethertype", "0x88b5"]);
    assert!(said.contains("kernel path") && said.contains("lo"), "{said}");
    assert!(refused(&["--on", "vs", "--ethertype", "0x0800"]).contains("IP is claimed by port"));
    assert!(refused(&["--on", "vs", "--ethertype", "nonsense"]).contains("write 0x88b5"));
    assert!(refused(&["--on", "vs"]).contains("--ethertype"));
}
