use twinpath_rpc::client::Auth;
use twinpath_rpc::nfs3_types::nfs3::{
    COMMIT3args, LOOKUP3args, READ3args, WRITE3args, diropargs3, filename3, nfs_fh3,
};
use twinpath_rpc::nfs3_types::rpc::rpc_msg;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Unpack};

use super::*;
use crate::{Answer, Calls, Codec, Framing};

const SEED: u64 = 7;
const WRITES: u32 = 3;

fn blocks() -> Blocks {
    Blocks { handle: b"a file".to_vec(), len: 21, count: 5 }
}

fn writes() -> NfsProcedure {
    let acknowledged = (0..5).map(|_| AtomicU64::new(0)).collect();
    NfsProcedure::Write { blocks: blocks(), seed: SEED, writes_per_commit: WRITES, acknowledged }
}

fn calls(asked: &NfsProcedure) -> Calls {
    Calls::new(asked, Auth::none(), Framing::Datagram, 0)
}

fn id(sequence: u32) -> u64 {
    u64::from(sequence << SLOT_BITS | 5)
}

/// The arguments of a call, read by the library, which must leave nothing.
fn args<T: Unpack>(calls: &Calls, id: u64) -> T {
    let mut request = vec![0xee; calls.request_len(id)];
    calls.write(id, &mut request);
    let mut rest = request.as_slice();
    rpc_msg::unpack(&mut rest).expect("a call");
    let (args, _) = T::unpack(&mut rest).expect("its arguments");
    assert_eq!(rest, [], "and nothing behind them");
    args
}

