//! The rows and ratios of `lab rpc`. Ids are stable; docs/measuring.md explains each.

use super::cases::{
    CASES, COST, COSTS, IDLE, INSTRUCTIONS, NEVER_READS, OUR_BATCH, OUR_MANY, P50, PLAIN_BATCH, PLAIN_MANY,
    PLAIN_UDP, RATE,
};
use super::streams;
use crate::lab::model::{Better, Formula, Group, Judged, RatioSpec, RowSpec};

const fn burden(id: &'static str, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { id, label, group: Group::Burden, path: Some("kernel"), mode: Some("adaptive"), main, base: &[] }
}

/// Rows that are more than one server and one client.
const OTHERS: [RowSpec; 4] = [
    burden("idle-10k-alone", RATE, "one busy connection, 128 in flight, alone"),
    RowSpec {
        base: &["idle-10k-alone"],
        ..burden("idle-10k-beside", RATE, "beside 10,000 that say nothing")
    },
    burden(NEVER_READS, "memory_share", "one connection, 16 in flight, beside some that never read"),
    RowSpec {
        id: INSTRUCTIONS,
        label: "server instructions per NULL call: record, decode, dispatch, encode",
        group: Group::Instructions,
        path: None,
        mode: None,
        main: "instructions_per_call",
        base: &[],
    },
];

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &all();

const BEFORE_STREAMS: usize = CASES.len() + OTHERS.len();

const fn all() -> [RowSpec; BEFORE_STREAMS + streams::ROWS.len()] {
    let mut rows = [OTHERS[0]; BEFORE_STREAMS + streams::ROWS.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = if at < CASES.len() {
            CASES[at].row
        } else if at < BEFORE_STREAMS {
            OTHERS[at - CASES.len()]
        } else {
            streams::ROWS[at - BEFORE_STREAMS]
        };
        at += 1;
    }
    rows
}

/// Rows that need others measured before them, because the offered rate is half of the best bare server's.
pub(super) const NEEDS: &[(&str, &[&str])] =
    &[(COSTS[0], PLAIN_MANY), (COSTS[1], PLAIN_MANY), (IDLE[0], IDLE), (IDLE[1], IDLE)];

/// Whether its offered rate depends on rates measured before.
pub(super) fn needs_rates(row: &str) -> bool {
    NEEDS.iter().any(|(needing, needed)| *needing == row && *needed == PLAIN_MANY)
}

pub(super) const fn ratio(
    id: &'static str,
    formula: Formula,
    better: Better,
    target: f64,
    what: &'static str,
) -> RatioSpec {
    RatioSpec::of_median(id, formula, better, target, what, super::CHECK_PAIRS)
}

