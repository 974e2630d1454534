//! Fuzzes the verdict: a claimed frame is complete, for this host, and matches its claim; any other passes to the
//! kernel.

use twinpath_claims::{Claim, ClaimKind, Context, DATAGRAMS_MAX, Table, Verdict, corpus, verdict};
use twinpath_wire::offload::Segmentation;
use twinpath_wire::{ChecksumTrust, EtherType, FlowKey, ParseError, Protocol, Tag, eth, udp_frame};

use crate::{fuzz, seed};

const FRAME_LEN_MAX: u32 = 1518;

/// Claims of every kind on the frames of [`seed::frames`].
fn table() -> Table {
    let mut table = Table::new(seed::OWN_MAC, FRAME_LEN_MAX).expect("a unicast address");
    for address in [seed::OWN_V4.into(), seed::OWN_V6.into()] {
        table.add_address(address).expect("two addresses");
    }
    let source = ([192, 0, 2, 9], 40000).into();
    let allowed = vec!["2001:db8::/64".parse().expect("a prefix"), "192.0.2.0/24".parse().expect("a prefix")];
    let claims = [
        Claim { sources: allowed, ..Claim::port(Protocol::Udp, seed::PORT) },
        Claim { vlan: Some(seed::VLAN), ..Claim::port(Protocol::Udp, seed::PORT) },
        Claim::port(Protocol::Tcp, seed::PORT),
        Claim::flow(FlowKey::new(Protocol::Tcp, source, (seed::OWN_V4, 22).into())),
        Claim::ethertype(0x88b5),
    ];
    for claim in claims {
        table.add_claim(claim).expect("claims of different kinds");
    }
    table
}

/// What the kernel knows of a frame besides its bytes.
fn context(hint: u8) -> Context {
    let tag = (hint & 1 != 0).then_some(Tag { protocol: EtherType::VLAN, control: seed::VLAN });
    let segments = u32::from(hint >> 1 & 3);
    // None of them, as long as a short payload, or longer than a frame.
    let segment_len = [0, 0, 1, 7, 100, 1_400, 1_477, u16::MAX][usize::from(hint >> 5)];
    Context { tag, segments, segment_len, known: None }
}

/// Checks the invariants of every verdict.
fn check(frame: &[u8], context: &Context, table: &Table) {
    let found = verdict(frame, context, table);
    assert_eq!(found, verdict(frame, context, table), "a function of its arguments");
    assert!(Verdict::name_of(found.number()).is_some(), "every verdict has a counter with a name");
    let index = match found {
        Verdict::Claimed(index) => {
            assert!(
                context.segments <= 1 && context.segment_len == 0,
                "coalesced segments have another verdict"
            );
            assert!(frame.len() <= table.frame_len_max() as usize);
            index
        }
        Verdict::ClaimedLarge(index) if table.claims()[usize::from(index)].connections => index,
        Verdict::ClaimedLarge(index) => {
            let cut =
                Segmentation::of(frame, frame.len(), context.segment_len).expect("it can be taken apart");
            assert!(cut.packet_len_max() <= table.frame_len_max() as usize && cut.count() <= DATAGRAMS_MAX);
            index
        }
        _ => return,
    };
    let claim = &table.claims()[usize::from(index)];
    let eth = eth::Frame::parse(frame).expect("what is claimed has a whole header");
    assert_eq!(eth.destination(), table.mac());
    assert_eq!(claim.vlan, context.tag.or(eth.tag()).map(Tag::id), "the claim names the frame's VLAN");
    let ClaimKind::Port { protocol: Protocol::Udp, port, .. } = claim.kind else { return };
    match udp_frame::parse(frame, ChecksumTrust::Trusted) {
        Ok(datagram) => {
            assert_eq!(datagram.destination.port(), port);
            assert!(table.addresses().contains(&datagram.destination.ip()));
            let source = datagram.source.ip();
            let allowed =
                claim.sources.is_empty() || claim.sources.iter().any(|prefix| prefix.contains(source));
            assert!(allowed, "{source} is not on the claim's list");
        }
        // The verdict does not check checksums; the receiver does.
        Err(error) => assert_eq!(error, ParseError::IpHeaderChecksum, "what is claimed can be read"),
    }
}

#[test]
fn frames() {
    let table = table();
    fuzz!("steer__frames", |input: &[u8]| {
        let (hint, frame) = input.split_first().unwrap_or((&0, &[]));
        check(frame, &context(*hint), &table);
    });
}

#[test]
fn damaged_frames() {
    let table = table();
    fuzz!("steer__damaged_frames", |input: &[u8]| {
        let (hint, input) = input.split_first().unwrap_or((&0, &[]));
        check(&seed::damaged_frame(input), &context(*hint), &table);
    });
}

/// A case of the steering corpus, selected by two bytes and corrupted by the others.
#[test]
fn damaged_cases() {
    let corpus = corpus::all().expect("the steering corpus can be read");
    fuzz!("steer__damaged_cases", |input: &[u8]| {
        let Some((number, edits)) = input.split_first_chunk::<2>() else { return };
        let case = &corpus.cases[usize::from(u16::from_be_bytes(*number)) % corpus.cases.len()];
        let mut frame = case.frame.clone();
        seed::damage(&mut frame, edits);
        check(&frame, &case.context, &corpus.tables[&case.table]);
    });
}
