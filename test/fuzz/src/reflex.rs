//! Fuzzes kept replies: the table finds what a list of all publications has, and never anything else.

use twinpath_reflex::{
    Generations, HashKeys, Kept, Name, Publication, REQUEST_MAX, Shape, Table, Version, WhyNot, generations,
    hash, withdraw,
};
use twinpath_time::{Duration, Instant};

use crate::fuzz;

const SHAPES: [Shape; 4] = [
    Shape::EXACT.copying(0, 2, 0),
    Shape::EXACT.copying(0, 4, 0).ignoring(6, 2),
    Shape::EXACT.copying(1, 1, 3).copying(3, 1, 1),
    Shape::EXACT,
];

/// A publication that was accepted.
#[derive(Clone)]
struct Listed {
    number: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
    version: Version,
    until: Instant,
}

fn masked(shape: &Shape, request: &[u8]) -> Vec<u8> {
    let mut key = request.to_vec();
    shape.clear(&mut key);
    key
}

/// What the list has for a request: the first of the shapes that has a valid entry.
fn listed(
    list: &[Listed],
    is_current: impl Fn(Version) -> bool,
    now: Instant,
    request: &[u8],
) -> Option<Vec<u8>> {
    (0..SHAPES.len()).find_map(|number| {
        let shape = &SHAPES[number];
        let same =
            |one: &&Listed| one.number == number && masked(shape, &one.request) == masked(shape, request);
        let last = list.iter().rev().find(same)?;
        let mut reply = (is_current(last.version) && last.until > now).then(|| last.reply.clone())?;
        for (bytes, to) in shape.copies(request) {
            reply[to..to + bytes.len()].copy_from_slice(bytes);
        }
        Some(reply)
    })
}

/// Takes the next bytes of the input as numbers; zeros follow its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self, below: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first % below
    }

    /// A request: few values, so that requests meet, and a length that is sometimes at a limit.
    fn request(&mut self) -> Vec<u8> {
        let len = match self.next(8) {
            0 => usize::from(self.next(10)),
            1 => REQUEST_MAX - usize::from(self.next(2)),
            2 => REQUEST_MAX + 1,
            _ => 8,
        };
        let start: [u8; 8] = std::array::from_fn(|_| self.next(3));
        (0..len).map(|at| start.get(at).copied().unwrap_or(7)).collect()
    }
}

fn check(input: &[u8]) {
    let mut bytes = Bytes(input);
    let (mut table, words) = (Table::new(8 << bytes.next(4), 5), generations());
    let words = words.words();
    // What was accepted, and of that what was written, as long as nothing was evicted.
    let (mut accepted, mut list, mut late) = (Vec::new(), Vec::<Listed>::new(), Vec::new());
    let (mut now, mut evicted) = (Instant::from_nanos(1), false);
    while !bytes.0.is_empty() {
        match bytes.next(8) {
            // A reply is made, and published at once or later.
            made @ 0..3 => {
                let number = usize::from(bytes.next(SHAPES.len() as u8));
                let (name, request) = (Name::numbered(u64::from(bytes.next(4))), bytes.request());
                let mut reply: Vec<u8> = (0..bytes.next(12)).collect();
                for (copied, to) in SHAPES[number].copies(&request) {
                    reply.resize(reply.len().max(to + copied.len()), 9);
                    reply[to..to + copied.len()].copy_from_slice(copied);
                }
                let until = now + Duration::from_nanos(u64::from(bytes.next(20)));
                late.push(Listed { number, request, reply, version: Version::now(words, name), until });
                if made == 0 {
                    continue;
                }
                let one = late.swap_remove(usize::from(bytes.next(8)) % late.len());
                let Listed { request, reply, version, until, .. } = &one;
                let shape = &SHAPES[one.number];
                let publication = Publication { request, reply, shape, version: *version, until: *until };
                let kept = table.publish(now, 0, &SHAPES, words, &publication);
                assert_eq!(kept.is_ok(), publication.check(now, &SHAPES, words).is_ok());
                evicted |= kept == Ok(Kept::Evicting);
                if kept.is_ok() {
                    let same = |other: &&Listed| {
                        other.number == one.number
                            && masked(shape, &other.request) == masked(shape, &one.request)
                    };
                    let former = list.iter().rev().find(same);
                    accepted.push(one.clone());
                    if !former.is_some_and(|it| publication.is_covered_by(now, it.version, it.until)) {
                        list.push(one);
                    }
                }
            }
            3 => withdraw(words, Name::numbered(u64::from(bytes.next(4)))),
            4 => now += Duration::from_nanos(u64::from(bytes.next(8))),
            _ => {
                let (request, mut reply) = (bytes.request(), Vec::new());
                let found = table.find(now, 0, &SHAPES, words, &request, &mut reply);
                let expected = listed(&list, |version| version.is_current(words), now, &request);
                match found {
                    // What was evicted may have hidden what another shape has.
                    Ok(()) => assert!(evicted || Some(&reply) == expected.as_ref()),
                    Err(WhyNot::RequestTooLong) => assert!(request.len() > REQUEST_MAX),
                    Err(why) => assert!(evicted || expected.is_none(), "{}", why.name()),
                }
                if found.is_ok() {
                    let own = accepted.iter().any(|one| {
                        listed(std::slice::from_ref(one), |version| version.is_current(words), now, &request)
                            .is_some_and(|of_one| of_one == reply)
                    });
                    assert!(own, "a reply that was published, and is valid");
                }
            }
        }
        assert!(table.len() <= table.capacity());
    }
}

#[test]
fn any_steps() {
    fuzz!("reflex__any_steps", check);
}

/// The hash depends on the bytes that matter and on the length, and on nothing else.
#[test]
fn hashes() {
    fuzz!("reflex__hashes", |input: &[u8]| {
        let keys = HashKeys::new(1);
        for (number, shape) in (0..).zip(&SHAPES) {
            let mut cleared = input.to_vec();
            shape.clear(&mut cleared);
            assert_eq!(hash(&keys, 2, number, shape, input), hash(&keys, 2, number, shape, &cleared));
            let masked = input.chunks(8).enumerate().all(|(at, bytes)| {
                let word = |bytes: &[u8]| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                };
                word(bytes) & shape.mask(at) == word(&cleared[8 * at..8 * at + bytes.len()])
            });
            assert!(masked, "the mask of words says the same as the ranges");
        }
    });
}
