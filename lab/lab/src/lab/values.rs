//! What the values of rows are called, and how they are written. Pure.

/// A value of rows.
pub(crate) struct Value {
    pub(crate) name: &'static str,
    /// Over its column.
    pub(crate) heading: &'static str,
    pub(crate) write: fn(f64) -> String,
    /// What follows the number where no heading says it.
    unit: &'static str,
}

const fn value(
    name: &'static str,
    heading: &'static str,
    write: fn(f64) -> String,
    unit: &'static str,
) -> Value {
    Value { name, heading, write, unit }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

/// Values that have columns, in their order. A column in which no row of a group has a value is left out.
pub(crate) const VALUES: &[Value] = &[
    value("wall_s", "s", hundredths, " s"),
    value("calls", "calls", thousands, " calls"),
    value("mean_us", "avg", significant, ""),
    value("min_us", "min", significant, ""),
    value("p50_us", "p50", significant, ""),
    value("p90_us", "p90", significant, ""),
    value("p99_us", "p99", significant, ""),
    value("p99_9_us", "p99.9", significant, ""),
    value("max_us", "max us", significant, ""),
    value("p99_alone_us", "p99 alone us", significant, ""),
    value("p99_ratio", "p99 beside / alone", short, ""),
    value("requests_per_s", "requests/s", thousands, ""),
    value("mb_per_s", "MB/s", whole, " MB/s"),
    value("right", "right", percent, ""),
    value("operations", "operations", thousands, " operations"),
    value("calls_per_core_s", "calls/s and core", thousands, " calls/s and core"),
    value("frames_per_s", "frames/s", thousands, " frames"),
    value("gbit_per_s", "Gbit/s", tenths, " Gbit/s"),
    value("offered_per_s", "offered/s", thousands, ""),
    value("load_per_s", "load/s", thousands, ""),
    value("cpu_us_per_reply", "CPU us/reply", hundredths, " us/reply"),
    value("cpu_us_per_call", "CPU us/call", hundredths, " us/call"),
    value("cpu_us_per_frame", "CPU us/frame", significant, ""),
    value("cpu_server", "CPU server", percent, ""),
    value("cpu_client", "CPU client", percent, ""),
    value("wakeups_per_s", "wake-ups/s", tenths, " wake-ups/s"),
    value("request_held", "request held", percent, ""),
    value("spun", "spinning", percent, ""),
    value("woken_by_prediction_per_s", "predicted/s", thousands, ""),
    value("voluntary_per_s", "sleeps/s", thousands, ""),
    value("involuntary_per_s", "preempted/s", thousands, ""),
    value("sent_late_p99_us", "sent late p99", significant, ""),
    value("neighbour_per_s", "competing work/s", thousands, ""),
    value("switches", "switches", thousands, ""),
    value("tick_share", "near a tick", short, ""),
    value("excess_share", "share beyond plain", short, ""),
    value("excess_low", "lower end", short, ""),
    value("tick_ms", "tick ms", short, ""),
    value("worst", "worst", short, ""),
    value("median", "median", short, ""),
    value("connections", "connections", thousands, ""),
    value("bytes_per_connection", "bytes each", thousands, ""),
    value("memory_bytes", "memory", thousands, ""),
    value("memory_limit_bytes", "of at most", thousands, ""),
    value("memory_share", "share", hundredths, " of limit"),
    value("requests", "requests", thousands, ""),
    value("added_ns", "added ns", whole, " ns"),
    value("worst_ms", "worst ms", tenths, " ms"),
    value("median_ms", "median ms", significant, ""),
    value("tcp_worst_ms", "TCP worst ms", significant, ""),
    value("kills", "kills", thousands, ""),
    value("resets", "resets", thousands, ""),
    value("share", "answered once", percent, ""),
    value("datagrams", "datagrams", thousands, ""),
    value("lost", "lost", whole, " lost"),
    value("sent", "of", thousands, ""),
    value("absent_ms", "until ready again, ms", significant, ""),
    value("lookups_per_s", "look-ups/s", thousands, " look-ups"),
    value("table_mib", "MiB", significant, ""),
    value("huge_mib", "MiB on huge pages", significant, ""),
    value("mods_per_s", "flow-mods/s", thousands, " mods/s"),
    value("dump_s", "dump, s", significant, ""),
    value("cpu_s", "CPU of the switch, s", significant, ""),
    value("old_rule", "by the former rule", whole, " by the former rule"),
    value("barrier_p50_us", "barrier p50, us", significant, ""),
    value("barrier_max_us", "longest, us", thousands, ""),
    value("off", "packets off", whole, " off"),
    value("true_after_s", "true after, s", significant, ""),
    value("exact_ns", "one exact table, ns", whole, " ns"),
    value("masks_ns", "8 masks, ns", significant, ""),
    value("hostile_ns", "1,024 masks, hostile, ns", significant, ""),
    value("turn_max_us", "turn max us", significant, " us a turn"),
    value("crates", "crates", whole, " crates"),
    value("binary_mib", "program, MiB", tenths, " MiB"),
];

/// A value with its unit.
pub(crate) fn with_unit(name: &str, number: f64) -> String {
    match VALUES.iter().find(|value| value.name == name) {
        Some(value) => format!("{}{}", (value.write)(number), value.unit),
        None if name.ends_with("_us") => significant(number),
        None => short(number),
    }
}

/// Three significant digits, the precision of the histograms.
pub(crate) fn significant(value: f64) -> String {
    match value.abs() {
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A plain number with a suitable number of digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.3}"),
        v if v >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.0e}"),
    }
}

pub(crate) fn percent(share: f64) -> String {
    if share < 0.1 { format!("{:.2} %", share * 100.0) } else { format!("{:.0} %", share * 100.0) }
}

/// `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
