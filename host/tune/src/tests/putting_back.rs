//! Tests of restoring settings that were changed by others, or whose interface was renamed, is gone, or is in another
//! namespace; and after a restart.

use twinpath_worker::idle::Mode;

use super::fake::Fake;
use crate::apply::{Done, Outcome};
use crate::journal::{JournalError, read};
use crate::{Id, State};

fn of(outcomes: &[Outcome], id: Id) -> &Outcome {
    outcomes.iter().find(|outcome| outcome.id == id).unwrap()
}

#[test]
fn what_somebody_else_has_changed_since_stays() {
    let mut fake = Fake::new();
    fake.apply();
    fake.put("sys/class/net/eth0/gro_flush_timeout", "5000");
    fake.put("sys/class/net/eth0/threaded", "1");
    let outcomes = fake.restore();
    let foreign = of(&outcomes, Id::GroFlushTimeout);
    assert_eq!((foreign.what, foreign.is.as_deref()), (Done::Foreign, Some("5000")));
    assert!(foreign.note.contains("it was 20000"), "{}", foreign.note);
    assert_eq!(of(&outcomes, Id::ThreadedNapi).what, Done::Already);
    assert_eq!(fake.get("sys/class/net/eth0/gro_flush_timeout"), "5000");
    assert!(!fake.journal_file().exists());
}

#[test]
fn what_somebody_else_has_set_between_two_applies_is_what_comes_back() {
    let mut fake = Fake::new();
    fake.apply();
    fake.put("sys/class/net/eth0/gro_flush_timeout", "5000");
    assert_eq!(fake.apply().len(), 1);
    fake.restore();
    assert_eq!(fake.get("sys/class/net/eth0/gro_flush_timeout"), "5000");
    assert_eq!(fake.get("sys/class/net/eth0/threaded"), "1");
}

#[test]
fn a_renamed_interface_is_found_by_its_index() {
    let mut fake = Fake::new();
    fake.apply();
    std::fs::rename(fake.path("sys/class/net/eth0"), fake.path("sys/class/net/lan0")).unwrap();
    std::fs::rename(fake.path("sys/fake/coalescing/eth0"), fake.path("sys/fake/coalescing/lan0")).unwrap();
    let outcomes = fake.restore_for(Some("eth0"));
    let threaded = of(&outcomes, Id::ThreadedNapi);
    assert_eq!((threaded.what, threaded.note.as_str()), (Done::Restored, "eth0 is called lan0 now"));
    assert_eq!(fake.get("sys/class/net/lan0/threaded"), "1");
    assert_eq!(fake.get("sys/fake/coalescing/lan0"), "adaptive-rx on, rx-usecs 50");
}

#[test]
fn a_new_interface_of_the_same_name_is_another_one() {
    let mut fake = Fake::new();
    fake.apply();
    fake.put("sys/class/net/eth0/ifindex", "8");
    let outcomes = fake.restore();
    let gone = of(&outcomes, Id::DeferredIrqs);
    assert_eq!((gone.what, gone.note.as_str()), (Done::Gone, "eth0 is gone; it was 2 there"));
    assert_eq!(fake.get("sys/class/net/eth0/napi_defer_hard_irqs"), "0");
    // Settings of the machine are restored anyway.
    assert_eq!(of(&outcomes, Id::Thp).what, Done::Restored);
    assert!(!fake.journal_file().exists());
}

#[test]
fn an_interrupt_that_is_another_ones_now_is_left_alone() {
    let mut fake = Fake::new();
    fake.apply();
    std::fs::rename(fake.path("proc/irq/41/eth0-TxRx-1"), fake.path("proc/irq/41/nvme0q1")).unwrap();
    let outcomes = fake.restore();
    let gone: Vec<_> = outcomes.iter().filter(|outcome| outcome.what == Done::Gone).collect();
    assert_eq!((gone.len(), gone[0].subject.as_str()), (1, "41 eth0-TxRx-1"));
    assert_eq!(fake.get("proc/irq/41/smp_affinity_list"), "2");
}

#[test]
fn after_a_restart_of_the_machine_there_is_nothing_of_ours_to_put_back() {
    let mut fake = Fake::new();
    fake.apply();
    fake.put("proc/sys/kernel/random/boot_id", "second-boot");
    let before = fake.everything();
    let outcomes = fake.restore();
    assert_eq!(outcomes.len(), 15);
    assert!(outcomes.iter().all(|outcome| outcome.what == Done::Gone), "{outcomes:?}");
    assert_eq!(fake.everything(), before);
    assert!(!fake.journal_file().exists());
}

#[test]
fn an_apply_after_a_restart_journals_what_is_now() {
    let mut fake = Fake::new();
    fake.apply();
    fake.put("proc/sys/kernel/random/boot_id", "second-boot");
    // After the restart some settings have other values, and some look as if they were still tuned.
    fake.put("sys/class/net/eth0/threaded", "2");
    fake.put("proc/sys/net/core/busy_poll", "10");
    let before = fake.everything();
    assert_eq!(fake.apply().len(), 2);
    assert_eq!(read(&fake.journal_file()).unwrap().unwrap().boot, "second-boot");
    fake.restore();
    assert_eq!(fake.everything(), before);
}

#[test]
fn another_network_namespace_keeps_its_own() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.apply();
    fake.namespace("net:[2]");
    let outcomes = fake.restore();
    let elsewhere = outcomes.iter().filter(|outcome| outcome.what == Done::Elsewhere).count();
    let kept = read(&fake.journal_file()).unwrap().unwrap().entries.len();
    assert_eq!((elsewhere, kept), (10, 10));
    fake.namespace("net:[1]");
    fake.restore();
    assert_eq!(fake.everything(), before);
}

#[test]
fn what_two_have_asked_for_is_put_back_with_the_last() {
    let mut fake = Fake::new();
    let before = fake.everything();
    fake.apply_for("eth0");
    assert!(fake.apply_for("machine").is_empty());
    assert!(fake.restore_for(Some("eth1")).is_empty());
    assert!(fake.restore_for(Some("eth0")).is_empty());
    assert!(fake.lines(Mode::Interrupt, &[1, 2]).iter().all(|line| line.state != State::Change));
    assert_eq!(fake.restore_for(Some("machine")).len(), 15);
    assert_eq!(fake.everything(), before);
}

#[test]
fn a_journal_that_is_none_is_an_error_and_nothing_is_touched() {
    let mut fake = Fake::new();
    fake.apply();
    let text = std::fs::read_to_string(fake.journal_file()).unwrap();
    let before = fake.everything();
    for (wrong, why) in [
        (String::new(), "EOF"),
        (text[..text.len() / 2].to_owned(), "EOF"),
        (text.replace("\"version\": 2", "\"version\": 3"), "version 3"),
        (text.replace("huge-pages", "nonesuch"), "nonesuch"),
    ] {
        std::fs::write(fake.journal_file(), &wrong).unwrap();
        let error = fake.journal().unwrap_err();
        assert!(matches!(error, JournalError::Parse { .. }) && error.to_string().contains(why), "{error}");
        assert_eq!(std::fs::read_to_string(fake.journal_file()).unwrap(), wrong);
    }
    assert_eq!(fake.everything(), before);
    std::fs::write(fake.journal_file(), text).unwrap();
    let held = fake.journal().unwrap();
    assert!(matches!(fake.journal(), Err(JournalError::Busy { .. })));
    drop(held);
    assert_eq!(fake.restore().len(), 15);
}
