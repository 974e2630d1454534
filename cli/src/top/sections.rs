//! The content of a screen or page about an instance: titled tables and sentences, independent of drawing.

use super::rates::{InterfaceRates, ProcedureRates, Rates, ServiceRates, WorkerRates};

/// A table with a title, and sentences below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
    /// Columns from this one on contain numbers, the others text.
    pub(crate) first_number: usize,
    /// Columns that a narrow screen leaves out, the least important first.
    pub(crate) optional: &'static [&'static str],
}

/// An instance in sections.
pub(crate) fn sections(rates: &Rates) -> Vec<Section> {
    let mut sections = Vec::with_capacity(rates.interfaces.len() + 4);
    sections.push(services(rates));
    if !rates.rpc.is_empty() {
        sections.push(procedures(&rates.rpc));
    }
    sections.extend(rates.interfaces.iter().map(interface));
    sections.push(workers(&rates.workers));
    if !rates.drops.is_empty() {
        sections.push(drops(rates));
    }
    sections
}

fn services(rates: &Rates) -> Section {
    let row = |service: &ServiceRates| {
        vec![
            service.name.clone(),
            count(service.requests_per_s),
            count(service.replies_per_s),
            service.kernel_share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
            time(service.p50_ns),
            time(service.p99_ns),
            time(service.p999_ns),
            service.connections.to_string(),
        ]
    };
    Section {
        title: format!("{}, pid {}, over {:.1} s", rates.serves, rates.pid, rates.seconds),
        header: vec!["service", "requests/s", "replies/s", "by kernel", "p50", "p99", "p99.9", "connections"],
        rows: rates.services.iter().map(row).collect(),
        notes: rates.services.iter().flat_map(notes).collect(),
        first_number: 1,
        optional: &["connections", "p99.9", "p50", "replies/s", "by kernel", "p99"],
    }
}

fn procedures(rpc: &[ProcedureRates]) -> Section {
    let row = |procedure: &ProcedureRates| {
        vec![
            procedure.service.clone(),
            procedure.program.clone(),
            procedure.procedure.clone(),
            count(procedure.calls_per_s),
            count(procedure.failed_per_s),
            count(procedure.bytes_in_per_s),
            count(procedure.bytes_out_per_s),
            time(procedure.p50_ns),
            time(procedure.p99_ns),
        ]
    };
    Section {
        title: "procedures".to_owned(),
        header: vec![
            "service",
            "program",
            "procedure",
            "calls/s",
            "failed/s",
            "byte in/s",
            "byte out/s",
            "p50",
            "p99",
        ],
        rows: rpc.iter().map(row).collect(),
        notes: Vec::new(),
        first_number: 3,
        optional: &["service", "program", "byte in/s", "byte out/s", "p50", "failed/s", "p99"],
    }
}

/// The path of each claim, and the reason.
fn notes(service: &ServiceRates) -> Vec<String> {
    let fast = service.claims.iter().filter(|claim| claim.is_fast());
    let fast = fast.map(|claim| format!("fast: {} by the {} path", claim.claim, claim.path));
    fast.chain(service.why.iter().map(|why| format!("not fast: {why}"))).collect()
}

fn interface(interface: &InterfaceRates) -> Section {
    let row = |(number, worker, queue): (String, String, &super::rates::QueueRates)| {
        vec![
            number,
            worker,
            count(queue.frames_in_per_s),
            count(queue.frames_out_per_s),
            count(queue.bits_in_per_s),
            count(queue.bits_out_per_s),
            count(queue.kicks_per_s),
            count(queue.ring_full_per_s),
        ]
    };
    let queues = interface.queues.iter().map(|it| (it.queue.to_string(), it.worker.to_string(), it));
    let crossed = interface.crossed.iter().map(|it| ("-".to_owned(), "kernel".to_owned(), it));
    Section {
        title: format!("{} ({}): {} path", interface.name, interface.link, interface.path),
        header: vec![
            "queue",
            "worker",
            "frames in/s",
            "frames out/s",
            "bit in/s",
            "bit out/s",
            "kicks/s",
            "ring full/s",
        ],
        rows: queues.chain(crossed).map(row).collect(),
        notes: Vec::new(),
        first_number: 0,
        optional: &["kicks/s", "ring full/s", "worker", "bit out/s", "bit in/s"],
    }
}

