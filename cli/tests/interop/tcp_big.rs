//! Tests of TCP on the fast path with peers whose kernel makes segments of more than 64 KiB ("BIG TCP": over IPv6 with a jumbo
//! option, over IPv4 with a length of 0 in the header). No frame of a worker holds such a segment.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, recv};
use twinpath_netlink::route::LinkChange;
use twinpath_netlink::{Netlink, Protocol};
use twinpath_sys::{Namespace, PacketSocket};

use crate::rig::{Rig, SERVER, SERVER_V6, link, until};
use crate::root_or_skip;
use crate::tcp::{Capture, FAST, connect, no_reset, service};

/// How long segments may be.
const BIG: u32 = 200_000;
/// The longest one without it.
const USUAL_MAX: usize = 65_536 + 14;
/// linux/if_link.h: IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE.
const SIZES: [u16; 4] = [41, 58, 63, 64];

/// Allows an interface such segments, made here and gathered here; whether this kernel knows them.
fn allow(namespace: &Namespace, name: &str) -> bool {
    let change = || {
        let netlink = Netlink::open(Protocol::Route)?;
        let allowing = SIZES
            .into_iter()
            .fold(LinkChange::named(name), |change, kind| change.with(kind, BIG.to_ne_bytes()));
        allowing.change(&netlink)
    };
    namespace.run(change).expect("entered").is_ok()
}

/// Looks at the lengths of the frames of one type that arrive at the server.
struct Longest {
    ends: Arc<AtomicBool>,
    longest: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Longest {
    fn of(rig: &Rig, ethertype: u16) -> Self {
        let (ends, longest) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let (ifindex, _) = link(&rig.server, "vs");
        let socket = rig.server.run(|| PacketSocket::open(ifindex, ethertype)).unwrap().unwrap();
        // On a busy machine nobody reads for a while.
        set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
        let (told, stop) = (Arc::clone(&longest), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let patience = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while !stop.load(Ordering::Relaxed) {
                let ready = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&patience)).unwrap();
                if ready > 0 {
                    // The kernel says how long it was, whatever fits.
                    let (_, len) = recv(&socket, &mut [0_u8; 64][..], RecvFlags::TRUNC).unwrap();
                    told.fetch_max(len, Ordering::Relaxed);
                }
            }
        });
        Self { ends, longest, thread }
    }

    fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.longest.load(Ordering::Relaxed)
    }
}

/// Sends so many bytes over a new connection, which all come back.
fn echoes_much(rig: &Rig, server: &str, len: u32) {
    let mut reads = connect(rig, server);
    let text: Arc<Vec<u8>> = Arc::new((0..len).map(|at| (at * 7 + at / 251) as u8).collect());
    let (said, mut writes) = (Arc::clone(&text), reads.try_clone().unwrap());
    let writer = std::thread::spawn(move || {
        said.chunks(1 << 20).for_each(|part| writes.write_all(part).unwrap());
        writes.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    reads.read_to_end(&mut heard).unwrap();
    writer.join().unwrap();
    assert!(heard == *text, "{server}: {} bytes", heard.len());
}

/// What became of a connection over each family.
struct Served {
    fast_accepted: u64,
    accepted: u64,
    /// Why they were on their path.
    why: String,
    /// The longest frame that came.
    longest: usize,
}

/// Asks by a connection over each family; there is no reset.
fn served(rig: &Rig, len: u32) -> Served {
    let server = rig.serve(&FAST);
    let capture = Capture::of(rig);
    let lengths = [(SERVER, 0x0800), (SERVER_V6, 0x86dd)].map(|(address, ethertype)| {
        let longest = Longest::of(rig, ethertype);
        echoes_much(rig, address, len);
        longest.end()
    });
    until("they have ended", || service(&server, "connections") == 0);
    assert_eq!((service(&server, "fast_resets"), service(&server, "fast_moved")), (0, 0));
    let served = Served {
        fast_accepted: service(&server, "fast_accepted"),
        accepted: service(&server, "accepted"),
        why: server.claim("tcp port")["why"].to_string(),
        longest: lengths.into_iter().max().unwrap_or_default(),
    };
    no_reset(rig, capture);
    assert_eq!(server.interrupt(), Some(0));
    served
}

#[test]
fn peers_with_segments_beyond_64_kib_lose_no_byte_and_are_the_kernels_where_it_gathers_such_ones() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    if !allow(&rig.client, "vc") {
        return twinpath_test_rig::skip("this kernel makes no segments beyond 64 KiB");
    }
    // Nothing here tells of such a peer. What is too long is lost on the fast path, and sent again in shorter segments.
    let unknown = served(&rig, 1 << 20);
    assert_eq!((unknown.fast_accepted, unknown.accepted), (2, 2), "{}", unknown.why);
    assert!(allow(&rig.server, "vs"));
    let known = served(&rig, 4 << 20);
    assert_eq!((known.fast_accepted, known.accepted), (0, 2), "{}", known.why);
    assert!(known.why.contains("64 KiB"), "{}", known.why);
    assert!(known.longest > USUAL_MAX, "{}", known.longest);
}
