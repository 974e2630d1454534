//! Tests of what is served by which path, each request exactly once.

use std::io::{Read, Write};
use std::net::TcpStream;

use twinpath_bpf::describes_datagrams;
use twinpath_sys::udp_socket::{set_option, set_segment_size};
use twinpath_test_rig::{few_or_all, run};

use crate::rig::{CLIENT, CLIENT_V6, PORT, Rig, SERVER, SERVER_V6, SETUPS, ask, until};
use crate::root_or_skip;

const PATHS: [&str; 3] = ["packet", "xdp", "kernel"];

#[test]
fn both_families_are_served_on_every_path() {
    if !root_or_skip() {
        return;
    }
    for path in PATHS {
        let rig = Rig::of_workers();
        let server = rig.serve(&["--path", path]);
        for (client, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(client, 0);
            for round in 0..20u8 {
                let payload = vec![round; usize::from(round) * 60];
                assert_eq!(ask(&socket, target, PORT, &payload), payload, "{path} {target}");
            }
        }
        if path == "kernel" {
            assert_eq!((server.worker("frames_in"), server.worker("kernel_requests")), (0, 40));
        } else {
            // The first reply to each peer left through the kernel, which knew the route.
            assert_eq!((server.worker("frames_in"), server.worker("kernel_requests")), (40, 0), "{path}");
            until("replies leave by the fast path", || {
                ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"again");
                server.worker("frames_out") > 0
            });
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn fragments_and_local_clients_reach_the_same_service_once() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        let remote = rig.client_udp(CLIENT, 0);
        for (count, len) in [(1, 4_000), (2, 20_000), (3, 65_507)] {
            let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            assert!(ask(&remote, SERVER, PORT, &payload) == payload, "{path}: {len} bytes came back changed");
            assert_eq!(server.worker("kernel_requests"), count, "{path}: once, by the kernel");
        }
        assert_eq!(server.worker("frames_in"), 0, "{path}: no fragment was claimed");
        for local in [SERVER, "127.0.0.1"] {
            let client = rig.server_udp(local, 0);
            assert_eq!(ask(&client, local, PORT, b"local"), b"local", "{path} {local}");
        }
        assert_eq!(server.worker("kernel_requests"), 5, "{path}");
        // No reply came twice.
        remote.set_nonblocking(true).unwrap();
        assert!(remote.recv_from(&mut [0; 16]).is_err());
    }
}

/// Who answers coalesced datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Worker,
    Kernel,
    /// Where the kernel joins datagrams only if no socket of the host has asked for it (`udp_encap_needed_key`, net/ipv4/udp.c).
    Either,
}

