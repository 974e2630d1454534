//! Tests of a crash at every step of an apply, and of refused changes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use twinpath_worker::idle::Mode;

use super::fake::Fake;
use crate::apply::Done;
use crate::journal::{JournalError, Stage, read};
use crate::restore::recover;
use crate::{Id, State, Trouble};

#[test]
fn what_was_applied_is_as_advised_and_comes_back_exactly() {
    let mut fake = Fake::new();
    let before = fake.everything();
    let outcomes = fake.apply();
    assert_eq!(outcomes.len(), 15);
    assert!(outcomes.iter().all(|outcome| outcome.what == Done::Applied), "{outcomes:?}");
    assert_eq!(fake.get("proc/irq/41/smp_affinity_list"), "2");
    assert_eq!(fake.get("sys/fake/coalescing/eth0"), "adaptive-rx off, rx-usecs 0");
    assert!(fake.lines(Mode::Interrupt, &[1, 2]).iter().all(|line| line.state != State::Change));
    assert!(fake.apply().is_empty(), "nothing is left to change");
    let outcomes = fake.restore();
    assert_eq!(outcomes.len(), 15);
    assert!(outcomes.iter().all(|outcome| outcome.what == Done::Restored), "{outcomes:?}");
    assert_eq!(fake.everything(), before);
    assert!(!fake.journal_file().exists(), "an empty journal is none");
    assert!(fake.restore().is_empty());
}

#[test]
fn a_second_apply_keeps_the_first_values() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.apply();
    let lines = fake.lines(Mode::Poll, &[1]);
    let mut journal = fake.journal().unwrap();
    crate::apply::apply(&mut fake, &mut journal, &lines, "eth0").unwrap();
    drop(journal);
    assert_eq!(fake.get("proc/irq/41/smp_affinity_list"), "0");
    fake.restore();
    assert_eq!(fake.everything(), before);
}

#[test]
fn dying_at_any_write_leaves_nothing_behind_after_the_next_start() {
    let writes = Fake::new().apply().len();
    for number in 0..writes {
        for written in [false, true] {
            for at_next_apply in [false, true] {
                let mut fake = Fake::new();
                let before = fake.everything();
                fake.dies_at = Some((number, written));
                catch_unwind(AssertUnwindSafe(|| fake.apply())).unwrap_err();
                let record = read(&fake.journal_file()).unwrap().unwrap();
                assert!(record.entries.iter().all(|entry| entry.stage == Stage::Intended));
                assert_eq!(record.entries.len(), writes);
                fake.dies_at = None;
                if at_next_apply {
                    let mut journal = fake.journal().unwrap();
                    assert_eq!(recover(&mut fake, &mut journal).unwrap().len(), writes);
                } else {
                    fake.restore();
                }
                assert_eq!(fake.everything(), before, "write {number}, written {written}");
                assert!(!fake.journal_file().exists());
            }
        }
    }
}

#[test]
fn dying_while_putting_back_is_made_up_for() {
    for number in 0..15 {
        for written in [false, true] {
            let mut fake = Fake::new();
            let before = fake.everything();
            fake.apply();
            fake.dies_at = Some((fake.writes + number, written));
            catch_unwind(AssertUnwindSafe(|| fake.restore())).unwrap_err();
            fake.dies_at = None;
            fake.restore();
            assert_eq!(fake.everything(), before, "write {number}, written {written}");
        }
    }
}

#[test]
fn dying_in_a_second_apply_puts_back_what_the_first_had_found() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.apply();
    fake.dies_at = Some((fake.writes, true));
    let lines = fake.lines(Mode::Poll, &[1]);
    let second = |fake: &mut Fake| {
        let mut journal = fake.journal().unwrap();
        crate::apply::apply(fake, &mut journal, &lines, "eth0").unwrap();
    };
    catch_unwind(AssertUnwindSafe(|| second(&mut fake))).unwrap_err();
    fake.dies_at = None;
    fake.restore();
    assert_eq!(fake.everything(), before);
}

#[test]
fn a_device_that_rounds_is_put_back_also_after_dying() {
    for dies in [false, true] {
        let mut fake = Fake::new();
        let before = fake.everything();
        fake.coarse_us = Some(4);
        // The fourth write is that of the coalescing.
        fake.dies_at = dies.then_some((3, true));
        let applied = catch_unwind(AssertUnwindSafe(|| fake.apply()));
        assert_eq!(applied.is_err(), dies);
        if let Ok(outcomes) = applied {
            assert_eq!((outcomes[3].id, outcomes[3].what), (Id::Coalescing, Done::Rounded));
        }
        assert_eq!(fake.get("sys/fake/coalescing/eth0"), "adaptive-rx off, rx-usecs 4");
        fake.dies_at = None;
        fake.restore();
        assert_eq!(fake.everything(), before, "dies {dies}");
    }
}

#[test]
fn what_is_refused_is_told_and_the_rest_is_done() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.refuses.push(("irq/40", Trouble::Refused("Input/output error (os error 5)".to_owned())));
    fake.refuses.push(("threaded", Trouble::Denied("Operation not permitted (os error 1)".to_owned())));
    let outcomes = fake.apply();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.what == Done::Failed).collect();
    assert_eq!(
        failed.iter().map(|outcome| outcome.id).collect::<Vec<_>>(),
        [Id::IrqAffinity, Id::ThreadedNapi]
    );
    assert!(failed[0].note.contains("os error 5") && failed[1].note.contains("run as root"));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.what == Done::Applied).count(), 13);
    let entries = read(&fake.journal_file()).unwrap().unwrap().entries;
    assert_eq!(entries.len(), 13, "what was refused needs no putting back");
    // If restoring is refused, the entry stays in the journal until it works.
    fake.refuses = vec![("busy_poll", Trouble::Refused("Invalid argument (os error 22)".to_owned()))];
    let refused: Vec<_> = fake.restore().into_iter().filter(|outcome| outcome.what == Done::Failed).collect();
    assert_eq!((refused.len(), refused[0].id), (1, Id::BusyPoll));
    fake.refuses.clear();
    assert_eq!(fake.restore().len(), 1);
    assert_eq!(fake.everything(), before);
}

#[test]
fn without_a_journal_on_disk_nothing_is_touched() {
    let mut fake = Fake::new();
    let before = fake.everything();
    let lines = fake.lines(Mode::Interrupt, &[1, 2]);
    let mut journal = fake.journal().unwrap();
    // The temporary file beside it cannot be created.
    std::fs::create_dir(fake.path("run/tune.new")).unwrap();
    let refused = crate::apply::apply(&mut fake, &mut journal, &lines, "eth0");
    assert!(matches!(refused, Err(JournalError::Write { .. })), "{refused:?}");
    assert_eq!(fake.everything(), before);
}

#[test]
fn a_disk_that_fills_up_meanwhile_still_has_the_former_values() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.fills_up = true;
    let lines = fake.lines(Mode::Interrupt, &[1, 2]);
    let mut journal = fake.journal().unwrap();
    let refused = crate::apply::apply(&mut fake, &mut journal, &lines, "eth0");
    assert!(matches!(refused, Err(JournalError::Behind { .. })), "{refused:?}");
    drop(journal);
    assert_ne!(fake.everything(), before);
    // Removing it needs no disk space.
    fake.restore();
    assert_eq!(fake.everything(), before);
    assert!(!fake.journal_file().exists());
}
