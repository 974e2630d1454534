//! The steps of the table's changes in every order that the memory model allows (loom).

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

const RULES: (u32, Ageing) = (5, Ageing { max: 10, renew: 2 });

/// Two buckets, which all addresses share.
fn table() -> Arc<MacTable> {
    Arc::new(MacTable::with_size(1, 4, [1, 2]).expect("memory"))
}

impl MacTable {
    fn learned(&self, mac: u64, port: u16) -> Learned {
        self.learned_and(mac, port, |_, _, _| ())
    }

    fn learned_and(&self, mac: u64, port: u16, gone: impl Fn(u64, u16, u16)) -> Learned {
        self.learn(&self.place(mac, 0), port, RULES, 10, gone)
    }

    fn seen(&self, mac: u64) -> Option<u16> {
        self.lookup(&self.place(mac, 0), RULES.0, RULES.1)
    }
}

/// Runs a model; a thread is interrupted up to this many times.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(check);
}

#[test]
fn an_address_that_two_workers_enter_at_once_has_one_entry() {
    model(|| {
        let table = table();
        let other = Arc::clone(&table);
        let worker = thread::spawn(move || other.learned(5, 1));
        table.learned(5, 2);
        worker.join().expect("no panic");
        let mut entries = Vec::new();
        table.visit(
            0..2,
            Instant::from_nanos(u64::from(RULES.0) << TICK_BITS),
            Duration::from_secs(10),
            |entry| {
                entries.push(entry.port);
            },
        );
        assert!(entries.len() <= 1, "{entries:?}");
        let counted = table.learned_on(1) + table.learned_on(2);
        assert!(counted <= 1 && counted as usize >= entries.len());
        assert_eq!(table.seen(5), entries.first().copied());
    });
}

#[test]
fn a_flushed_address_is_not_found_though_another_one_takes_its_place() {
    model(|| {
        let table = table();
        table.learned(5, 1);
        let (other, flushed) = (Arc::clone(&table), Arc::new(AtomicBool::new(false)));
        let reader_flag = Arc::clone(&flushed);
        let reader = thread::spawn(move || {
            let flushed = reader_flag.load(Ordering::Acquire);
            (flushed, other.seen(5))
        });
        table.flush_port(1);
        flushed.store(true, Ordering::Release);
        // In the same bucket, and on the same port, of which it has the new generation.
        let place = table.place(5, 0);
        let same_bucket =
            (6..).find(|mac| table.place(*mac, 0).buckets == place.buckets).expect("half of them");
        assert_eq!(table.learned(same_bucket, 1), Learned::New);
        let (flushed, seen) = reader.join().expect("no panic");
        assert!(seen.is_none() || !flushed && seen == Some(1), "{seen:?}");
        assert_eq!((table.seen(5), table.seen(same_bucket)), (None, Some(1)));
    });
}

#[test]
fn an_address_that_moves_is_on_one_port_or_the_other_or_unknown() {
    model(|| {
        let table = table();
        table.learned(5, 1);
        let other = Arc::clone(&table);
        let reader = thread::spawn(move || other.seen(5));
        assert_eq!(table.learned(5, 2), Learned::Moved { from: 1 });
        let seen = reader.join().expect("no panic");
        assert!(matches!(seen, None | Some(1 | 2)), "{seen:?}");
        assert_eq!((table.seen(5), table.learned_on(1), table.learned_on(2)), (Some(2), 0, 1));
    });
}

/// What control does for an entry of the kernel, and what a worker does that ends one. `Shared::moved` increments the
/// number after the table has changed. An entry is void if the number differs from the one read before the table was.
#[test]
fn an_entry_of_the_kernels_is_void_or_right_though_two_workers_learn_an_address_at_once() {
    for was_known in [false, true] {
        model(move || {
            let (table, moves) = (table(), Arc::new(AtomicU32::new(0)));
            if was_known {
                table.learned(5, 3);
            }
            let learn = |port| {
                let (table, moves) = (Arc::clone(&table), Arc::clone(&moves));
                move || {
                    table.learned_and(5, port, |mac, vlan, _| {
                        assert_eq!((mac, vlan), (5, 0));
                        moves.fetch_add(1, Ordering::AcqRel);
                    })
                }
            };
            let other = thread::spawn(learn(1));
            let control = thread::spawn({
                let (table, moves) = (Arc::clone(&table), Arc::clone(&moves));
                move || {
                    let unmoved = moves.load(Ordering::SeqCst);
                    let port = table.seen(5)?;
                    let now = Instant::from_nanos(u64::from(RULES.0) << TICK_BITS);
                    table.known_until(&table.place(5, 0), port, now, RULES.1)?;
                    Some((port, unmoved))
                }
            });
            learn(2)();
            other.join().expect("no panic");
            let entry = control.join().expect("no panic");
            if let Some((port, _)) = entry.filter(|(_, unmoved)| *unmoved == moves.load(Ordering::SeqCst)) {
                // Unknown, if the age of the worker that was first was written last, over that of the other one.
                assert!(table.seen(5).is_none_or(|now| now == port), "it is in force");
            }
        });
    }
}