const fn best_over_best(tops: &'static [&'static str], rows: &'static [&'static str]) -> Formula {
    Formula::BestOverBest { tops, rows, by: RATE }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "null-tcp-1-vs-ganesha",
        Formula::over("null-tcp-1-twinpath", P50, &[("null-tcp-1-ganesha", P50)]),
        Better::Lower,
        0.6,
        "NULL over TCP, 1 in flight, round trip p50, adaptive, against nfs-ganesha",
    ),
    RatioSpec {
        judged: Judged::IntervalBest,
        check_pairs: super::SPIN_CHECK_PAIRS,
        ..ratio(
            "null-tcp-1-vs-spin",
            Formula::over("null-tcp-1-twinpath-poll", P50, &[("null-tcp-1-spin", P50)]),
            Better::Lower,
            1.0,
            "the same, poll, against the bare server that spins",
        )
    },
    ratio(
        "null-tcp-128-vs-ganesha",
        best_over_best(OUR_MANY, &["null-tcp-128-ganesha"]),
        Better::Higher,
        5.0,
        "NULL over TCP, 128 in flight, 1 connection, one call per send: calls per second against nfs-ganesha",
    ),
    ratio(
        "null-tcp-128-batch-vs-ganesha",
        best_over_best(OUR_BATCH, &["null-tcp-128-batch-ganesha"]),
        Better::Higher,
        5.0,
        "the same with several calls per send (--batch), where the client is not the limit",
    ),
    ratio(
        "null-tcp-128-vs-plain",
        best_over_best(OUR_MANY, PLAIN_MANY),
        Better::Higher,
        0.95,
        "128 in flight, one call per send: calls per second, in the better mode, against the best bare server",
    ),
    ratio(
        "null-tcp-128-batch-vs-plain",
        best_over_best(OUR_BATCH, PLAIN_BATCH),
        Better::Higher,
        0.95,
        "the same with several calls per send (--batch)",
    ),
    ratio(
        "null-tcp-cpu-vs-plain",
        Formula::over("null-tcp-cpu-twinpath", COST, &[("null-tcp-cpu-plain", COST)]),
        Better::Lower,
        1.05,
        "server CPU per call at half of the best bare server's rate, interrupt, no latency request, against the bare server that sleeps",
    ),
    ratio(
        "null-udp-1-vs-spin",
        Formula::over("null-udp-1-twinpath", P50, &[("null-udp-1-spin", P50)]),
        Better::Lower,
        0.65,
        "NULL over UDP, 1 in flight, round trip p50, fast path at both ends, against kernel sockets spinning at both",
    ),
    ratio(
        "null-udp-128-vs-plain",
        best_over_best(&["null-udp-128-twinpath"], PLAIN_UDP),
        Better::Higher,
        1.5,
        "NULL over UDP, 128 in flight, fast-path client: calls per second against the best bare server",
    ),
    ratio(
        "getattr-vs-null",
        Formula::over("getattr-128-twinpath", RATE, &[("null-tcp-128-twinpath", RATE)]),
        Better::Higher,
        0.85,
        "GETATTR against NULL over TCP, 128 in flight, one call per send: calls per second",
    ),
    RatioSpec {
        target: None,
        ..ratio(
            "getattr-vs-null-batch",
            Formula::over("getattr-128-batch-twinpath", RATE, &[("null-tcp-128-batch-twinpath", RATE)]),
            Better::Higher,
            0.0,
            "the same with several calls per send (--batch)",
        )
    },
    RatioSpec {
        check_pairs: super::BURDEN_CHECK_ROUNDS,
        ..ratio(
            "idle-10k-busy",
            Formula::over("idle-10k-beside", RATE, &[("idle-10k-alone", RATE)]),
            Better::Higher,
            0.95,
            "calls per second of a busy connection beside 10,000 idle ones, against alone",
        )
    },
    RatioSpec {
        check_pairs: super::BURDEN_CHECK_ROUNDS,
        ..ratio(
            "idle-10k-bytes",
            Formula::Value(("idle-10k-beside", "bytes_per_connection")),
            Better::Lower,
            4096.0,
            "our own memory per idle connection, bytes",
        )
    },
    RatioSpec {
        check_pairs: super::BURDEN_CHECK_ROUNDS,
        ..ratio(
            "never-reads",
            Formula::Value((NEVER_READS, "memory_share")),
            Better::Lower,
            1.0,
            "memory held for clients that never read, against its named limits",
        )
    },
    RatioSpec {
        target: None,
        check_pairs: 1,
        ..ratio(
            "rpc-instructions",
            Formula::Value((INSTRUCTIONS, "instructions_per_call")),
            Better::Lower,
            0.0,
            "server instructions per NULL call in the pure part, as counted under valgrind",
        )
    },
    streams::RATIOS[0],
    streams::RATIOS[1],
    streams::RATIOS[2],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_there_once_what_is_compared_with_is_a_row_and_the_documentation_has_every_ratio() {
        let rows: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        assert_eq!(rows.len(), ROWS.len());
        let bases = ROWS.iter().flat_map(|row| row.base);
        let parts = RATIOS.iter().flat_map(|ratio| ratio.formula.rows());
        assert!(bases.copied().chain(parts).all(|row| rows.contains(row)));
        let text = include_str!("../../../../../docs/measuring.md");
        for id in
            RATIOS.iter().map(|ratio| ratio.id).chain(OTHERS.iter().chain(&streams::ROWS).map(|row| row.id))
        {
            assert!(text.contains(&format!("`{id}`")), "{id}");
        }
    }
}
