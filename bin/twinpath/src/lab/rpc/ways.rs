//! The two ways to serve the kernel's TCP sockets, each against the other: epoll and io_uring, at the same server otherwise.

use super::cases::{Asked, Case, MANY, ONE, P50, RATE, Server, case, row};
use super::cases::{BATCH, COST, HALF, ONE_SPINNING};
use crate::lab::model::{Better, Group, RatioSpec};

const EPOLL: &str = "--sockets epoll";
const URING: &str = "--sockets io_uring";
/// Where the cost of a call is compared nobody holds a latency request.
const EPOLL_COST: &str = "--sockets epoll --latency-request never";
const URING_COST: &str = "--sockets io_uring --latency-request never";

/// Connections that take turns, each with a call in flight.
const BUSY: Asked = Asked { connections: 64, ..ONE };

const fn way(
    id: &'static str,
    main: &'static str,
    label: &'static str,
    (mode, more): (&'static str, &'static str),
    asked: Asked,
) -> Case {
    case(row(id, Group::Ways, main, label), Server::With(mode, more), asked)
}

/// In pairs, epoll first.
pub(super) const WAYS: [Case; 14] = [
    way("sockets-1-epoll", P50, "1 in flight, adaptive: epoll", ("adaptive", EPOLL), ONE),
    way("sockets-1-uring", P50, "io_uring", ("adaptive", URING), ONE).against(&["sockets-1-epoll"]),
    way("sockets-1-interrupt-epoll", P50, "1 in flight, server sleeps: epoll", ("interrupt", EPOLL), ONE),
    way("sockets-1-interrupt-uring", P50, "io_uring", ("interrupt", URING), ONE)
        .against(&["sockets-1-interrupt-epoll"]),
    way("sockets-1-poll-epoll", P50, "1 in flight, both spin: epoll", ("poll", EPOLL), ONE_SPINNING),
    way("sockets-1-poll-uring", P50, "io_uring", ("poll", URING), ONE_SPINNING)
        .against(&["sockets-1-poll-epoll"]),
    way("sockets-128-epoll", RATE, "128 in flight, server spins: epoll", ("poll", EPOLL), MANY),
    way("sockets-128-uring", RATE, "io_uring", ("poll", URING), MANY).against(&["sockets-128-epoll"]),
    way("sockets-128-batch-epoll", RATE, "the same, --batch: epoll", ("poll", EPOLL), BATCH),
    way("sockets-128-batch-uring", RATE, "io_uring", ("poll", URING), BATCH)
        .against(&["sockets-128-batch-epoll"]),
    way(
        "sockets-cpu-epoll",
        COST,
        "CPU at a fixed rate, server sleeps: epoll",
        ("interrupt", EPOLL_COST),
        HALF,
    ),
    way("sockets-cpu-uring", COST, "io_uring", ("interrupt", URING_COST), HALF)
        .against(&["sockets-cpu-epoll"]),
    way(
        "sockets-busy-epoll",
        COST,
        "64 connections, 1 in flight each, server sleeps: epoll",
        ("interrupt", EPOLL_COST),
        BUSY,
    ),
    way("sockets-busy-uring", COST, "io_uring", ("interrupt", URING_COST), BUSY)
        .against(&["sockets-busy-epoll"]),
];

/// Each way's pair.
pub(super) const PAIRS: [&[&str]; 7] = [
    &["sockets-1-epoll", "sockets-1-uring"],
    &["sockets-1-interrupt-epoll", "sockets-1-interrupt-uring"],
    &["sockets-1-poll-epoll", "sockets-1-poll-uring"],
    &["sockets-128-epoll", "sockets-128-uring"],
    &["sockets-128-batch-epoll", "sockets-128-batch-uring"],
    &["sockets-cpu-epoll", "sockets-cpu-uring"],
    &["sockets-busy-epoll", "sockets-busy-uring"],
];

const fn uring_to_epoll(
    id: &'static str,
    rows: (&'static str, &'static [(&'static str, &'static str)]),
    value: &'static str,
    better: Better,
    what: &'static str,
) -> RatioSpec {
    let formula = super::tables::over(rows.0, value, rows.1);
    RatioSpec { target: None, ..super::tables::ratio(id, formula, better, 0.0, what) }
}

/// io_uring to epoll; they decide which one is the default, and no target.
pub(super) const RATIOS: [RatioSpec; 8] = [
    uring_to_epoll(
        "sockets-1",
        ("sockets-1-uring", &[("sockets-1-epoll", P50)]),
        P50,
        Better::Lower,
        "NULL over TCP, 1 in flight, round trip p50, adaptive: io_uring to epoll",
    ),
    uring_to_epoll(
        "sockets-1-interrupt",
        ("sockets-1-interrupt-uring", &[("sockets-1-interrupt-epoll", P50)]),
        P50,
        Better::Lower,
        "the same, interrupt",
    ),
    uring_to_epoll(
        "sockets-1-poll",
        ("sockets-1-poll-uring", &[("sockets-1-poll-epoll", P50)]),
        P50,
        Better::Lower,
        "the same, poll; the client spins",
    ),
    uring_to_epoll(
        "sockets-128",
        ("sockets-128-uring", &[("sockets-128-epoll", RATE)]),
        RATE,
        Better::Higher,
        "128 in flight on 1 connection, one call per send: calls per second, poll",
    ),
    uring_to_epoll(
        "sockets-128-batch",
        ("sockets-128-batch-uring", &[("sockets-128-batch-epoll", RATE)]),
        RATE,
        Better::Higher,
        "the same with several calls per send (--batch)",
    ),
    uring_to_epoll(
        "sockets-cpu",
        ("sockets-cpu-uring", &[("sockets-cpu-epoll", COST)]),
        COST,
        Better::Lower,
        "server CPU per call at half of the best bare server's rate, interrupt, no latency request",
    ),
    uring_to_epoll(
        "sockets-busy-cpu",
        ("sockets-busy-uring", &[("sockets-busy-epoll", COST)]),
        COST,
        Better::Lower,
        "64 connections with a call in flight each: server CPU per call, interrupt, no latency request",
    ),
    uring_to_epoll(
        "sockets-busy-rate",
        ("sockets-busy-uring", &[("sockets-busy-epoll", RATE)]),
        RATE,
        Better::Higher,
        "the same: calls per second",
    ),
];