/// One call sends 40 datagrams. The peer's kernel passes them on as one frame, or cuts it, and the server's joins them again as it
/// does for a device: to one frame, or to a list, which the worker does not get.
#[test]
fn coalesced_datagrams_are_answered_datagram_by_datagram() {
    if !root_or_skip() {
        return;
    }
    let joins = ["gro", "on", "rx-udp-gro-forwarding", "on"];
    let lists = ["gro", "on", "rx-gro-list", "on"];
    for (cuts, joined, by) in [
        (false, &["gro", "off"][..], By::Worker),
        (true, &["gro", "off"], By::Worker),
        (true, &joins, By::Either),
        (true, &lists, By::Kernel),
    ] {
        let rig = Rig::of_workers();
        run(&rig.client, "ethtool", &["-K", "vc", "tx-udp-segmentation", if cuts { "off" } else { "on" }]);
        run(&rig.server, "ethtool", &[&["-K", "vs"], joined].concat());
        let server = rig.serve(&["--path", "packet", "--mode", "interrupt"]);
        for (client, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(client, 0);
            // The worker has slept, and knows where the peer is.
            until("the worker answers", || {
                let before = server.worker("frames_out");
                ask(&socket, target, PORT, b"first");
                server.worker("frames_out") > before
            });
            let before = server.worker("kernel_requests");
            set_segment_size(&socket, 100).unwrap();
            let sent: Vec<u8> = (0..39 * 100 + 7).map(|at| (at / 100) as u8).collect();
            socket.send_to(&sent, (target, PORT)).unwrap();
            let mut answers: Vec<_> = (0..40)
                .map(|_| {
                    let mut answer = vec![0; 4_096];
                    let (len, _) = socket.recv_from(&mut answer).expect("each datagram is answered");
                    answer.truncate(len);
                    answer
                })
                .collect();
            answers.sort();
            assert_eq!(answers, sent.chunks(100).collect::<Vec<_>>(), "{joined:?}");
            let by_kernel = server.worker("kernel_requests") - before;
            let by = if describes_datagrams() { by } else { By::Kernel };
            let found = if by_kernel == 0 { By::Worker } else { By::Kernel };
            assert!(by == By::Either || by == found, "{joined:?}: {by_kernel} by the kernel");
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// Of linux/socket.h and linux/udp.h.
const SOL_UDP: i32 = 17;
const UDP_GRO: i32 = 104;

/// Replies of one turn to one peer leave as one frame, which the peer's kernel cuts for its sockets, or passes on (`UDP_GRO`).
#[test]
fn replies_that_leave_as_one_frame_reach_each_kind_of_socket_as_they_are() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--path", "packet", "--mode", "interrupt"]);
    for (client, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
        for joins in [false, true] {
            let socket = rig.client_udp(client, 0);
            until("the worker answers", || {
                let before = server.worker("frames_out");
                ask(&socket, target, PORT, b"first");
                server.worker("frames_out") > before
            });
            set_option(&socket, SOL_UDP, UDP_GRO, joins.into()).unwrap();
            set_segment_size(&socket, 100).unwrap();
            let sent: Vec<u8> = (0..39 * 100 + 7).map(|at| (at / 100) as u8).collect();
            socket.send_to(&sent, (target, PORT)).unwrap();
            let (mut came, mut lengths) = (Vec::new(), Vec::new());
            while came.len() < sent.len() {
                let mut answer = vec![0; 65_536];
                let (len, _) = socket.recv_from(&mut answer).expect("each datagram is answered");
                came.extend_from_slice(&answer[..len]);
                lengths.push(len);
            }
            assert!(came == sent, "in order");
            let single = sent.chunks(100).map(<[u8]>::len).collect::<Vec<_>>();
            assert!(joins || lengths == single, "{lengths:?}");
        }
    }
    if describes_datagrams() {
        let interfaces = server.show("interfaces");
        let joined = interfaces[0]["queues"][0]["frames_joined"].as_u64();
        assert_eq!(joined, Some(4 * 40));
    }
    assert_eq!(server.interrupt(), Some(0));
}

/// Nothing but TCP comes here, so each figure is of a wake-up by its bytes.
#[test]
fn a_worker_that_tcp_has_woken_knows_how_long_that_took() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--mode", "adaptive"]);
    let mut client = rig.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap().expect("connected");
    client.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    let mut buffer = [0; 5];
    until("wake-ups by TCP have figures", || {
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut buffer).unwrap();
        server.show("workers")[0]["idle"]["wake_latency"]["count"].as_u64() > Some(2)
    });
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn tcp_is_served_beside_and_a_client_that_never_reads_stops_only_itself() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--mode", "interrupt"]);
    let connect = || rig.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap().expect("connected");
    let mut deaf = connect();
    deaf.set_nonblocking(true).unwrap();
    let chunk = [7; 65_536];
    let mut sent = 0;
    // Until the server stops reading and both socket buffers are full.
    let mut refused = 0;
    while refused < 1_000 {
        match deaf.write(&chunk) {
            Ok(len) => (sent, refused) = (sent + len, 0),
            Err(_) => refused += 1,
        }
        assert!(sent < 1 << 30, "back-pressure reaches the client");
    }
    let mut polite = connect();
    let mut buffer = [0; 5];
    for _ in 0..100 {
        polite.write_all(b"hello").unwrap();
        polite.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"hello");
    }
    let report = rig.bench(&format!("{SERVER}:{PORT}"), &["--tcp", "--count", "500"]);
    assert_eq!((report["received"].as_u64(), report["corrupt"].as_u64()), (Some(500), Some(0)));
    // And once it reads, everything is there.
    deaf.set_nonblocking(false).unwrap();
    deaf.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = 0;
    let mut room = vec![0; 1 << 20];
    loop {
        let len = deaf.read(&mut room).unwrap();
        if len == 0 {
            break;
        }
        assert!(room[..len].iter().all(|byte| *byte == 7));
        back += len;
    }
    assert_eq!(back, sent);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_load_is_answered_without_loss_or_allocation_on_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    let target = format!("{SERVER}:{PORT}");
    let (many, some): (u64, u64) = few_or_all((10_000, 1_000), (30_000, 3_000));
    let [many_words, some_words] = [many, some].map(|count| count.to_string());
    for path in ["packet", "xdp"] {
        let rig = Rig::of_workers();
        let server = rig.serve(&["--path", path]);
        // The first packets allocate what stays: the peer's entry, the latency request.
        rig.bench(&target, &["--count", "1000"]);
        rig.bench(&target, &["--on", "vc", "--path", path, "--count", "1000"]);
        let before = server.worker("allocations");
        for arguments in [
            &["--on", "vc", "--path", path, "--count", &many_words, "--inflight", "64", "--mode", "poll"][..],
            &["--on", "vc", "--path", path, "--count", &some_words, "--mode", "interrupt"],
            &["--on", "vc", "--path", path, "--count", &some_words, "--mode", "adaptive"],
        ] {
            let report = rig.bench(&target, arguments);
            assert_eq!(
                (report["lost"].as_u64(), report["corrupt"].as_u64()),
                (Some(0), Some(0)),
                "{arguments:?}"
            );
            assert_eq!(report["path"], path);
            assert_eq!(report["allocations_per_packet"].as_f64(), Some(0.0), "{arguments:?}");
        }
        assert_eq!(server.worker("allocations"), before, "{path}");
        assert!(server.worker("frames_out") > many + 2 * some, "{path}");
    }
}

