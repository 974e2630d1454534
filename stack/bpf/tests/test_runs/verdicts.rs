//! Compares the kernel's programs with user space: on the corpus, and on thousands of frames corrupted from it.

use std::sync::Arc;

use aya::programs::SchedClassifier;
use twinpath_bpf::{Path, Steering, TcpClaims, TcpFlows};
use twinpath_claims::corpus::{self, Case};
use twinpath_claims::{Context, Known, PassReason, Table, Verdict, verdict};
use twinpath_wire::FlowKey;
use twinpath_wire::Protocol::Tcp;

use crate::common::{filter, ingress, run, xdp};
use crate::frames::{least_for_skb, stay_on_one_cpu};

#[test]
fn every_program_gives_the_verdict_of_the_corpus() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let mut programs = Programs::load();
    let mut wrong = Vec::new();
    let (mut filtered, mut redirected) = (0, 0);
    for (name, table) in &corpus.tables {
        programs.apply(table);
        for case in corpus.cases.iter().filter(|case| case.table == *name) {
            let mut compare = |program: &str, found: Verdict| {
                if found != case.verdict {
                    wrong.push(format!("{program}, {}: {found:?}, not {:?}", case.name, case.verdict));
                }
            };
            if case.not_filter.is_none() {
                compare("filter", programs.filter_verdict(&case.frame, &case.context));
                filtered += 1;
            }
            if case.not_xdp.is_none() {
                compare("XDP", programs.xdp_verdict(&case.frame));
                redirected += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(filtered > 180 && redirected > 190, "{filtered} through the filter, {redirected} through XDP");
}

#[test]
fn only_the_frame_that_the_filter_claimed_last_is_withheld_and_only_once() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let frame = |name: &str| corpus.cases.iter().find(|case| case.name == name).unwrap().frame.clone();
    let (claimed, unclaimed) = (frame("ipv4_udp_claimed"), frame("ipv4_udp_unclaimed_port"));
    let mut programs = Programs::load();
    programs.apply(&corpus.tables["basic"]);
    let decide = |frame: &[u8]| run(filter(&programs.packet), frame, None, 1);
    let ask = |frame: &[u8]| run(ingress(&programs.packet), frame, None, 1).return_value;

    decide(&claimed);
    assert_eq!((ask(&claimed), ask(&claimed)), (TCX_DROP, TCX_NEXT));
    // Deciding another frame removes the note.
    decide(&claimed);
    decide(&unclaimed);
    assert_eq!(ask(&claimed), TCX_NEXT);
    // A frame that differs from the noted one: in one byte, by one more byte, in its length.
    for at in [0, 19, 26, 35, claimed.len() - 1] {
        let mut other = claimed.clone();
        other[at] ^= 1;
        decide(&claimed);
        assert_eq!((ask(&other), ask(&claimed)), (TCX_NEXT, TCX_NEXT), "byte {at}");
    }
    decide(&claimed);
    assert_eq!(ask(&[&claimed[..], &[0]].concat()), TCX_NEXT);
    let counters = programs.packet.counters().unwrap();
    assert!(counters.contains(&("withheld_from_kernel", 1)), "{counters:?}");
    assert!(counters.contains(&("note_of_other_frame", 6)), "{counters:?}");
}

/// Frames per run.
const FRAMES: usize = 40_000;
/// Fixed, so that a failure can be reproduced.
const SEED: u64 = 20_261_121;

#[test]
fn broken_frames_get_the_same_verdict_everywhere() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut programs = Programs::load();
    let (mut claimed, mut large, mut filtered) = (0, 0, 0);
    for table in corpus.tables.values() {
        programs.apply(table);
        for number in 0..FRAMES / corpus.tables.len() {
            let case = &corpus.cases[random.usize(..corpus.cases.len())];
            let frame = broken(&mut random, case, table);
            let segment_len = if random.u8(..4) == 0 { random.u16(..200) } else { case.context.segment_len };
            // The kernel counts what it has coalesced, and nobody what a guest has.
            let headers = if case.frame.get(12) == Some(&0x86) { 62 } else { 42 };
            let payload = u32::try_from(frame.len().saturating_sub(headers)).unwrap();
            let counted = if segment_len > 0 { payload.div_ceil(u32::from(segment_len)) } else { 0 };
            let segments = if random.u8(..10) == 0 { random.u32(..4) } else { counted };
            let known = Some(known(&mut random));
            let context = Context { tag: None, segments, segment_len, known };
            let expected = verdict(&frame, &context, table);
            claimed += usize::from(matches!(expected, Verdict::Claimed(_)));
            large += usize::from(matches!(expected, Verdict::ClaimedLarge(_)));
            if frame.len() >= least_for_skb(&frame) {
                let found = programs.filter_verdict(&frame, &context);
                assert_eq!(found, expected, "filter, seed {SEED}, frame {number}: {frame:02x?}");
                filtered += 1;
            }
            let expected = verdict(&frame, &Context::default(), &without_connections(table));
            assert_eq!(
                programs.xdp_verdict(&frame),
                expected,
                "XDP, seed {SEED}, frame {number}: {frame:02x?}"
            );
        }
    }
    assert!(filtered > FRAMES * 3 / 4, "only {filtered} frames could be shown to the filter");
    assert!(claimed > FRAMES / 50, "only {claimed} frames were claimed: the test looks at too little");
    assert!(large > FRAMES / 200, "only {large} coalesced frames were claimed: the test looks at too little");
}

