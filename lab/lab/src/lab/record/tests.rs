use super::*;
use crate::lab::model::Group;

fn sample(name: &'static str, value: f64) -> Sample {
    Sample { values: BTreeMap::from([(name, value)]), ..Sample::default() }
}

fn record(cells: &[(&'static str, &'static str, &[f64])]) -> Record {
    let mut record = Record::default();
    for (row, name, values) in cells {
        for (round, value) in values.iter().enumerate() {
            record.add(row, round, sample(name, *value));
        }
    }
    record
}

const OVER: RatioSpec = RatioSpec {
    id: "r",
    what: "a over b + c",
    formula: Formula::Over { top: ("a", "p50_us"), bottom: &[("b", "p50_us"), ("c", "p50_us")] },
    target: Some(1.0),
    better: Better::Lower,
    judged: Judged::Median,
    check_pairs: 3,
    also: &[],
    steady: None,
};

#[test]
fn a_ratio_is_made_of_pairs_of_the_same_round_only() {
    let mut record = record(&[
        ("a", "p50_us", &[2.0, 6.0, 9.0]),
        ("b", "p50_us", &[1.0, 2.0]),
        ("c", "p50_us", &[1.0, 2.0]),
    ]);
    let ratio = record.ratio(&OVER, false);
    assert_eq!(ratio.values, [1.0, 1.5]);
    // Two pairs give neither a verdict nor an interval.
    assert_eq!((ratio.value, ratio.spread, ratio.holds), (Some(1.25), Some([1.0, 1.5]), None));
    assert_eq!((ratio.interval95, ratio.skipped.as_deref()), (None, Some("only 2 of the 3 pairs it needs")));
    // The third round gets its other side: 9 / (5 + 4).
    record.add("b", 2, sample("p50_us", 5.0));
    record.add("c", 2, sample("p50_us", 4.0));
    let ratio = record.ratio(&OVER, true);
    assert_eq!((ratio.pairs, ratio.value, ratio.holds), (3, Some(1.0), Some(true)));
}

#[test]
fn the_best_of_some_is_compared_with_the_best_of_others() {
    let record = record(&[
        ("a", "x", &[6.0, 6.0, 9.0]),
        ("b", "x", &[8.0, 9.0, 1.0]),
        ("c", "x", &[2.0, 3.0, 4.0]),
        ("d", "x", &[1.0, 1.0, 1.0]),
    ]);
    let best = Formula::BestOverBest { tops: &["a", "b"], rows: &["c", "d"], by: "x" };
    assert_eq!(record.pairs(&best), [4.0, 3.0, 0.25]);
    assert_eq!(best.rows(), ["a", "b", "c", "d"]);
}

#[test]
fn a_target_is_met_by_the_median_or_by_the_end_of_the_interval() {
    let record = record(&[("a", "x", &[0.8, 0.8, 0.9, 0.9, 1.2, 1.2])]);
    let spec = RatioSpec { formula: Formula::Value(("a", "x")), ..OVER };
    assert_eq!(record.ratio(&spec, false).holds, Some(true));
    let end = RatioSpec { judged: Judged::IntervalEnd, ..spec };
    assert_eq!(record.ratio(&end, false).holds, Some(false));
    assert_eq!(record.ratio(&RatioSpec { better: Better::Higher, ..end }, false).holds, Some(false));
    assert_eq!(
        record.ratio(&RatioSpec { better: Better::Higher, target: Some(0.8), ..end }, false).holds,
        Some(true)
    );
    let best = RatioSpec { judged: Judged::IntervalBest, target: Some(0.8), ..spec };
    assert_eq!(record.ratio(&best, false).holds, Some(true));
    assert_eq!(record.ratio(&RatioSpec { target: Some(0.79), ..best }, false).holds, Some(false));
    let best = RatioSpec { better: Better::Higher, ..best };
    assert_eq!(record.ratio(&RatioSpec { target: Some(1.2), ..best }, false).holds, Some(true));
    let equal = RatioSpec { target: Some(0.9), ..spec };
    assert_eq!(record.ratio(&equal, false).holds, Some(true));
    assert_eq!(
        record.ratio(&RatioSpec { judged: Judged::MedianStrictly, ..equal }, false).holds,
        Some(false)
    );
}

#[test]
fn the_best_row_is_chosen_by_its_median_not_by_its_best_round() {
    let record = record(&[
        ("slow", "rate", &[1.0, 9.0, 1.0]),
        ("fast", "rate", &[2.0, 2.0, 2.0]),
        ("ours", "rate", &[4.0, 5.0, 6.0]),
    ]);
    assert_eq!(record.best(&["slow", "fast", "absent"], "rate"), Some("fast"));
    let formula =
        Formula::OverBest { top: ("ours", "rate"), rows: &["slow", "fast"], by: "rate", value: "rate" };
    assert_eq!(record.pairs(&formula), [2.0, 2.5, 3.0]);
}

