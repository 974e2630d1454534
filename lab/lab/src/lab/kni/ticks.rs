//! The row of waiting for timer ticks: compares every distribution of our modes with plain veth.

use std::collections::BTreeMap;

use twinpath_sys::clock;

use super::TICK;
use super::measure::{TICK_NEAR, TIMES, captured_rows};
use super::modes::Mode;
use super::tick::{self, Excess, Near};
use crate::lab::model::Sample;
use crate::lab::record::Record;

/// The modes that are judged. The effect of a kernel service on the walk has its own row.
const OURS: [Mode; 4] = [Mode::Attached, Mode::Busy, Mode::Exception, Mode::ExceptionWorkers];

/// Records the worst excess of any distribution over plain veth near multiples of a tick.
pub(super) fn note(record: &mut Record) {
    let found = compare(record);
    let Some((row, worst)) = found.iter().max_by(|a, b| a.1.at_least.total_cmp(&b.1.at_least)) else {
        return record.fail(TICK, "no mode and plain veth in the same round".to_owned());
    };
    let tick_ms = clock::tick().as_nanos() as f64 / 1e6;
    let seen_from = found.iter().map(|(_, excess)| excess.seen_from).fold(0.0, f64::max);
    let note = if worst.at_least > 0.0 {
        let Excess { mode, plain, .. } = worst;
        format!(
            "{row} has more times near multiples of {tick_ms} ms (1/HZ here) than plain veth: {:.0} of {:.0} against {:.0} of \
             {:.0}, so at least {:.1e} more",
            mode.near, mode.all, plain.near, plain.all, worst.at_least
        )
    } else {
        format!(
            "none of {} distributions has more times near multiples of {tick_ms} ms (1/HZ here) than plain veth; a share of \
             {seen_from:.1e} more would have been seen in any",
            found.len()
        )
    };
    let once = found.iter().filter_map(|(row, excess)| Some((row, excess.once?)));
    let once = once.map(|(row, walk)| {
        format!(
            "{row}: one walk of {} had {:.0} of {:.0} times near multiples of a tick, and the others no more than plain veth: \
             counted as the machine's",
            record.by_round(row, TIMES).len(),
            walk.near,
            walk.all
        )
    });
    let notes = std::iter::once(note).chain(once).collect();
    let values = [("excess_share", worst.at_least), ("seen_from", seen_from), ("tick_ms", tick_ms)];
    record.add(TICK, 0, Sample { values: BTreeMap::from(values), notes, ..Sample::default() });
}

fn compare(record: &Record) -> Vec<(&'static str, Excess)> {
    let plain: Vec<_> = captured_rows(Mode::Plain).chain([Mode::Plain.row()]).collect();
    let pairs = OURS
        .into_iter()
        .flat_map(|mode| captured_rows(mode).chain([mode.row()]).zip(plain.clone()).collect::<Vec<_>>());
    let compared = pairs.filter_map(|(row, plain)| {
        let (rounds, mut plain_rounds) = (near(record, row), near(record, plain));
        if plain == Mode::Plain.row() {
            // The repetition is equally plain.
            let again = near(record, Mode::Again.row());
            plain_rounds
                .iter_mut()
                .for_each(|(round, walks)| walks.extend(again.get(round).into_iter().flatten()));
        }
        let both =
            |(round, ours): (&usize, &Vec<Near>)| Some((ours.clone(), plain_rounds.get(round)?.clone()));
        let (ours, plain): (Vec<_>, Vec<_>) = rounds.iter().filter_map(both).unzip();
        Some((row, tick::excess(&ours.concat(), &plain.concat())?))
    });
    compared.collect()
}

/// The walks of a row, by round.
fn near(record: &Record, row: &str) -> BTreeMap<usize, Vec<Near>> {
    let (near, all) = (record.by_round(row, TICK_NEAR), record.by_round(row, TIMES));
    let walks = near
        .into_iter()
        .filter_map(|(round, near)| Some((round, vec![Near { near, all: *all.get(&round)? }])));
    walks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walks(record: &mut Record, row: &'static str, near: &[u64]) {
        for (round, near) in near.iter().enumerate() {
            let values = BTreeMap::from([(TICK_NEAR, *near as f64), (TIMES, 60_000.0)]);
            record.add(row, round, Sample { values, ..Sample::default() });
        }
    }

    fn notes(record: &Record) -> Vec<String> {
        let row = super::super::LAB.table.row(TICK).unwrap();
        record.row(row).notes
    }

    #[test]
    fn every_distribution_of_ours_is_compared_and_the_worst_is_told() {
        let mut record = Record::default();
        for mode in Mode::ALL {
            captured_rows(mode).chain([mode.row()]).for_each(|row| walks(&mut record, row, &[1, 0, 2]));
        }
        // A walk without another one of the same round.
        walks(&mut record, "nfs-busy", &[0, 500, 0]);
        // Not a mode of ours.
        walks(&mut record, "nfs-busy-kernel", &[6000, 6000, 6000]);
        note(&mut record);
        assert_eq!(compare(&record).len(), tick::COMPARED_MAX);
        let value = |record: &Record, value| record.median(TICK, value).unwrap();
        assert_eq!(value(&record, "excess_share"), 0.0);
        let said = notes(&record);
        assert!(
            said[0].starts_with("none of 24 ") && said[1].starts_with("nfs-busy: one walk of 3"),
            "{said:?}"
        );
        assert!((5e-5..5e-4).contains(&value(&record, "seen_from")));
        walks(&mut record, "ack-exception", &[60, 60, 90]);
        note(&mut record);
        assert!((5e-4..1e-3).contains(&value(&record, "excess_share")));
        let said = notes(&record);
        assert!(
            said[0].starts_with("ack-exception has more") && said[0].contains("120 of 120000 against 3 of"),
            "{said:?}"
        );
    }

    #[test]
    fn only_rounds_with_both_sides_count_and_without_any_there_is_no_answer() {
        let mut record = Record::default();
        walks(&mut record, "nfs-exception", &[0, 60, 60, 60]);
        note(&mut record);
        assert_eq!(record.median(TICK, "excess_share"), None);
        walks(&mut record, "nfs-plain", &[0]);
        walks(&mut record, "nfs-plain-again", &[4, 60, 60, 60]);
        let [(_, found)] = compare(&record)[..] else { panic!("one distribution") };
        assert_eq!((found.mode.all, found.plain), (60_000.0, Near { near: 4.0, all: 120_000.0 }));
    }
}
