//! Random sequences of applies, restores, crashes in both, and changes by others: in the end everything is as the
//! others last left it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use twinpath_worker::idle::Mode;

use super::fake::Fake;
use crate::apply::apply;
use crate::restore::recover;

/// The settings that others change as well, each with a value that is never advised.
const OTHERS: [&str; 5] = [
    "sys/class/net/eth0/gro_flush_timeout",
    "sys/class/net/eth0/threaded",
    "sys/class/net/eth0/napi_defer_hard_irqs",
    "proc/sys/net/core/busy_poll",
    "proc/sys/net/core/busy_read",
];

/// Does what `tune eth0 --apply` does.
fn tune(fake: &mut Fake, mode: Mode, cpus: &[usize]) {
    let mut journal = fake.journal().unwrap();
    recover(fake, &mut journal).unwrap();
    let lines = fake.lines(mode, cpus);
    apply(fake, &mut journal, &lines, "eth0").unwrap();
}

#[test]
fn whatever_happens_everything_comes_back_as_others_left_it() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fake = Fake::new();
        let mut expected: BTreeMap<_, _> = fake.everything();
        for _ in 0..random.usize(1..12) {
            let dies = random.bool();
            fake.dies_at = dies.then(|| (fake.writes + random.usize(0..14), random.bool()));
            match random.u8(0..6) {
                0..=2 => {
                    let mode = Mode::ALL[random.usize(0..3)];
                    let cpus: &[usize] = [&[1][..], &[1, 2], &[3], &[]][random.usize(0..4)];
                    let _ = catch_unwind(AssertUnwindSafe(|| tune(&mut fake, mode, cpus)));
                }
                3 => _ = catch_unwind(AssertUnwindSafe(|| fake.restore())),
                _ => {
                    let path = random.choice(OTHERS).unwrap();
                    let value = random.u32(1000..9999).to_string();
                    fake.put(path, &value);
                    expected.insert(fake.path(path), value);
                }
            }
        }
        fake.dies_at = None;
        fake.restore();
        assert_eq!(fake.everything(), expected, "seed {seed}");
        assert!(!fake.journal_file().exists(), "seed {seed}");
    }
}