#[test]
fn what_is_missing_is_said_and_decides_the_exit_code() {
    let mut record = record(&[("a", "p50_us", &[2.0, 2.0, 2.0]), ("c", "p50_us", &[1.0, 1.0, 1.0])]);
    record.fail("b", "refused".to_owned());
    assert!(!record.is_hopeless("b"));
    record.fail("b", "refused twice".to_owned());
    assert!(record.is_hopeless("b") && !record.is_hopeless("a"));
    let missing = record.ratio(&OVER, true);
    assert_eq!(
        (missing.value, missing.holds, missing.skipped.as_deref()),
        (None, None, Some("b: refused twice"))
    );
    assert_eq!(check_code(std::slice::from_ref(&missing)), 3);
    for round in 0..3 {
        record.add("b", round, sample("p50_us", 0.5));
    }
    let missed = record.ratio(&OVER, true);
    assert_eq!((missed.value, missed.holds), (Some(2.0 / 1.5), Some(false)));
    assert_eq!(check_code(&[missing.clone(), missed]), 1);
    let few = record.ratio(&RatioSpec { check_pairs: 9, ..OVER }, true);
    assert_eq!((few.holds, few.skipped.as_deref()), (None, Some("only 3 of the 9 pairs it needs")));
    assert_eq!(check_code(&[record.ratio(&RatioSpec { target: None, ..OVER }, true)]), 0);
}

#[test]
fn too_few_pairs_for_an_interval_never_hold() {
    let six = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
    let spec = |judged| RatioSpec { formula: Formula::Value(("a", "x")), judged, check_pairs: 9, ..OVER };
    for judged in [Judged::Median, Judged::IntervalEnd, Judged::IntervalBest] {
        for pairs in 1..=6 {
            let record = record(&[("a", "x", &six[..pairs])]);
            let ratio = record.ratio(&spec(judged), false);
            assert_eq!(ratio.holds, (pairs == 6).then_some(true), "{pairs} pairs, {judged:?}");
            assert_eq!(ratio.interval95, (pairs == 6).then_some([0.1, 0.6]));
            assert!(ratio.value.is_some() && ratio.skipped.is_some() == (pairs < 6));
            // Under --check all pairs that the ratio requires are needed, and undecided is 3.
            let checked = record.ratio(&spec(judged), true);
            assert_eq!((checked.holds, check_code(&[checked])), (None, 3));
        }
    }
}

#[test]
fn a_side_condition_can_only_take_away() {
    let mut record = record(&[("idle", "cpu", &[0.001])]);
    let spec = RatioSpec {
        formula: Formula::Value(("idle", "cpu")),
        target: Some(0.005),
        check_pairs: 1,
        also: &[(("idle", "wakeups_per_s"), 10.0)],
        ..OVER
    };
    assert_eq!(record.ratio(&spec, false).holds, None);
    for (wakeups, holds) in [(3.0, true), (10.0, false)] {
        let values = BTreeMap::from([("cpu", 0.001), ("wakeups_per_s", wakeups)]);
        record.add("idle", 0, Sample { values, ..Sample::default() });
        assert_eq!(record.ratio(&spec, false).holds, Some(holds));
    }
}

#[test]
fn where_two_runs_of_the_same_differ_nothing_is_decided() {
    let twice = Formula::Over { top: ("c", "x"), bottom: &[("b", "x")] };
    let formula = Formula::Over { top: ("a", "x"), bottom: &[("b", "x")] };
    let spec = RatioSpec { formula, target: Some(1.2), steady: Some((twice, 1.1)), check_pairs: 1, ..OVER };
    let ratio = |again: f64| {
        record(&[("a", "x", &[1.0]), ("b", "x", &[1.0]), ("c", "x", &[again])]).ratio(&spec, true)
    };
    for (again, holds) in [(1.0, Some(true)), (1.1, Some(true)), (1.2, None), (0.8, None)] {
        assert_eq!((ratio(again).holds, ratio(again).is_unsteady()), (holds, holds.is_none()), "{again}");
    }
    let missing = record(&[("a", "x", &[1.0]), ("b", "x", &[1.0])]).ratio(&spec, true);
    assert_eq!((missing.holds, missing.is_unsteady()), (None, false));
    // Two of them may be.
    assert_eq!([2, 3].map(|count| check_code(&vec![ratio(2.0); count])), [0, 3]);
    assert_eq!(check_code(&[ratio(2.0), missing]), 3);
}

#[test]
fn a_row_keeps_its_reason_and_its_failures() {
    let spec = RowSpec {
        id: "a",
        label: "A",
        group: Group::Rtt,
        path: None,
        mode: Some("poll"),
        main: "p50_us",
        base: &[],
        in_guest: false,
        how: crate::lab::model::How(""),
    };
    let mut record = Record::default();
    assert_eq!(record.row(&spec).skipped.as_deref(), Some("not run"));
    record.fail("a", "no such path".to_owned());
    assert_eq!(record.row(&spec).skipped.as_deref(), Some("no such path"));
    let found = Sample {
        path: Some("packet".to_owned()),
        histogram: vec![(20, 1), (30, 2)],
        ..sample("p50_us", 2.0)
    };
    record.add("a", 1, found.clone());
    record.add("a", 2, Sample { histogram: vec![(10, 1), (20, 4)], ..found });
    let row = record.row(&spec);
    assert_eq!((row.n, row.skipped, row.path.as_deref()), (2, None, Some("packet")));
    assert_eq!(row.notes, ["1 of 3 tries failed: no such path"]);
    assert_eq!(record.histogram("a"), [(10, 1), (20, 5), (30, 2)]);
}
