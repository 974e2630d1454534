use proptest::prelude::*;

use super::*;

const LIMITS: RecordLimits = RecordLimits { record_bytes: 100, fragments: 4 };

/// `record` in fragments that end at `ends`, each limited to the record's length, and at its end.
fn marked(record: &[u8], ends: &[usize]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut at = 0;
    for end in ends {
        let end = (*end).clamp(at, record.len());
        stream.extend(mark((end - at) as u32, false));
        stream.extend(&record[at..end]);
        at = end;
    }
    stream.extend(mark((record.len() - at) as u32, true));
    stream.extend(&record[at..]);
    stream
}

/// All records of a stream that arrives in pieces, or the error that ends it.
fn read<'a>(
    limits: RecordLimits,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let mut reader = RecordReader::new(limits);
    let mut records = Vec::new();
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        assert!(piece.is_empty(), "all of it was used");
        let most = limits.record_bytes as usize + MARK_LEN * limits.fragments as usize;
        assert!(reader.kept.len() <= most, "{} bytes kept", reader.kept.len());
    }
    (records, None)
}

#[test]
fn a_whole_record_is_not_copied() {
    let stream = [marked(b"abcd", &[]), marked(b"", &[]), marked(b"efg", &[])].concat();
    let mut input = stream.as_slice();
    let mut reader = RecordReader::new(LIMITS);
    for (record, at) in [(&b"abcd"[..], 4), (b"", 12), (b"efg", 16)] {
        let found = reader.next(&mut input).expect("within limits").expect("a whole record");
        assert_eq!((found, found.as_ptr()), (record, stream[at..].as_ptr()));
    }
    assert_eq!(reader.next(&mut input), Ok(None));
    assert_eq!(reader.kept.capacity(), 0);
}

