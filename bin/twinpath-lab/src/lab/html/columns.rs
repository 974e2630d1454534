//! The columns of the report's tables, by group.

use super::super::model::Group;
use super::super::table;

/// The columns of a group: value, heading, format.
pub(super) type Column = (&'static str, &'static str, fn(f64) -> String);

const RTT_COLUMNS: [Column; 9] = [
    ("min_us", "min", table::significant),
    ("p50_us", "p50", table::significant),
    ("p90_us", "p90", table::significant),
    ("p99_us", "p99", table::significant),
    ("p99_9_us", "p99.9", table::significant),
    ("max_us", "max us", table::significant),
    ("requests_per_s", "requests/s", table::thousands),
    ("cpu_server", "CPU server", table::percent),
    ("cpu_client", "CPU client", table::percent),
];
const WALK_COLUMNS: [Column; 11] = [
    ("wall_s", "wall s", table::significant),
    ("calls", "calls", table::thousands),
    ("p50_us", "p50", table::significant),
    ("p90_us", "p90", table::significant),
    ("p99_us", "p99", table::significant),
    ("p99_9_us", "p99.9", table::significant),
    ("max_us", "max us", table::significant),
    ("tick_share", "near a tick", table::short),
    ("load_per_s", "load/s", table::thousands),
    ("cpu_server", "CPU server", table::percent),
    ("cpu_client", "CPU client", table::percent),
];
const TICK_COLUMNS: [Column; 3] = [
    ("excess_share", "share beyond plain", table::short),
    ("excess_low", "lower end", table::short),
    ("tick_ms", "tick ms", table::short),
];
const WAKE_COLUMNS: [Column; 17] = [
    ("mean_us", "avg", table::significant),
    ("min_us", "min", table::significant),
    ("p50_us", "p50", table::significant),
    ("p99_us", "p99", table::significant),
    ("p99_9_us", "p99.9", table::significant),
    ("max_us", "max us", table::significant),
    ("cpu_server", "CPU", table::percent),
    ("request_held", "request held", table::percent),
    ("spun", "spinning", table::percent),
    ("woken_by_prediction_per_s", "predicted/s", table::thousands),
    ("voluntary_per_s", "sleeps/s", table::thousands),
    ("involuntary_per_s", "preempted/s", table::thousands),
    ("offered_per_s", "offered/s", table::thousands),
    ("lost", "lost", table::thousands),
    ("sent_late_p99_us", "sent late p99", table::significant),
    ("neighbour_per_s", "competing work/s", table::thousands),
    ("worst", "worst", table::short),
];
const SWITCHING_COLUMNS: [Column; 5] = [
    ("lost", "lost", table::thousands),
    ("switches", "switches", table::thousands),
    ("offered_per_s", "offered/s", table::thousands),
    ("p99_us", "p99 us", table::significant),
    ("max_us", "max us", table::significant),
];
const POLICY_COLUMNS: [Column; 2] = [("worst", "worst", table::short), ("median", "median", table::short)];
const RATE_COLUMNS: [Column; 5] = [
    ("requests_per_s", "replies/s", table::thousands),
    ("p50_us", "p50 us", table::significant),
    ("p99_us", "p99 us", table::significant),
    ("cpu_server", "CPU server", table::percent),
    ("cpu_client", "CPU client", table::percent),
];
const RPC_COLUMNS: [Column; 18] = [
    ("min_us", "min", table::significant),
    ("mean_us", "avg", table::significant),
    ("p50_us", "p50", table::significant),
    ("p99_us", "p99", table::significant),
    ("p99_9_us", "p99.9 us", table::significant),
    ("requests_per_s", "RPC/s", table::thousands),
    ("cpu_us_per_call", "CPU us/call", table::significant),
    ("cpu_server", "CPU server", table::percent),
    ("cpu_client", "CPU client", table::percent),
    ("lost", "lost", table::thousands),
    ("connections", "connections", table::thousands),
    ("bytes_per_connection", "bytes each", table::thousands),
    ("memory_bytes", "memory", table::thousands),
    ("memory_limit_bytes", "of at most", table::thousands),
    ("memory_share", "share", table::short),
    ("p99_alone_us", "p99 alone us", table::significant),
    ("p99_ratio", "p99 beside / alone", table::short),
    ("instructions_per_call", "instructions", table::thousands),
];
const STREAM_COLUMNS: [Column; 8] = [
    ("gbit_per_s", "Gbit/s", table::short),
    ("sent_gbit_per_s", "left Gbit/s", table::short),
    ("frames_per_s", "datagrams/s", table::thousands),
    ("lost", "lost", table::thousands),
    ("lost_here", "lost here", table::thousands),
    ("retransmits", "retransmits", table::thousands),
    ("cpu_server", "CPU server", table::percent),
    ("cpu_client", "CPU client", table::percent),
];
const COST_COLUMNS: [Column; 5] = [
    ("cpu_us_per_reply", "CPU us/reply", table::significant),
    ("cpu_us_per_call", "CPU us/call", table::significant),
    ("offered_per_s", "offered/s", table::thousands),
    ("cpu_server", "CPU server", table::percent),
    ("p99_us", "p99 us", table::significant),
];
const MIXED_COLUMNS: [Column; 11] = [
    ("p50_us", "p50 us", table::significant),
    ("p99_us", "p99 us", table::significant),
    ("requests_per_s", "requests/s", table::thousands),
    ("gbit_per_s", "Gbit/s", table::significant),
    ("cpu_server", "CPU server", table::percent),
    ("requests", "requests", table::thousands),
    ("failed", "failed", table::thousands),
    ("before", "without", table::significant),
    ("after", "with", table::significant),
    ("ratio", "with / without", table::short),
    ("added_ns", "added ns", table::significant),
];
const TROUBLE_COLUMNS: [Column; 10] = [
    ("worst_ms", "worst ms", table::significant),
    ("median_ms", "median ms", table::significant),
    ("tcp_worst_ms", "TCP worst ms", table::significant),
    ("kills", "kills", table::thousands),
    ("resets", "resets", table::thousands),
    ("share", "answered once", table::percent),
    ("datagrams", "datagrams", table::thousands),
    ("lost", "lost", table::thousands),
    ("sent", "of", table::thousands),
    ("absent_ms", "until ready again, ms", table::significant),
];
const TABLE_COLUMNS: [Column; 4] = [
    ("lookups_per_s", "look-ups/s", table::thousands),
    ("instructions_per_lookup", "instructions each", table::thousands),
    ("table_mib", "MiB", table::significant),
    ("huge_mib", "MiB on huge pages", table::significant),
];
const FRAMES_COLUMNS: [Column; 7] = [
    ("batch", "frames/call", table::thousands),
    ("frames_per_s", "frames/s", table::thousands),
    ("offered_per_s", "offered/s", table::thousands),
    ("cpu_us_per_frame", "CPU us/frame", table::significant),
    ("packet_calls_per_frame", "calls/frame", table::significant),
    ("control_calls_per_frame", "control's calls/frame", table::significant),
    ("cpu_server", "CPU of the switch", table::percent),
];
const OPENFLOW_COLUMNS: [Column; 16] = [
    ("mods_per_s", "flow-mods/s", table::thousands),
    ("dump_s", "dump, s", table::significant),
    ("cpu_s", "CPU of the switch, s", table::significant),
    ("old_rule", "by the former rule", table::thousands),
    ("lost", "lost", table::thousands),
    ("barrier_p50_us", "barrier p50, us", table::significant),
    ("barrier_max_us", "longest, us", table::thousands),
    ("off", "packets off", table::thousands),
    ("true_after_s", "true after, s", table::significant),
    ("exact_ns", "one exact table, ns", table::significant),
    ("exact_100k_ns", "with 100,000 flows, ns", table::significant),
    ("masks_ns", "8 masks, ns", table::significant),
    ("unknown_ns", "8 masks, no flow, ns", table::significant),
    ("hostile_ns", "1,024 masks, hostile, ns", table::significant),
    ("change_us", "a change, us", table::significant),
    ("change_longest_us", "longest, us", table::significant),
];
const BUILD_COLUMNS: [Column; 3] = [
    ("wall_s", "seconds", table::significant),
    ("crates", "crates", table::thousands),
    ("binary_mib", "program, MiB", table::significant),
];
const IDLE_COLUMNS: [Column; 3] = [
    ("cpu_server", "CPU", table::percent),
    ("wakeups_per_s", "wake-ups/s", table::significant),
    ("request_held", "latency request held", table::short),
];

