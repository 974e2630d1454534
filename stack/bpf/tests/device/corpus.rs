//! Sends the corpus over a real device: the programs as they run in production, and cases that test runs cannot
//! express.

use std::sync::Arc;
use std::time::Instant;

use twinpath_bpf::{Features, Path, Steering, TcpClaims, TcpFlows, XdpMode};
use twinpath_claims::corpus::{self, Case};
use twinpath_claims::{Known, Verdict};

use crate::each_way;
use crate::lab::{Lab, PacketSocket};

/// The one counter that changes when a frame is sent.
pub(crate) fn counted(steering: &Steering, inject: impl FnOnce()) -> Result<&'static str, String> {
    let before = steering.counters().unwrap();
    inject();
    let deadline = Instant::now() + twinpath_test_rig::PATIENCE;
    loop {
        let after = steering.counters().unwrap();
        let moved: Vec<_> =
            before.iter().zip(&after).filter(|(old, new)| old.1 != new.1).map(|(_, new)| new.0).collect();
        match moved[..] {
            [name] => return Ok(name),
            // A claimed frame also changes the counter of the tcx program.
            [name @ "claimed", "withheld_from_kernel"] | ["withheld_from_kernel", name @ "tcp_too_large"] => {
                return Ok(name);
            }
            [] if Instant::now() < deadline => std::thread::yield_now(),
            [] => return Err("no counter moved".to_owned()),
            _ => return Err(format!("{moved:?} moved")),
        }
    }
}

fn expected(case: &Case) -> &'static str {
    match case.verdict {
        // Nobody listens.
        Verdict::Opens(_) => "tcp_syn_of_kernel",
        Verdict::ClaimedLarge(_) => "tcp_too_large",
        other => Verdict::name_of(other.number()).unwrap(),
    }
}

/// Runs `inject` while a worker has the known connection of a case.
fn with_known<T>(flows: &TcpClaims, case: &Case, inject: impl FnOnce() -> T) -> T {
    let Some(Known { flow, declined }) = case.context.known else { return inject() };
    let set = if declined { TcpClaims::decline } else { TcpClaims::insert };
    set(flows, flow.destination, flow.source).unwrap();
    let done = inject();
    flows.release(flow.destination, flow.source).unwrap();
    done
}

#[test]
fn the_packet_path_gives_the_verdicts_of_the_corpus() {
    each_way(false, |lab, how| {
        let injector = lab.injector();
        let corpus = corpus::all().unwrap();
        let flows = Arc::new(TcpFlows::load(1).unwrap());
        let features = Features { connections: Some(&flows), ..Features::default() };
        let mut steering =
            Steering::load_with(Path::Packet, 1, twinpath_time::Duration::ZERO, features).unwrap();
        let flows = flows.claims(0).unwrap();
        flows.set_room(1);
        steering.attach_tc(lab.ifindex, how).unwrap();
        let socket =
            PacketSocket::receiver(lab.ifindex, |socket| steering.attach_socket_filter(0, socket).unwrap());
        let (mut wrong, mut claimed, mut large, mut shown) = (Vec::new(), 0, 0, 0);
        for (name, table) in &corpus.tables {
            steering.apply(table).unwrap();
            // What an injector sends is never coalesced.
            let sent = corpus.cases.iter().filter(|case| case.table == *name && !is_coalesced(case));
            for case in sent {
                let Some(frame) = on_the_wire(case) else { continue };
                shown += 1;
                match with_known(&flows, case, || counted(&steering, || injector.send(&frame))) {
                    Ok("claimed") if expected(case) == "claimed" => claimed += 1,
                    Ok("tcp_too_large") if expected(case) == "tcp_too_large" => large += 1,
                    Ok(found) if found == expected(case) => {}
                    other => wrong.push(format!("{}: {other:?}, not {}", case.name, expected(case))),
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(shown > 195, "only {shown} frames were shown");
        assert_eq!(std::iter::from_fn(|| socket.take()).count(), claimed);
        let counters = steering.counters().unwrap();
        let of = |wanted: &str| counters.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!((of("withheld_from_kernel"), of("note_of_other_frame")), (claimed as u64 + large, 0));
        assert_eq!((large, flows.room()), (1, 1));
    });
}

fn is_coalesced(case: &Case) -> bool {
    case.context.segments > 1 || case.context.segment_len > 0
}

/// The bytes to send so that the kernel sees the case: it removes a tag from the frame before packet sockets see it,
/// and drops a tagged frame that is too short for that.
fn on_the_wire(case: &Case) -> Option<Vec<u8>> {
    let mut frame = case.frame.clone();
    if let Some(tag) = case.context.tag {
        let [a, b] = tag.protocol.0.to_be_bytes();
        let [c, d] = tag.control.to_be_bytes();
        frame.splice(12..12, [a, b, c, d]);
    }
    let tagged = matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
    (frame.len() >= if tagged { 20 } else { 14 }).then_some(frame)
}

#[test]
fn xdp_gives_the_verdicts_of_the_corpus() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let lab = Lab::new(false);
        let injector = lab.injector();
        let corpus = corpus::all().unwrap();
        let mut steering = Steering::load(Path::Xdp).unwrap();
        steering.attach_xdp(lab.ifindex, mode).unwrap();
        let (mut wrong, mut shown) = (Vec::new(), 0);
        for (name, table) in &corpus.tables {
            steering.apply(table).unwrap();
            for case in corpus.cases.iter().filter(|case| case.table == *name && case.not_xdp.is_none()) {
                shown += 1;
                // Without a socket a claimed frame passes to the kernel, and is counted as such.
                let expected = if expected(case) == "claimed" { "no_socket" } else { expected(case) };
                match counted(&steering, || injector.send(&case.frame)) {
                    Ok(found) if found == expected => {}
                    other => wrong.push(format!("{}: {other:?}, not {expected}", case.name)),
                }
            }
        }
        assert!(wrong.is_empty(), "{}: {wrong:#?}", mode.name());
        assert!(shown > 195, "only {shown} frames were shown");
    }
}
