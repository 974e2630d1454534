use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::corpus::{self, Corpus};

static CORPUS: LazyLock<Corpus> = LazyLock::new(|| corpus::all().unwrap());

#[test]
fn the_corpus_holds() {
    let corpus = &*CORPUS;
    assert!(corpus.cases.len() >= 60, "{} cases", corpus.cases.len());
    let wrong: Vec<_> = corpus
        .cases
        .iter()
        .filter_map(|case| {
            let found = verdict(&case.frame, &case.context, &corpus.tables[&case.table]);
            (found != case.verdict).then(|| format!("{}: {found:?}, not {:?}", case.name, case.verdict))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_corpus_knows_every_verdict() {
    let corpus = &*CORPUS;
    for number in 0..Verdict::NUMBERS as u8 {
        let name = Verdict::name_of(number).unwrap();
        assert!(corpus.cases.iter().any(|case| case.verdict.number() == number), "no case is {name}");
    }
    assert_eq!(Verdict::name_of(Verdict::NUMBERS as u8), None);
}

#[test]
fn the_corpus_marks_cases_that_test_runs_cannot_express() {
    for case in &CORPUS.cases {
        // What Linux 6.18 accepts in a test run, net/bpf/test_run.c.
        let table = &CORPUS.tables[&case.table];
        // The programs at XDP have no connections.
        let connections = table.claims().iter().any(|claim| claim.connections);
        let invisible = case.context != Context::default() || connections;
        assert_eq!(case.not_xdp.is_some(), invisible || case.frame.len() < 14, "{}", case.name);
        let least = match case.frame.get(12..14) {
            Some([0x08, 0x00]) => 34,
            Some([0x86, 0xdd]) => 54,
            _ => 15,
        };
        let refused = case.context.tag.is_some() || case.frame.len() < least;
        assert_eq!(case.not_filter.is_some(), refused, "{}", case.name);
    }
}

#[test]
fn numbers_and_names_are_one_to_one() {
    for (index, reason) in PassReason::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(Verdict::Pass(reason).number()), index + 1);
        assert_eq!(Verdict::name_of(reason as u8), Some(reason.name()));
    }
}

proptest! {
    #[test]
    fn any_bytes_get_a_verdict_and_only_sound_ones_are_claimed(
        pick in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep in any::<prop::sample::Index>(),
        cut: bool,
    ) {
        let corpus = &*CORPUS;
        let case = pick.get(&corpus.cases);
        let table = &corpus.tables[&case.table];
        let mut frame = case.frame.clone();
        for (at, byte) in changes.iter().filter(|_| !case.frame.is_empty()) {
            let at = at.index(frame.len().min(80));
            frame[at] = *byte;
        }
        if cut {
            frame.truncate(keep.index(frame.len() + 1));
        }
        let found = verdict(&frame, &case.context, table);
        if let Verdict::Claimed(index) | Verdict::ClaimedLarge(index) = found {
            prop_assert!(usize::from(index) < table.claims().len());
            prop_assert_eq!(&frame[..6], &table.mac().0[..]);
        }
        if let Verdict::Claimed(_) = found {
            prop_assert!(frame.len() <= table.frame_len_max() as usize);
        }
    }
}