/// The columns of the rows of a group.
pub(super) fn columns(group: Group) -> &'static [Column] {
    match group {
        Group::Rtt
        | Group::Paced
        | Group::Frames
        | Group::FramesLoaded
        | Group::SwitchRtt
        | Group::SwitchPaced
        | Group::SwitchOneWay
        | Group::SwitchLoad
        | Group::Memcached
        | Group::Stall => &RTT_COLUMNS,
        Group::SwitchTable => &TABLE_COLUMNS,
        Group::SwitchRate | Group::SwitchBatch | Group::SwitchMemory | Group::SwitchLoop => &FRAMES_COLUMNS,
        Group::FlowMods | Group::Barrier | Group::FlowCounters | Group::Pipeline => &OPENFLOW_COLUMNS,
        Group::Rate => &RATE_COLUMNS,
        Group::Cpu => &COST_COLUMNS,
        Group::Beside | Group::Other | Group::SwitchBulk => &MIXED_COLUMNS,
        Group::Trouble => &TROUBLE_COLUMNS,
        Group::Build => &BUILD_COLUMNS,
        Group::Idle => &IDLE_COLUMNS,
        Group::Walk | Group::Transit | Group::NextCall | Group::Ack => &WALK_COLUMNS,
        Group::Tick => &TICK_COLUMNS,
        Group::Wake | Group::Caps | Group::Paces | Group::Competing => &WAKE_COLUMNS,
        Group::Switching => &SWITCHING_COLUMNS,
        Group::Policy => &POLICY_COLUMNS,
        Group::NullOne
        | Group::NullMany
        | Group::NullUdp
        | Group::Getattr
        | Group::Burden
        | Group::Instructions => &RPC_COLUMNS,
        Group::Stream => &STREAM_COLUMNS,
    }
}
