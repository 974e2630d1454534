//! Tests both ends of the rings against each other: our producer stands in for the kernel's, our consumer for the
//! kernel's consumer, over one memfd that is mapped twice, as with the kernel.

use super::*;

const LEN: u32 = 8;
const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };

fn ends() -> (Producer<u64>, Consumer<u64>) {
    let (first, memfd) = Mapping::of_memfd("ring-test", 4096).expect("memory");
    let second = Mapping::of_fd(&memfd, 4096, 0).expect("memory");
    (
        Producer::new(first, OFFSETS, LEN).expect("layout"),
        Consumer::new(second, OFFSETS, LEN).expect("layout"),
    )
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let (mut producer, mut consumer) = ends();
    assert!(producer.write(7));
    assert!(!consumer.look());
    assert_eq!(consumer.take(8, |_| panic!("not published")), 0);
    producer.publish();
    assert!(consumer.look());
    let mut seen = vec![];
    assert_eq!(consumer.take(8, |entry| seen.push(entry)), 1);
    assert_eq!(seen, [7]);
}

#[test]
fn a_full_ring_takes_no_more_until_something_is_taken() {
    let (mut producer, mut consumer) = ends();
    for entry in 0..u64::from(LEN) {
        assert!(producer.write(entry));
    }
    assert!(!producer.write(99));
    producer.publish();
    assert_eq!((producer.free(1), producer.pending()), (0, LEN));
    let mut seen = vec![];
    assert_eq!(consumer.take(3, |entry| seen.push(entry)), 3);
    assert_eq!(producer.free(3), 3);
    for entry in 8..11 {
        assert!(producer.write(entry));
    }
    producer.publish();
    while consumer.take(LEN, |entry| seen.push(entry)) > 0 {}
    assert_eq!(seen, (0..11).collect::<Vec<_>>());
}

#[test]
fn a_layout_outside_the_mapping_is_refused() {
    let map = || Mapping::of_memfd("ring-test", 4096).expect("memory").0;
    for bad in [
        Offsets { producer: 4096, ..OFFSETS },
        Offsets { consumer: 3, ..OFFSETS },
        Offsets { entries: 4096 - 8, ..OFFSETS },
        Offsets { flags: u64::MAX, ..OFFSETS },
    ] {
        assert!(Producer::<u64>::new(map(), bad, LEN).is_err());
    }
    assert!(Consumer::<u64>::new(map(), OFFSETS, 7).is_err());
}