#[test]
fn several_workers_share_an_interface() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--workers", "3", "--path", "packet"]);
    let report = rig.bench(&format!("{SERVER}:{PORT}"), &["--threads", "16", "--count", "16000"]);
    assert_eq!(report["lost"].as_u64(), Some(0));
    let workers = server.show("workers");
    let workers = workers.as_array().unwrap();
    let frames: Vec<u64> = workers.iter().map(|worker| worker["frames_in"].as_u64().unwrap()).collect();
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().sum::<u64>() >= 16_000, "{frames:?}: each frame to one of them");
    assert!(frames.iter().filter(|frames| **frames > 0).count() > 1, "{frames:?}: 16 flows spread");
}

#[test]
fn modes_change_under_load_without_a_loss() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--mode", "poll"]);
    let report = std::thread::scope(|scope| {
        let load = scope.spawn(|| rig.bench(&format!("{SERVER}:{PORT}"), &["--count", "20000"]));
        let mut round = 0;
        while !load.is_finished() {
            let mode = ["interrupt", "adaptive", "poll"][round % 3];
            round += 1;
            let socket = server.socket.to_str().unwrap();
            let finished =
                rig.twinpath(&rig.server, &["set", "worker", "all", "mode", mode, "--socket", socket]);
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        }
        load.join().unwrap()
    });
    assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(20_000), Some(0)));
}

#[test]
fn who_would_answer_our_answer_is_refused() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    let dns = rig.client_udp(CLIENT, 53);
    assert!(!crate::rig::answered(&dns, SERVER, b"a forged answer"));
    assert_eq!(server.drops("service_source_port"), 1);
    let twin = rig.client_udp(CLIENT, PORT);
    assert!(!crate::rig::answered(&twin, SERVER, b"from another echo server"));
    assert_eq!(server.drops("service_source_port"), 2);
}

/// What listens at such a port could answer the reply, without end.
#[test]
fn ports_that_answer_by_themselves_are_refused_said_and_counted_unless_a_service_cannot_loop() {
    if !root_or_skip() {
        return;
    }
    for way in [&["--path", "packet"][..], &["--path", "xdp"], &["--path", "kernel"]] {
        let rig = Rig::new();
        let from = |port| rig.client_udp(CLIENT, port);
        let mut server = rig.serve(way);
        let refused = [7, 19, 53, 123, 161, 1900, 5353, 11211, PORT].map(from);
        for socket in &refused {
            socket.send_to(b"echo", (SERVER, PORT)).unwrap();
        }
        until("all of them are counted", || server.drops("service_source_port") == 9);
        assert_eq!(ask(&from(54), SERVER, PORT, b"other"), b"other");
        for socket in refused {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv_from(&mut [0; 16]).is_err(), "{way:?} {:?}", socket.local_addr());
        }
        let said = server.show("services")[0]["unanswered_ports"].as_str().unwrap().to_owned();
        for word in ["port 7, 9,", "11211", "the service's own", "service_source_port", "--any-source-port"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(server.started().contains(&said), "{way:?}: the start says it as well");
        assert_eq!(server.interrupt(), Some(0));
        if way[1] != "packet" {
            continue;
        }
        let any = rig.serve(&[way, &["--any-source-port"]].concat());
        for port in [7, 53, 11211, PORT] {
            // More than once: the first ones of a peer always go to the worker.
            for _ in 0..8 {
                assert_eq!(ask(&from(port), SERVER, PORT, b"asked for"), b"asked for", "{way:?} {port}");
            }
        }
        assert_eq!(
            (any.drops("service_source_port"), &any.show("services")[0]["unanswered_ports"]),
            (0, &"".into())
        );
        assert_eq!(any.interrupt(), Some(0));
        let port = PORT.to_string();
        let rpc = rig.start(&[&["rpc", "--on", "vs", "--udp", &port], way].concat());
        let mut null = [0; 40];
        for (at, word) in [1u32, 0, 2, 100_003, 3].into_iter().enumerate() {
            null[4 * at..][..4].copy_from_slice(&word.to_be_bytes());
        }
        for port in [53, 123, PORT] {
            assert_eq!(ask(&from(port), SERVER, PORT, &null).len(), 24, "{way:?} {port}");
        }
        assert_eq!(rpc.drops("service_source_port"), 0, "{way:?}");
        assert_eq!(rpc.show("services")[0]["unanswered_ports"], "");
        assert_eq!(rpc.interrupt(), Some(0));
    }
}
