//! The table with one thread.

use super::*;
use crate::learning::arrival::mac_of;

const AGEING: Duration = Duration::from_secs(300);
const SEED: [u64; 2] = [11, 12];

fn at(seconds: u64) -> Instant {
    Instant::from_nanos((1000 + seconds) * 1_000_000_000)
}

impl MacTable {
    fn learn_at(&self, seconds: u64, mac: u64, port: u16) -> Learned {
        self.learn(&self.place(mac, 1), port, (tick_of(at(seconds)), Ageing::new(AGEING)), 100, |_, _, _| ())
    }

    fn seen(&self, seconds: u64, mac: u64) -> Option<u16> {
        self.lookup(&self.place(mac, 1), tick_of(at(seconds)), Ageing::new(AGEING))
    }
}

#[test]
fn an_address_is_learned_moves_and_is_forgotten_after_the_ageing_time() {
    let table = MacTable::new(CAPACITY, SEED).expect("memory");
    assert_eq!(table.seen(0, 5), None);
    assert_eq!(table.learn_at(0, 5, 7), Learned::New);
    assert_eq!(table.learn_at(1, 5, 7), Learned::Known);
    assert_eq!((table.seen(1, 5), table.seen(300, 5), table.seen(320, 5)), (Some(7), Some(7), None));
    assert_eq!(table.learn_at(200, 5, 7), Learned::Known);
    assert_eq!((table.seen(500, 5), table.seen(520, 5)), (Some(7), None));
    assert_eq!(table.learn_at(210, 5, 8), Learned::Moved { from: 7 });
    assert_eq!((table.learned_on(7), table.learned_on(8), table.seen(210, 5)), (0, 1, Some(8)));
    assert_eq!(table.learn_at(1000, 5, 9), Learned::New, "it was too old to have moved");
    assert_eq!((table.learned_on(8), table.learned_on(9)), (0, 1));
}

#[test]
fn a_flushed_port_and_a_forgotten_address_have_no_entries() {
    let table = MacTable::new(CAPACITY, SEED).expect("memory");
    assert!((0..20).all(|mac| table.learn_at(0, mac, (mac % 2) as u16) == Learned::New));
    table.flush_port(1);
    assert_eq!((table.seen(0, 4), table.seen(0, 5)), (Some(0), None));
    assert_eq!((table.learned_on(0), table.learned_on(1)), (10, 10), "their places are not freed yet");
    assert_eq!(table.learn_at(0, 5, 0), Learned::New, "it has not moved: nothing was known of it");
    assert_eq!(table.sweep(0..table.parts(), at(0), AGEING, |_| true), 9);
    assert_eq!((table.learned_on(0), table.learned_on(1)), (11, 0));
    [(4, 1), (4, 1), (5, 2)].into_iter().for_each(|(mac, vlan)| table.forget(mac_of(mac), vlan));
    assert_eq!(table.learned_on(0), 10);
    table.flush();
    assert!((0..20).all(|mac| table.seen(0, mac).is_none()));
}

#[test]
fn a_port_has_no_more_addresses_than_its_limit() {
    let table = MacTable::new(CAPACITY, SEED).expect("memory");
    let learned: Vec<_> = (0..101).map(|mac| table.learn_at(0, mac, 3)).collect();
    assert!(learned[..100].iter().all(|learned| *learned == Learned::New));
    assert_eq!((learned[100], table.seen(0, 100)), (Learned::Limited, None));
    table.learn_at(0, 500, 4);
    assert_eq!(table.learn_at(0, 500, 3), Learned::Limited, "nor may one move there");
    assert_eq!(table.seen(0, 500), Some(4));
    assert_eq!(table.learn_at(400, 600, 3), Learned::Limited, "places of old addresses are not free yet");
    assert_eq!(table.sweep(0..table.parts(), at(400), AGEING, |_| true), 101);
    assert_eq!(table.learn_at(400, 600, 3), Learned::New);
}