fn workers(workers: &[WorkerRates]) -> Section {
    let row = |worker: &WorkerRates| {
        vec![
            worker.worker.to_string(),
            worker.mode.clone(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            format!("{:.1} %", worker.cpu_percent),
            count(worker.busy_turns_per_s),
            count(worker.sleeps_per_s),
            count(worker.wakeups_per_s),
            if worker.latency_request_held { "held" } else { "-" }.to_owned(),
            format!("{}/{}", worker.pool_free, worker.pool_frames),
            time(worker.p50_ns),
            time(worker.p99_ns),
            time(worker.p999_ns),
        ]
    };
    Section {
        title: "workers".to_owned(),
        header: vec![
            "worker",
            "mode",
            "on",
            "CPU",
            "busy turns/s",
            "sleeps/s",
            "wakes/s",
            "request",
            "free",
            "p50",
            "p99",
            "p99.9",
        ],
        rows: workers.iter().map(row).collect(),
        notes: Vec::new(),
        first_number: 3,
        optional: &["request", "wakes/s", "on", "p50", "p99.9", "free", "busy turns/s", "sleeps/s", "p99"],
    }
}

fn drops(rates: &Rates) -> Section {
    let row = |drop: &super::rates::DropRate| {
        vec![drop.place.clone(), drop.reason.replace('_', " "), count(drop.per_s), drop.total.to_string()]
    };
    Section {
        title: "dropped or refused".to_owned(),
        header: vec!["where", "why", "per second", "so far"],
        rows: rates.drops.iter().map(row).collect(),
        notes: Vec::new(),
        first_number: 2,
        optional: &["per second", "where"],
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// A number of at most four digits with its prefix.
fn count(value: f64) -> String {
    match value {
        _ if value < 0.05 => "0".to_owned(),
        _ if value < 10.0 => format!("{value:.1}"),
        _ if value < 1e4 => format!("{value:.0}"),
        _ if value < 1e6 => format!("{:.1} k", value / 1e3),
        _ if value < 1e9 => format!("{:.2} M", value / 1e6),
        _ => format!("{:.2} G", value / 1e9),
    }
}

/// A time, to three digits.
fn time(nanos: Option<u64>) -> String {
    match nanos {
        None => dash(),
        Some(nanos) if nanos < 10_000 => format!("{:.2} us", nanos as f64 / 1e3),
        Some(nanos) if nanos < 1_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        Some(nanos) => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.5, "0.5"), (12.34, "12"), (9_999.0, "9999"), (123_456.0, "123.5 k")]
        {
            assert_eq!(count(value), text);
        }
        for (nanos, text) in [(1_234, "1.23 us"), (56_789, "57 us"), (3_400_000, "3.4 ms")] {
            assert_eq!(time(Some(nanos)), text);
        }
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_header() {
        let rates = Rates {
            services: vec![ServiceRates::default()],
            rpc: vec![ProcedureRates::default()],
            interfaces: vec![InterfaceRates { queues: vec![Default::default()], ..Default::default() }],
            workers: vec![WorkerRates::default()],
            drops: vec![Default::default()],
            ..Rates::default()
        };
        let sections = sections(&rates);
        assert_eq!(sections.len(), 5);
        for section in sections {
            assert!(section.rows.iter().all(|row| row.len() == section.header.len()), "{}", section.title);
            assert!(section.optional.iter().all(|name| section.header.contains(name)), "{}", section.title);
        }
    }
}