fn handle(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

/// The bytes of a reply: words, and data between them.
fn reply(id: u64, results: &[u32], data: Option<&[u8]>) -> Vec<u8> {
    let head = [id as u32, 1, 0, 0, 0, 0];
    let mut bytes: Vec<u8> = head.iter().chain(results).flat_map(|word| word.to_be_bytes()).collect();
    if let Some(data) = data {
        write_opaque(data, &mut bytes);
    }
    bytes
}

fn pattern_of(number: u64) -> Vec<u8> {
    let mut block = vec![0; 21];
    fill_block(SEED, number, &mut block);
    block
}

#[test]
fn a_read_is_of_a_block_and_must_bring_what_is_in_it() {
    let asked = NfsProcedure::Read { blocks: blocks(), content: Content::Pattern(SEED) };
    let mut calls = calls(&asked);
    for (sequence, offset) in [(0, 0), (1, 21), (4, 84), (5, 0)] {
        let args: READ3args = args(&calls, id(sequence));
        assert_eq!((args.file, args.offset, args.count), (handle(b"a file"), offset, 21));
        let block = pattern_of(offset / 21);
        let right = reply(id(sequence), &[0, 0, 21, 0], Some(&block));
        assert_eq!(calls.check(&right), Answer::Right(id(sequence)), "{:?}", calls.complaint());
    }
    assert_eq!(calls.check(&reply(id(6), &[0, 0, 21, 0], Some(&pattern_of(2)))), Answer::Wrong, "another's");
    let said = calls.complaint().unwrap();
    assert!(said.contains("READ at 21 gave other bytes"), "{said}");
    let sums = (0..5).map(|at| block_sum(&pattern_of(at))).collect();
    let mut calls = self::calls(&NfsProcedure::Read { blocks: blocks(), content: Content::Sums(sums) });
    let mut block = pattern_of(1);
    assert_eq!(calls.check(&reply(id(1), &[0, 0, 21, 0], Some(&block))), Answer::Right(id(1)));
    block[20] ^= 1;
    assert_eq!(calls.check(&reply(id(1), &[0, 0, 21, 0], Some(&block))), Answer::Wrong);
    let short = reply(id(1), &[0, 0, 3, 1], Some(b"end"));
    let mut calls = self::calls(&asked);
    assert_eq!(calls.check(&short), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("READ of 21 bytes at 21 moved 3"));
    assert_eq!(calls.check(&reply(id(1), &[5, 0], None)), Answer::Refused(id(1)), "an I/O error");
}

#[test]
fn writes_go_round_the_file_with_a_commit_after_some() {
    let asked = writes();
    let calls = calls(&asked);
    for (sequence, block) in [(0, 0), (1, 1), (2, 2), (4, 3), (5, 4), (6, 0), (8, 1)] {
        let write: WRITE3args<'_> = args(&calls, id(sequence));
        assert_eq!((write.file, write.offset, write.count), (handle(b"a file"), block * 21, 21));
        assert_eq!(write.stable, stable_how::UNSTABLE);
        assert_eq!(check_block(SEED, &write.data), Some(id(sequence)), "its own pattern");
    }
    for sequence in [3, 7] {
        let commit: COMMIT3args = args(&calls, id(sequence));
        assert_eq!((commit.file, commit.offset, commit.count), (handle(b"a file"), 0, 0));
    }
    assert!(!calls.is_uniform() && calls.request_len(id(3)) < calls.request_len_max());
}

#[test]
fn an_acknowledged_write_is_remembered_and_verifiers_stay() {
    let asked = writes();
    let NfsProcedure::Write { acknowledged, .. } = &asked else { unreachable!() };
    let mut calls = calls(&asked);
    let written = |id, count| reply(id, &[0, 0, 0, count, 0, 9, 9], None);
    let committed = |id, verifier| reply(id, &[0, 0, 0, verifier, verifier], None);
    assert_eq!(calls.check(&written(id(1), 21)), Answer::Right(id(1)));
    assert_eq!(calls.check(&committed(id(3), 9)), Answer::Right(id(3)));
    assert_eq!(acknowledged[1].load(Ordering::Relaxed), id(1));
    assert_eq!(acknowledged[0].load(Ordering::Relaxed), 0);
    assert_eq!(calls.complaint(), None);
    assert_eq!(calls.check(&committed(id(7), 8)), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("restarted"));
    let mut calls = self::calls(&asked);
    assert_eq!(calls.check(&written(id(2), 20)), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("WRITE of 21 bytes at 42 moved 20"));
    assert_eq!(calls.check(&reply(id(2), &[28, 0, 0], None)), Answer::Refused(id(2)), "no space");
}

#[test]
fn names_are_looked_up_in_turn_and_keep_their_handles() {
    let names = vec![(b"a".to_vec(), b"1".to_vec()), (b"longer".to_vec(), b"2".to_vec())];
    let mut calls = calls(&NfsProcedure::Lookup { dir: b"dir".to_vec(), names });
    for (sequence, name) in [(0, &b"a"[..]), (1, b"longer"), (2, b"a")] {
        let args: LOOKUP3args<'_> = args(&calls, id(sequence));
        assert_eq!(args.what, diropargs3 { dir: handle(b"dir"), name: filename3::from(name) });
    }
    let found = |id: u64, object: &[u8]| {
        let mut reply = reply(id, &[0], Some(object));
        reply.extend([0; 8]);
        reply
    };
    assert_eq!(calls.check(&found(id(1), b"2")), Answer::Right(id(1)), "{:?}", calls.complaint());
    assert_eq!(calls.check(&found(id(2), b"2")), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("another handle"));
}

#[test]
fn each_handle_of_getattr_has_its_own_file() {
    let mut calls = calls(&NfsProcedure::GetAttr { handles: vec![b"1".to_vec(), b"2".to_vec()] });
    let attributes = |id, file| {
        let mut results = [0; 22];
        (results[1], results[15]) = (1, file);
        reply(id, &results, None)
    };
    for (sequence, file) in [(0, 71), (1, 72), (2, 71), (3, 72)] {
        assert_eq!(calls.check(&attributes(id(sequence), file)), Answer::Right(id(sequence)));
    }
    assert_eq!(calls.check(&attributes(id(4), 72)), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("file 72, and before of file 71"));
}

#[test]
fn every_bit_counts_in_a_sum() {
    for len in [16, 31, 32, 33, 100] {
        let mut block: Vec<u8> = (0..len).collect();
        let sum = block_sum(&block);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(block_sum(&block), sum, "bit {bit} of {len} bytes");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        block.push(0);
        assert_ne!(block_sum(&block), sum, "a byte more than {len}");
    }
}