#[test]
fn entries_are_shown_with_their_age_and_swept_by_vlan() {
    let table = MacTable::new(0, SEED).expect("memory");
    table.learn_at(0, 0xa, 1);
    table.learn(&table.place(0xb, 2), 1, (tick_of(at(100)), Ageing::new(AGEING)), 100, |_, _, _| ());
    table.set_static(mac_of(0xc), 3, 9).expect("room");
    let shown = |seconds| {
        let mut shown = Vec::new();
        table.visit(0..usize::MAX, at(seconds), AGEING, |entry| {
            shown.push((entry.mac.0[5], entry.vlan, entry.port, entry.age.map(|age| age.as_secs() / 10)));
        });
        shown.sort_unstable();
        shown
    };
    assert_eq!(shown(120), [(0xa, 1, 1, Some(12)), (0xb, 2, 1, Some(2)), (0xc, 3, 9, None)]);
    assert_eq!(shown(350), [(0xb, 2, 1, Some(25)), (0xc, 3, 9, None)]);
    assert_eq!(table.sweep(0..table.parts(), at(120), AGEING, |entry| entry.vlan != 2), 1);
    assert_eq!(shown(120), [(0xa, 1, 1, Some(12)), (0xc, 3, 9, None)]);
}

#[test]
fn a_static_entry_replaces_what_was_learned_and_is_removed_only_as_one() {
    let table = MacTable::new(0, SEED).expect("memory");
    table.learn_at(0, 5, 1);
    table.set_static(mac_of(5), 1, 2).expect("room");
    assert_eq!((table.learned_on(1), table.learned_on(2), table.seen(9_999_999, 5)), (0, 0, Some(2)));
    assert_eq!(table.learn_at(0, 5, 1), Learned::Static);
    table.flush();
    table.forget(mac_of(5), 1);
    assert_eq!(table.sweep(0..table.parts(), at(0), AGEING, |_| false), 0);
    assert_eq!(table.seen(0, 5), Some(2));
    table.set_static(mac_of(5), 1, 3).expect("room");
    assert_eq!(table.seen(0, 5), Some(3));
    table.remove_static(mac_of(5), 1);
    assert_eq!(table.seen(0, 5), None);
    assert_eq!(table.learn_at(0, 5, 1), Learned::New);
}

/// The same two buckets for all of them.
fn meeting(table: &MacTable, count: usize) -> Vec<u64> {
    let wanted = table.place(0, 1).buckets;
    (0..)
        .map(|number| number << 11)
        .filter(|mac| table.place(*mac, 1).buckets[0] == wanted[0])
        .take(count)
        .collect()
}

#[test]
fn full_buckets_learn_nothing_more_until_an_address_is_too_old() {
    let table = MacTable::new(0, SEED).expect("memory");
    let macs = meeting(&table, 200);
    let results: Vec<_> = macs.iter().map(|mac| table.learn_at(0, *mac, 1)).collect();
    let full = results.iter().position(|result| *result == Learned::Full);
    assert!(full.is_none_or(|full| full >= 2 * WIDTH), "an address has sixteen places");
    table.flush();
    let again = macs.iter().filter(|mac| table.learn_at(1, **mac, 2) == Learned::New).count();
    assert!(again >= 2 * WIDTH, "{again}: places of flushed addresses are used again");
    assert_eq!(table.learned_on(1) as usize + table.learned_on(2) as usize, table.places_in_use());
    let aged = macs.iter().filter(|mac| table.learn_at(1000, **mac, 3) == Learned::New).count();
    assert!(aged >= 2 * WIDTH, "{aged}: places of old addresses are used again");
}

impl MacTable {
    fn places_in_use(&self) -> usize {
        let mut used = 0;
        self.each(0..self.parts(), 0, Ageing::new(AGEING), |_, _, _| used += 1);
        used
    }
}