/// The connection of most cases.
fn known(random: &mut fastrand::Rng) -> Known {
    let ends =
        if random.bool() { ["10.0.0.1:4000", "10.0.0.2:7"] } else { ["[fd00::1]:4000", "[fd00::2]:7"] };
    let [peer, local] = ends.map(|end| end.parse().unwrap());
    Known { flow: FlowKey::new(Tcp, peer, local), declined: random.u8(..4) == 0 }
}

/// The programs at XDP have no connections. Those claims are the last ones of a table, so the others keep their numbers.
fn without_connections(table: &Table) -> Table {
    let mut without = Table::new(table.mac(), table.frame_len_max()).unwrap();
    for address in table.addresses() {
        without.add_address(*address).unwrap();
    }
    for claim in table.claims().iter().take_while(|claim| !claim.connections) {
        without.add_claim(claim.clone()).unwrap();
    }
    without
}

/// A frame of the corpus, corrupted in a few relevant places.
fn broken(random: &mut fastrand::Rng, case: &Case, table: &Table) -> Vec<u8> {
    const TELLING: [u8; 24] =
        [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 16, 17, 20, 40, 43, 44, 53, 60, 0x45, 0x46, 0x60, 0x81, 0xdd, 0xff];
    let mut frame = case.frame.clone();
    for _ in 0..random.usize(..4) {
        if frame.is_empty() {
            break;
        }
        let at = random.usize(..frame.len().min(80));
        frame[at] = match random.u8(..4) {
            0 => random.u8(..),
            1 => frame[at] ^ 1 << random.u8(..8),
            2 => frame[at].wrapping_add(1),
            _ => TELLING[random.usize(..TELLING.len())],
        };
    }
    // Half of them have a local destination address, so that the later checks are reached.
    if random.bool() && frame.len() > 6 {
        frame[..6].copy_from_slice(&table.mac().0);
    }
    if random.u8(..8) == 0 && frame.len() > 18 {
        let tag = [0x81, 0x00, 0x00, [100, 200, 0, 5][random.usize(..4)]];
        frame.splice(12..12, tag);
    }
    if random.u8(..4) == 0 {
        frame.truncate(random.usize(..=frame.len()));
    }
    if random.u8(..16) == 0 {
        frame.resize(frame.len() + random.usize(..200), random.u8(..));
    }
    // The kernel runs no test with a shorter frame.
    frame.resize(frame.len().max(14), 0);
    frame
}

/// What a tcx program returns to pass the frame to the next program, and to drop it.
const TCX_NEXT: u32 = u32::MAX;
const TCX_DROP: u32 = 2;

/// All three programs, loaded to return their verdict.
struct Programs {
    flows: TcpClaims,
    packet: Steering,
    xdp: Steering,
}

impl Programs {
    fn load() -> Self {
        stay_on_one_cpu();
        let flows = Arc::new(TcpFlows::load(1).unwrap());
        Self {
            flows: flows.claims(0).unwrap(),
            packet: Steering::load_connections_for_test_run(&flows).unwrap(),
            xdp: Steering::load_for_test_run(Path::Xdp).unwrap(),
        }
    }

    fn apply(&mut self, table: &Table) {
        self.packet.apply(table).unwrap();
        self.xdp.apply(table).unwrap();
    }

    fn xdp_verdict(&self, frame: &[u8]) -> Verdict {
        verdict_of(run(xdp(&self.xdp), frame, None, 1).return_value)
    }

    /// The filter's verdict; checks that the tcx program gives the same one for this frame.
    fn filter_verdict(&self, frame: &[u8], context: &Context) -> Verdict {
        let Some(Known { flow, declined }) = context.known else { return self.decided(frame, context) };
        let set = if declined { TcpClaims::decline } else { TcpClaims::insert };
        set(&self.flows, flow.destination, flow.source).unwrap();
        let verdict = self.decided(frame, context);
        self.flows.release(flow.destination, flow.source).unwrap();
        verdict
    }

    fn decided(&self, frame: &[u8], context: &Context) -> Verdict {
        let beside = beside(context);
        let verdict = verdict_of(run(filter(&self.packet), frame, Some(&beside), 1).return_value);
        let answer = run(ingress(&self.packet), frame, Some(&beside), 1).return_value;
        let expected = if matches!(verdict, Verdict::Claimed(_)) { TCX_DROP } else { TCX_NEXT };
        assert_eq!(answer, expected, "tcx after {verdict:?}");
        if !matches!(verdict, Verdict::Opens(_)) {
            return verdict;
        }
        // Another program looks at the options of a SYN, which the filter does not have.
        let opens: &SchedClassifier = self.packet.program("twinpath_opens").unwrap().try_into().unwrap();
        let number = run(opens, frame, Some(&beside), 1).return_value;
        if number == u32::from(Verdict::OPENS) { verdict } else { verdict_of(number) }
    }
}

/// The start of a `struct __sk_buff` with the number of coalesced segments, and their size.
fn beside(context: &Context) -> [u8; 184] {
    let mut bytes = [0; 184];
    bytes[164..168].copy_from_slice(&context.segments.to_ne_bytes());
    bytes[176..180].copy_from_slice(&u32::from(context.segment_len).to_ne_bytes());
    bytes
}

fn verdict_of(returned: u32) -> Verdict {
    let claim = (returned >> 8) as u16;
    match returned as u8 {
        0 => Verdict::Claimed(claim),
        Verdict::OPENS => Verdict::Opens(claim),
        Verdict::CLAIMED_LARGE => Verdict::ClaimedLarge(claim),
        number => Verdict::Pass(PassReason::ALL[usize::from(number) - 1]),
    }
}