/// All records of a stream whose caller buffers it and always passes all unconsumed bytes.
fn read_kept(limits: RecordLimits, stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let (mut kept, mut joined, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let mut walked = Walked::default();
    for piece in stream.chunks(cut) {
        kept.extend(piece);
        let mut input = kept.as_slice();
        loop {
            match next(&mut input, limits, &mut joined, &mut walked) {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        kept = input.to_vec();
    }
    (records, None)
}

#[test]
fn the_first_mark_past_a_limit_ends_the_stream() {
    let empty = mark(0, false);
    let endless: Vec<u8> = empty.iter().copied().cycle().take(400).collect();
    let (records, error) = read(LIMITS, std::iter::once(endless.as_slice()));
    assert_eq!((records.len(), error), (0, Some(RecordError::TooManyFragments { max: 4 })));

    let large = mark(101, true);
    let error = read(LIMITS, std::iter::once(&large[..])).1;
    assert_eq!(error, Some(RecordError::TooLarge { len: 101, max: 100 }));
    let sum = marked(&[7; 101], &[60]);
    let error = read(LIMITS, std::iter::once(sum.as_slice())).1;
    assert_eq!(error, Some(RecordError::TooLarge { len: 101, max: 100 }), "fragments add up");
    let huge = [marked(&[1; 9], &[9])[..13].to_vec(), mark(0x7fff_ffff, true).to_vec()].concat();
    let error = read(RecordLimits { record_bytes: u32::MAX, ..LIMITS }, std::iter::once(huge.as_slice())).1;
    assert_eq!(error, None, "a sum above 2^31 is no overflow");
}

#[test]
fn a_mark_has_its_length_in_31_bits_and_the_last_one_in_the_first() {
    for len in [0, 1, 0x1234, 0x7fff_ffff] {
        assert_eq!(mark(len, false), len.to_be_bytes());
        assert_eq!(mark(len, true), (len | 1 << 31).to_be_bytes());
    }
    assert_eq!(mark(1 << 31 | 5, false), [0, 0, 0, 5]);
}

#[test]
fn without_any_fragment_allowed_no_record_is_taken() {
    let limits = RecordLimits { record_bytes: 100, fragments: 0 };
    let error = Some(RecordError::TooManyFragments { max: 0 });
    assert_eq!(read(limits, std::iter::once(&marked(b"abcd", &[])[..])), (vec![], error));
}

#[test]
fn what_is_missing_is_known_from_the_marks() {
    for ends in [&[][..], &[3, 3, 9]] {
        let stream = marked(b"a record of 20 bytes", ends);
        for len in 0..=stream.len() {
            // Up to the end of the first missing mark, or of the last fragment.
            let mut end = 0;
            while len >= end + MARK_LEN && end < stream.len() {
                let mark = fragment_header::from(*stream[end..].first_chunk().expect("a mark"));
                end += MARK_LEN + mark.fragment_length() as usize;
            }
            if end < stream.len() {
                end += MARK_LEN;
            }
            match measure(&stream[..len], LIMITS, &mut Walked::default()).expect("within limits") {
                Extent::Missing(missing) => assert!(missing > 0 && len + missing == end, "{ends:?}: {len}"),
                extent => assert_eq!((len, extent == Extent::Whole(20)), (stream.len(), ends.is_empty())),
            }
        }
    }
}

/// Input in very small pieces costs as much as input in one piece.
#[test]
fn each_mark_is_read_once_in_however_many_pieces_they_come() {
    let limits = RecordLimits { record_bytes: 65_536, fragments: 65_536 };
    let record = [7; 20_000];
    let ends: Vec<usize> = (1..record.len()).collect();
    let stream = marked(&record, &ends);
    let mut walked = Walked::default();
    // Without the last mark, which is read again until its fragment has arrived.
    for len in (0..stream.len() - 1).step_by(3) {
        let before = walked;
        assert!(
            matches!(measure(&stream[..len], limits, &mut walked), Ok(Extent::Missing(_))),
            "{len} bytes"
        );
        assert!(walked.at + MARK_LEN > len, "all marks that are there have been read");
        assert!(walked.fragments - before.fragments <= 1, "and none of them again");
    }
    assert_eq!(measure(&stream, limits, &mut walked), Ok(Extent::InFragments(stream.len())));
    assert_eq!(walked, Walked::default(), "ready for the next record");
    assert_eq!(read(limits, stream.chunks(3)), (vec![record.to_vec()], None));
}

#[test]
fn a_record_of_exactly_the_limit_is_taken() {
    let record = [7; 100];
    for ends in [&[][..], &[0, 0, 50], &[100, 100, 100]] {
        let stream = marked(&record, ends);
        assert_eq!(read(LIMITS, stream.chunks(3)), (vec![record.to_vec()], None), "{ends:?}");
    }
}

#[test]
fn memory_follows_what_came_not_what_was_announced() {
    let limits = RecordLimits { record_bytes: 1 << 20, fragments: 1 };
    let mut reader = RecordReader::new(limits);
    let stream = marked(&vec![1; 1 << 20], &[]);
    let (first, rest) = stream.split_at(10);
    assert_eq!(reader.next(&mut &*first), Ok(None));
    assert!(reader.is_unfinished() && reader.kept.capacity() < 64);
    let mut rest = rest;
    assert_eq!(reader.next(&mut rest).expect("within limits").map(<[u8]>::len), Some(1 << 20));
    assert!(!reader.is_unfinished());
    assert_eq!(reader.next(&mut rest), Ok(None));
    assert!(reader.kept.capacity() <= KEPT_MAX, "a large record's memory is given back");
}

proptest! {
    /// Neither how the stream is divided into reads, nor how records are divided into fragments, changes the result.
    #[test]
    fn any_pieces_give_the_same_records(
        records in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..100), proptest::collection::vec(0..100_usize, 0..4)),
            0..6,
        ),
        cuts in proptest::collection::vec(1..40_usize, 1..20),
    ) {
        let stream: Vec<u8> = records.iter().flat_map(|(record, ends)| marked(record, ends)).collect();
        let expected: Vec<Vec<u8>> = records.iter().map(|(record, _)| record.clone()).collect();
        prop_assert_eq!(read(LIMITS, std::iter::once(stream.as_slice())), (expected.clone(), None));
        prop_assert_eq!(read(LIMITS, stream.chunks(1)), (expected.clone(), None));
        prop_assert_eq!(read_kept(LIMITS, &stream, cuts[0]), (expected.clone(), None));
        let mut rest = stream.as_slice();
        let pieces = cuts.iter().cycle().map_while(|cut| {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            rest = left;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(read(LIMITS, pieces), (expected, None));
    }

    /// Arbitrary bytes, in any pieces, give the same records, the same error, and no more memory than the limit.
    #[test]
    fn noise_reads_alike_in_any_pieces(noise in proptest::collection::vec(0..6_u8, 0..400), cut in 1..9_usize) {
        let noise: Vec<u8> = noise.iter().map(|byte| [0, 0, 0, 1, 0x80, 9][usize::from(*byte)]).collect();
        let whole = read(LIMITS, std::iter::once(noise.as_slice()));
        prop_assert_eq!(&read(LIMITS, noise.chunks(cut)), &whole);
        prop_assert_eq!(read_kept(LIMITS, &noise, cut), whole);
    }
}
