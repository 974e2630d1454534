//! The other ends of cables in the same namespace, where marks are not removed on the way.
#![allow(unsafe_code, reason = "the kernel takes a filter by a pointer")]

use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::event::Timespec;
use twinpath_sys::PacketSocket;

use super::frames::{Far, cables, partial, tcp};
use super::*;

/// A packet socket that receives the frames of an interface that have a mark.
fn of_marked(namespace: &Namespace, name: &str) -> PacketSocket {
    const ALL: u16 = 3;
    let ifindex = ifindex(namespace, name);
    let socket = namespace.run(|| PacketSocket::open(ifindex, ALL)).unwrap().unwrap();
    let statement = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mark = (libc::SKF_AD_OFF + libc::SKF_AD_MARK).cast_unsigned();
    let mut steps = [
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, mark),
        statement((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 1, 0),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, u32::MAX),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: pointer and length describe `program`, and that the steps, which live across the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    socket
}

fn is_readable(socket: &PacketSocket, timeout_s: i64) -> bool {
    let timeout = Timespec { tv_sec: timeout_s, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn frames_reach_other_interfaces_of_the_namespace_without_a_mark() {
    if !can_run() {
        return;
    }
    let namespace = cables(2);
    let mut switch = Switch::new(&namespace, &["near0", "near1"], Unserved::Dropped, Duration::ZERO);
    let (mut far, marked) = (Far::new(&namespace, "far0"), of_marked(&namespace, "far0"));
    // Through either of the two sending sockets.
    for is_partial in [false, true] {
        let sent = tcp(500);
        let mut frame = switch.pool.take().unwrap();
        frame.copy_from(&sent).unwrap();
        if is_partial {
            partial(frame.meta_mut());
        }
        switch.send(0, frame);
        let came = far.next();
        assert_eq!(bytes(&came).len(), sent.len());
        assert!(!is_readable(&marked, 0), "partial: {is_partial}");
    }
    // A mark would be seen there.
    let listening = of_marked(&namespace, "near1");
    let index = ifindex(&namespace, "far1");
    let other = namespace.run(|| PacketSocket::open(index, 0)).unwrap().unwrap();
    other.set_mark(MARK).unwrap();
    other.send(&tcp(500)).unwrap();
    assert!(is_readable(&listening, 10));
}
