//! Super-segments of the server: a port that cuts them, loss inside of them, a path that carries less.

use twinpath_udp::egress::Egress;

use super::*;

/// A port that cuts super-segments of TCP.
const CUTS: Capabilities = Capabilities {
    frame_len_max: 1514,
    super_frame_len_max: 65_549,
    checksum: true,
    partial_checksums: false,
    segmentation: GsoKinds { tcp: true, udp: false },
    chains: true,
    tags: false,
};

impl Rig {
    fn over(server: Capabilities) -> Self {
        Self::over_with_frames(256, server)
    }

    fn over_with_frames(frames: u32, server: Capabilities) -> Self {
        let (near, wire) =
            pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
        let ends = (near.with_capabilities(server), wire.with_capabilities(CUTS));
        let mut rig = Self::with_room(frames, 8, ends);
        rig.learn(Ok(WAY_BACK));
        rig
    }
}

fn text(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn what_is_ready_leaves_in_super_segments_and_arrives_whole() {
    let mut rig = Rig::over(CUTS);
    let id = rig.connect(4000);
    let text = text(1_000_000);
    assert!(rig.echo_within(20_000, id, &text) == text);
    let SuperSegments { count, longest, unit, .. } = rig.super_segments;
    assert!((10..400).contains(&count), "{count}");
    // As long as the path takes in a millisecond.
    assert!(longest > 5_000 && unit == 1448, "{longest}, {unit}");
    // Each counts as what it holds.
    assert!(rig.serve.fast_tcp.fast_segments_out.get() >= 1_000_000 / 1448);
    assert_eq!(rig.counters.drops.happened().collect::<Vec<_>>(), []);
    assert_eq!(rig.serve.fast_tcp.fast_retransmitted.get(), 0);
}

#[test]
fn a_worker_that_never_has_enough_frames_for_a_super_segment_sends_its_segments() {
    let mut rig = Rig::over_with_frames(120, CUTS);
    let id = rig.connect(4000);
    let text = text(100_000);
    assert!(rig.echo_within(20_000, id, &text) == text);
    assert_eq!(rig.super_segments.count, 0);
    assert_eq!(rig.counters.drops.happened().collect::<Vec<_>>(), []);
}

#[test]
fn a_port_that_cuts_none_gets_none() {
    let with_less = [
        Capabilities { segmentation: GsoKinds::default(), ..CUTS },
        Capabilities { checksum: false, ..CUTS },
        Capabilities { chains: false, ..CUTS },
        Capabilities { super_frame_len_max: 0, ..CUTS },
    ];
    for server in with_less {
        let mut rig = Rig::over(server);
        let id = rig.connect(4000);
        let text = text(300_000);
        assert!(rig.echo(id, &text) == text, "{server:?}");
        assert_eq!(rig.super_segments.count, 0, "{server:?}");
    }
}

#[test]
fn losses_inside_of_super_segments_are_repaired() {
    for seed in 0..8 {
        let mut rig = Rig::over(CUTS);
        rig.super_segments.losing = Some(fastrand::Rng::with_seed(seed));
        let id = rig.connect(4000);
        let text = text(300_000);
        for _ in 0..2 {
            assert!(rig.echo_within(60_000, id, &text) == text, "seed {seed}");
        }
        let count = rig.super_segments.count;
        assert!(count > 10 && rig.serve.fast_tcp.fast_retransmitted.get() > 0, "seed {seed}: {count}");
        assert!(!rig.was_reset());
    }
}

#[test]
fn a_path_that_carries_less_gets_shorter_segments() {
    for seed in 0..10 {
        let mut rig = Rig::over(CUTS);
        let mut random = fastrand::Rng::with_seed(seed);
        let id = rig.connect(4000);
        let text = text(600_000);
        assert!(rig.echo(id, &text) == text);
        // While segments are in flight.
        let mut stream = rig.tcp.stream(rig.now, id).expect("open");
        let written = stream.write(&text);
        rig.turns(random.usize(1..5));
        rig.learn(Ok(Egress { mtu: random.u32(600..1400), ..WAY_BACK }));
        let Egress { mtu, .. } = WAY_BACK;
        assert_eq!(mtu, 1500);
        rig.super_segments = SuperSegments::default();
        let mut heard = Vec::new();
        for _ in 0..2_000 {
            let mut stream = rig.tcp.stream(rig.now, id).expect("open");
            heard.extend_from_slice(stream.received());
            stream.consume(usize::MAX);
            rig.turn();
        }
        assert!(heard == text[..written], "seed {seed}: {} of {written}", heard.len());
        assert!(rig.echo(id, &text) == text, "seed {seed}");
        assert!(rig.super_segments.count > 0 && rig.super_segments.unit < 1400, "seed {seed}");
    }
}

#[test]
fn super_segments_end_when_a_port_is_attached_that_cuts_none() {
    let mut rig = Rig::over(CUTS);
    let id = rig.connect(4000);
    let text = text(600_000);
    assert!(rig.echo(id, &text) == text);
    assert!(rig.super_segments.count > 0);
    let (near, _wire) = pair(PortId { port: 2, queue: 0 }, PortId { port: 3, queue: 0 }).expect("eventfds");
    assert!(rig.commands.send(Command::Attach(Box::new(near))).is_ok());
    rig.turn();
    rig.super_segments = SuperSegments::default();
    assert!(rig.echo(id, &text) == text);
    assert_eq!(rig.super_segments.count, 0);
}