#[test]
fn two_million_addresses_meet_a_bounded_table() {
    let table = MacTable::new(CAPACITY, SEED).expect("memory");
    let bytes = table.memory_bytes();
    let mac = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
    let rules = (tick_of(at(0)), Ageing::new(AGEING));
    let (mut new, mut full, mut full_early) = (0, 0, 0);
    for number in 0..2_000_000 {
        match table.learn(&table.place(mac(number), 1), (number % 50) as u16, rules, u32::MAX, |_, _, _| ()) {
            Learned::New => new += 1,
            Learned::Full => {
                full += 1;
                full_early += u32::from(number < u64::from(CAPACITY));
            }
            other => panic!("{other:?} for an address that was never there"),
        }
    }
    assert_eq!((new + full, table.memory_bytes()), (2_000_000, bytes));
    assert!(new > 125_000 && new <= 131_072, "{new}: nearly every place is in use");
    assert!(full_early < CAPACITY / 1000, "{full_early} of the first {CAPACITY} found no place");
    let found = (0..2_000_000).filter(|number| {
        let port = table.lookup(&table.place(mac(*number), 1), rules.0, rules.1);
        assert!(port.is_none_or(|port| port == (number % 50) as u16), "never another port");
        port.is_some()
    });
    assert_eq!(found.count(), new);
}

#[test]
fn addresses_that_meet_under_one_key_do_not_under_another() {
    let known = MacTable::new(0, SEED).expect("memory");
    let hostile = meeting(&known, 300);
    let secret = MacTable::new(0, [21, 22]).expect("memory");
    let learned =
        hostile.iter().filter(|mac| secret.learn_at(0, **mac, (**mac >> 11) as u16 % 50) == Learned::New);
    assert_eq!(learned.count(), 300);
}

/// Workers learn and look up, control flushes, frees and shows, all at once. An address is only ever on two ports.
#[test]
fn with_several_threads_no_address_is_found_on_a_port_that_it_never_was_on() {
    const ROUNDS: u32 = 60_000;
    const MACS: u64 = 600;
    let table = MacTable::with_size(5, 64, SEED).expect("memory");
    let ports_of = |mac: u64| [(mac % 7) as u16, (mac % 11 + 20) as u16];
    // Few bits, so that addresses meet: only those that still fit beside their port.
    let place = |mac: u64| table.place(mac, 0);
    std::thread::scope(|scope| {
        for worker in 0..3_u64 {
            let table = &table;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(worker);
                for round in 0..ROUNDS {
                    // Time goes on, so that places of old addresses are taken.
                    let tick = round / 64;
                    let rules = Ageing { max: 40, renew: 2 };
                    let (learned, asked) = (random.u64(..MACS), random.u64(..MACS));
                    let port = ports_of(learned)[usize::from(random.bool())];
                    table.learn(&place(learned), port, (tick, rules), 50, |_, _, _| ());
                    if let Some(found) = table.lookup(&place(asked), tick, rules) {
                        assert!(ports_of(asked).contains(&found), "{asked} on {found}");
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(99);
            for _ in 0..2_000 {
                table.flush_port(random.u16(..64));
                table.forget(mac_of(random.u64(..MACS)), 0);
                let part = random.usize(..table.parts());
                table.sweep(part..part + 4, at(0), AGEING, |entry| entry.mac.0[5] % 5 != 0);
                table.visit(0..8, at(0), AGEING, |entry| {
                    assert!(ports_of(number_of(entry.mac)).contains(&entry.port), "{entry:?}");
                });
            }
        });
    });
    let counted: u32 = (0..64).map(|port| table.learned_on(port)).sum();
    assert_eq!(counted as usize, table.places_in_use(), "every place is counted once");
    let mut seen = std::collections::HashSet::new();
    for number in 0..table.parts() as u32 {
        table.each(number as usize..number as usize + 1, 0, Ageing::new(AGEING), |_, name, _| {
            assert!(
                seen.insert(table.places.back(name.upper(), number, name.choice())),
                "two entries of one address"
            );
        });
    }
}
