//! Formats the report as tables.

use std::fmt::Write as _;

use twinpath_observe::command::Topic;
use twinpath_observe::report::{
    Configuration, Device, Draining, FastTcpCounts, InstanceKind, Interface, KeptReplies, PortCounts,
    Reflexes, Report, Sandbox, ServeCounts, Service, StandingBy, Worker, WorkerCounts,
};

use super::grid::{cells, headers, table};

/// The requested part of the report.
pub(crate) fn render(topic: Topic, report: &Report) -> String {
    let part = |wanted: Topic| topic == wanted || topic == Topic::All;
    let mut sections = Vec::new();
    if part(Topic::Instance) {
        sections.push(instance(report));
    }
    let kind = &report.instance.kind;
    // A switch has neither services nor claims, and answers no peers. The same holds for the owner of an interface, which
    // has no workers either.
    let has_services = matches!(kind, InstanceKind::Serve(_) | InstanceKind::Bridge);
    let part_of_service = |wanted: Topic| topic == wanted || (topic == Topic::All && has_services);
    if topic == Topic::Ports || (topic == Topic::All && *kind == InstanceKind::Switch) {
        sections.push(super::switch::ports(report));
    }
    if topic == Topic::Macs {
        sections.push(super::switch::macs(report));
    }
    sections.extend(super::openflow::render(topic, report));
    if topic == Topic::Programs || (topic == Topic::All && *kind == InstanceKind::Sockets) {
        sections.push(super::programs::programs(report));
    }
    if topic == Topic::Rds || (topic == Topic::All && *kind == InstanceKind::Rds) {
        sections.push(super::rds::rds(report));
    }
    if part_of_service(Topic::Services) {
        sections.push(services(report));
    }
    if topic == Topic::Rpc || (topic == Topic::All && !report.rpc.is_empty()) {
        sections.push(super::rpc::procedures(report));
    }
    if part(Topic::Interfaces) {
        sections.push(interfaces(report));
    }
    if part_of_service(Topic::Rules) {
        sections.push(rules(report));
    }
    if part(Topic::Machine) {
        sections.push(machine(report));
    }
    if part(Topic::Workers) {
        sections.push(workers(report));
    }
    if part_of_service(Topic::Neighbours) {
        sections.push(neighbours(report));
    }
    if part(Topic::Drops) {
        sections.push(drops(report));
    }
    // Without a topic, the keys would be longer than everything else.
    if topic == Topic::Config {
        sections.push(super::config::render(&report.config));
    }
    sections.join("\n\n")
}

fn instance(report: &Report) -> String {
    let instance = &report.instance;
    format!(
        "{} on {}, pid {}, up {}, twinpath {}, {:.1} MiB of frame memory",
        instance.kind,
        if instance.ports.is_empty() { "no port".to_owned() } else { instance.ports.join(" and ") },
        instance.pid,
        span(instance.uptime_s),
        instance.version,
        instance.pool_mib
    ) + &instance.draining.map(draining).unwrap_or_default()
        + &instance.configuration.as_ref().map(configuration).unwrap_or_default()
        + &instance.standing_by.map(standing_by).unwrap_or_default()
        + &sandbox(&instance.sandbox)
}

fn standing_by(StandingBy { pid, serves, times }: StandingBy) -> String {
    let now = if serves { "serving in its place, as it is stuck" } else { "serving nothing" };
    let so_far = if times > 0 { format!(", {times} times in its place so far") } else { String::new() };
    format!("\nstanding by for PID {pid}: {now}{so_far}")
}

fn configuration(configuration: &Configuration) -> String {
    let Configuration { file, read_s, refusal, .. } = configuration;
    let refused = match refusal {
        Some(why) => format!("; the last reload was refused:\n    {}", why.replace('\n', "\n    ")),
        None => String::new(),
    };
    format!("\nconfiguration {file}, read {} ago{refused}", span(*read_s))
}

fn sandbox(sandbox: &Sandbox) -> String {
    let kept = sandbox.capabilities.iter().map(|kept| match kept.needed_for.as_str() {
        "" => format!("\n    {}", kept.name),
        reason => format!("\n    {}: {reason}", kept.name),
    });
    let Sandbox { setting, files, calls, no_new_privs, .. } = sandbox;
    let privileges =
        if *no_new_privs { "none can be gained" } else { "more can be gained by running programs" };
    let none = if sandbox.capabilities.is_empty() { " none" } else { "" };
    format!("\nsandbox {setting}\n  files: {files}\n  calls: {calls}\n  capabilities ({privileges}):{none}")
        + &kept.collect::<String>()
}

fn draining(draining: Draining) -> String {
    let Draining { connections, left_ms, cut_off, .. } = draining;
    let cut_off = if cut_off > 0 { format!(", {cut_off} were closed") } else { String::new() };
    format!(
        "\n  draining: {connections} connections left, {:.1} s until they are closed{cut_off}",
        left_ms as f64 / 1e3
    )
}

fn services(report: &Report) -> String {
    if report.services.is_empty() {
        return "services: none".to_owned();
    }
    report.services.iter().map(service).collect::<Vec<_>>().join("\n\n")
}

fn service(service: &Service) -> String {
    let mut text = format!("{}:", service.name);
    for claim in &service.claims {
        let _ = write!(text, "\n  {}: {} path; {}", claim.claim, claim.path, claim.why);
        if claim.counts.fast_requests + claim.counts.kernel_requests > 0 {
            let (fast, kernel) = (claim.counts.fast_requests, claim.counts.kernel_requests);
            let _ = write!(text, " ({fast} requests by the fast path, {kernel} by the kernel's)");
        }
        if claim.counts.reflex_replies > 0 {
            let _ = write!(text, " ({} by reflex)", claim.counts.reflex_replies);
        }
    }
    let _ = write!(text, "\n{}", by_path(&service.serve, service.reflex_replies));
    if let Some(requests) = service.requests {
        let _ = write!(text, "\n  calls: {} answered", requests.answered);
        for (count, how) in [(requests.refused, "refused"), (requests.repeated, "by a reply that was kept")] {
            if count > 0 {
                let _ = write!(text, ", {count} of them {how}");
            }
        }
    }
    for own in &service.own {
        let _ = write!(text, "\n  {}: {}", own.name, own.count);
        if let Some(times) = &own.times
            && let (Some(p50), Some(p99)) = (times.quantile(0.5), times.quantile(0.99))
        {
            let _ = write!(text, ", p50 {p50} ns, p99 {p99} ns");
        }
    }
    text.push_str(&kept_replies(service));
    text.push_str(&unanswered_ports(service));
    if service.tcp.accepted > 0 {
        let _ =
            write!(text, "\n  TCP: {} connections, {} so far", service.tcp.connections, service.tcp.accepted);
        if service.tcp.queued_bytes > 0 {
            let _ = write!(text, "; they hold {} bytes", service.tcp.queued_bytes);
        }
    }
    fast_connections(&mut text, &service.fast_tcp);
    if service.sessions.sessions > 0 {
        let _ = write!(text, "\n  UDP: {} sessions", service.sessions.sessions);
    }
    let ServeCounts { deferred, deferred_done, deferred_threads, .. } = service.serve;
    if deferred_threads > 0 {
        let deferred_waits = service.tcp.deferred_waits;
        let _ = write!(
            text,
            "\n  later: {deferred} requests, {deferred_done} so far, by {deferred_threads} threads now"
        );
        if deferred_waits > 0 {
            let _ = write!(text, "; {deferred_waits} times one waited for room");
        }
    }
    text
}

/// Requests and replies, by the path that they took.
fn fast_connections(text: &mut String, fast: &FastTcpCounts) {
    if fast.fast_accepted + fast.fast_declined == 0 {
        return;
    }
    let _ = write!(
        text,
        "\n    of these on the fast path: {} connections, {} so far",
        fast.fast_connections, fast.fast_accepted
    );
    if fast.fast_declined > 0 {
        let _ = write!(text, ", {} left to the kernel", fast.fast_declined);
    }
    if fast.fast_moved > 0 {
        let (open, moved) = (fast.fast_in_kernel, fast.fast_moved);
        let _ = write!(text, "\n    moved from there to the kernel: {open} connections, {moved} so far");
    }
    if fast.fast_not_moved > 0 {
        let _ = write!(text, "\n    reset when the fast path ended: {}", fast.fast_not_moved);
    }
}

fn by_path(serve: &ServeCounts, reflex_replies: u64) -> comfy_table::Table {
    let mut table = table(&["by the", "requests", "replies"], 1);
    let by_kernel = serve.fast_replies_by_kernel;
    table.add_row([
        "fast path".to_owned(),
        serve.fast_requests.to_string(),
        match by_kernel {
            0 => serve.fast_replies.to_string(),
            _ => format!("{} and {by_kernel} through the kernel", serve.fast_replies),
        },
    ]);
    if reflex_replies > 0 {
        let replies = reflex_replies.to_string();
        table.add_row(["reflex".to_owned(), replies.clone(), replies]);
    }
    table.add_row([
        "kernel path".to_owned(),
        serve.kernel_requests.to_string(),
        serve.kernel_replies.saturating_sub(by_kernel).to_string(),
    ]);
    table
}

/// The source ports whose datagrams are not answered.
fn unanswered_ports(service: &Service) -> String {
    let said = &service.unanswered_ports;
    if said.is_empty() { String::new() } else { format!("\n  source ports: {said}") }
}

/// The replies that a service keeps for the kernel's programs, or why these answer nothing for it.
fn kept_replies(service: &Service) -> String {
    let why = &service.no_reflex;
    let none = if why.is_empty() { String::new() } else { format!("\n  reflexes: none, as {why}") };
    let Some(kept) = &service.kept else { return none };
    let refused = kept.not_kept.iter().map(|count| format!("; not kept: {} {}", count.name, count.count));
    format!("\n  kept replies: {}{}", kept.entries, refused.collect::<String>())
}

fn interfaces(report: &Report) -> String {
    if report.interfaces.is_empty() {
        return "interfaces: none is served".to_owned();
    }
    report.interfaces.iter().map(interface).collect::<Vec<_>>().join("\n\n")
}

/// Why there are no reflexes, or which requests got none.
fn reflexes(reflexes: &Reflexes) -> String {
    let Reflexes { off, not_replied, kept } = reflexes;
    if !off.is_empty() {
        return format!("\n  reflexes: none, as {off}");
    }
    let counts: Vec<_> = not_replied.iter().map(|count| format!("{} {}", count.name, count.count)).collect();
    let left =
        if counts.is_empty() { String::new() } else { format!("; not by reflex: {}", counts.join(", ")) };
    let kept = kept.as_ref().map_or_else(String::new, |kept| {
        let KeptReplies { off, entries, entries_max, evictions, memory_bytes } = kept;
        let mib = *memory_bytes as f64 / f64::from(1 << 20);
        if off.is_empty() {
            format!("\n  kept replies: {entries} of {entries_max} entries, {evictions} displaced, {mib:.1} MiB of memory")
        } else {
            format!("\n  kept replies: given by workers, as {off}")
        }
    });
    format!("\n  reflexes: where services allow them{left}{kept}")
}

fn interface(interface: &Interface) -> String {
    let mut text = format!(
        "{} ({}, {}, mtu {}): {}\n  why: {}",
        interface.name,
        if interface.kind.is_empty() { "device" } else { &interface.kind },
        interface.link,
        interface.mtu,
        interface.path,
        interface.why
    );
    if !interface.attach.is_empty() {
        let _ = write!(text, "\n  attached at tc by {}", interface.attach);
    }
    if let Some(reflexes) = &interface.reflexes {
        text.push_str(&self::reflexes(reflexes));
    }
    for left in &interface.left_behind {
        let (program, pid) = (&left.program, left.pid);
        let _ = write!(
            text,
            "\n  left behind by process {pid}, which was killed: {program}; it does nothing, and `twinpath tidy` removes it"
        );
    }
    for not in &interface.why_not {
        let _ = write!(text, "\n  why not {}: {}", not.path, not.reason);
    }
    // A switch does not choose a path by the devices of its ports.
    if interface.device != Device::default() {
        text.push_str(&device(&interface.device));
    }
    for line in interface.fallback.iter().flat_map(super::fallback::lines) {
        let _ = write!(text, "\n  {line}");
    }
    if let Some(crossed) = &interface.crossed {
        let _ = write!(
            text,
            "\n  crossed within the kernel: {} frames ({} bytes) in, {} frames ({} bytes) out",
            crossed.frames_in, crossed.bytes_in, crossed.frames_out, crossed.bytes_out
        );
    }
    if !interface.queues.is_empty() {
        let header: Vec<_> =
            ["queue", "worker", "path", "mode"].into_iter().chain(headers::<PortCounts>()).collect();
        let mut table = table(&header, 4);
        for queue in &interface.queues {
            let which =
                [queue.queue.to_string(), queue.worker.to_string(), queue.path.clone(), queue.mode.clone()];
            table.add_row(which.into_iter().chain(cells(&queue.counts)));
        }
        let _ = write!(text, "\n{table}");
    }
    text
}

/// Driver, link and offloads, a line each.
fn device(device: &Device) -> String {
    let mut facts = vec![match device.driver.as_str() {
        "" => "no driver named".to_owned(),
        driver => format!("driver {driver}"),
    }];
    let named = [("at", &device.bus), ("firmware", &device.firmware)];
    facts.extend(
        named.iter().filter(|(_, value)| !value.is_empty()).map(|(what, value)| format!("{what} {value}")),
    );
    facts.push(if device.carrier { "carrier".to_owned() } else { "no carrier".to_owned() });
    facts.extend(device.speed_mbps.map(|speed| format!("{speed} Mbit/s")));
    facts.push(format!("{} receive and {} transmit queues", device.rx_queues, device.tx_queues));
    let mut text = format!("\n  device: {}", facts.join(", "));
    for (state, on) in [("on", true), ("off", false)] {
        let names: Vec<_> = device
            .offloads
            .iter()
            .filter(|offload| offload.on == on)
            .map(|offload| offload.name.as_str())
            .collect();
        if !names.is_empty() {
            let _ = write!(text, "\n  offloads {state}: {}", names.join(", "));
        }
    }
    if let Some(features) = &device.xdp_features {
        let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
        let _ = write!(text, "\n  XDP in the driver: {features}");
    }
    if let Some(foreign) = &device.foreign_xdp {
        let _ = write!(text, "\n  beside us: {foreign}");
    }
    text
}

fn rules(report: &Report) -> String {
    let rules = &report.rules;
    let mut text = if rules.claims.is_empty() {
        "claims: none, so all traffic is the kernel's".to_owned()
    } else {
        format!("claims:\n  {}", rules.claims.join("\n  "))
    };
    if !rules.verdicts.is_empty() {
        let mut table = table(&["verdict", "frames"], 1);
        for verdict in &rules.verdicts {
            table.add_row([verdict.name.clone(), verdict.count.to_string()]);
        }
        let _ = write!(text, "\n{table}");
    }
    text
}

fn workers(report: &Report) -> String {
    if report.workers.is_empty() {
        return "workers: none".to_owned();
    }
    // Two tables, because one with all columns is too wide for a terminal.
    let what = ["worker", "cpu", "mode", "priority"].into_iter().chain(headers::<Worker>());
    let mut work = table(&what.chain(["frames free"]).collect::<Vec<_>>(), 4);
    let mut time = table(&["worker"].into_iter().chain(headers::<WorkerCounts>()).collect::<Vec<_>>(), 1);
    for worker in &report.workers {
        let which = [
            worker.worker.to_string(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            worker.mode.clone(),
            worker.priority.clone(),
        ];
        let free = format!("{} of {}", worker.counts.pool_free, worker.pool_frames);
        work.add_row(which.into_iter().chain(cells(worker)).chain([free]));
        time.add_row([worker.worker.to_string()].into_iter().chain(cells(&worker.counts)));
    }
    let mut text = format!("{work}\n{time}");
    for worker in &report.workers {
        text += &stuck(worker, &report.instance.kind);
        let _ = write!(text, "\n{}\n{}", idle(worker), latency_request(worker));
        text.push_str(&scheduling(worker));
    }
    text
}

/// Its priority, and its limits on using the CPU.
fn scheduling(worker: &Worker) -> String {
    let mut text = String::new();
    if !worker.priority_why.is_empty() {
        let _ =
            write!(text, "\nworker {}: priority {}, {}", worker.worker, worker.priority, worker.priority_why);
    }
    if let Some(guard) = &worker.guard
        && guard.lower.is_some()
    {
        let _ = write!(text, "; it has changed {} times", guard.counts.priority_steps);
    } else if let Some(guard) = &worker.guard {
        let _ = write!(
            text,
            "\nworker {}: at {} it spins at most {:.0} % of the time and runs at most {:.0} %, for others on its CPU; \
             it slept {} and paused {} times for that",
            worker.worker,
            worker.priority,
            guard.spin_share_max * 100.0,
            guard.run_share_max * 100.0,
            guard.counts.guard_sleeps,
            guard.counts.guard_pauses
        );
    }
    text
}

/// A sentence about a worker that is or was stuck.
fn stuck(worker: &Worker, kind: &InstanceKind) -> String {
    let is_bridge = *kind == InstanceKind::Bridge;
    let (number, times) = (worker.worker, worker.times_stuck);
    match worker.stuck_ms {
        Some(ms) if is_bridge => {
            format!(
                "\nworker {number}: stuck for {ms} ms, for the {times}. time: the kernel carries all frames meanwhile"
            )
        }
        None if is_bridge && times > 0 => format!(
            "\nworker {number}: was stuck {times} times; the kernel carried all frames, and those that had waited for it are dropped \
             (worker stuck)"
        ),
        Some(ms) => format!(
            "\nworker {number}: stuck for {ms} ms, for the {times}. time: the kernel claims nothing for it, and serves in its place"
        ),
        None if times > 0 => format!(
            "\nworker {number}: was stuck {times} times; the kernel served in its place, and what it had not looked for is dropped \
             (worker stuck)"
        ),
        None => String::new(),
    }
}

fn idle(worker: &Worker) -> String {
    let (idle, counts) = (&worker.idle, &worker.idle.counts);
    let mut text = format!("worker {}: ", worker.worker);
    if !idle.decided.is_empty() {
        let _ = write!(text, "goal: {}; {}; ", idle.goal, idle.decided);
    }
    let _ = write!(
        text,
        "woken {} times by packets, {} ahead of them, {} otherwise; spun {} times, {:.3} s; asleep {:.3} s, {:.3} s of that with a \
         latency request",
        counts.woken_by_packet,
        counts.woken_by_prediction,
        counts.woken_by_other,
        counts.spins,
        counts.spun_ns as f64 / 1e9,
        counts.slept_ns as f64 / 1e9,
        counts.held_ns as f64 / 1e9
    );
    if counts.spin_limit_sleeps > 0 {
        let _ = write!(
            text,
            "; made to sleep {} times, as it had been awake without a packet for too long: a fault, please report it",
            counts.spin_limit_sleeps
        );
    }
    if let (Some(p50), Some(p99)) = (counts.wake_latency.quantile(0.5), counts.wake_latency.quantile(0.99)) {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let _ = write!(text, "; waking up took {:.1} us (p99 {:.1} us)", us(p50), us(p99));
    }
    text
}

fn machine(report: &Report) -> String {
    report.machine.as_ref().map_or_else(|| "machine: not measured".to_owned(), super::machine::render)
}

fn latency_request(worker: &Worker) -> String {
    let request = &worker.latency_request;
    let held = if request.held { "held" } else { "not held" };
    let mut text = format!("worker {}: CPU latency request {}, {held}", worker.worker, request.setting);
    match (request.wake_us_without, request.wake_us_with) {
        (Some(without), Some(with)) => {
            let _ = write!(text, "; a wake-up takes {without:.1} us without it, {with:.1} us with it");
        }
        (Some(without), None) => {
            let _ = write!(text, "; a wake-up takes {without:.1} us without it");
        }
        _ => {}
    }
    if !request.verdict.is_empty() {
        let _ = write!(text, "; {}", request.verdict);
    }
    text
}

fn neighbours(report: &Report) -> String {
    if report.neighbours.is_empty() {
        return "neighbours: no peer was answered lately".to_owned();
    }
    let mut table = table(&["peer", "leaves by", "next hop", "interface", "mac", "state", "mtu"], 6);
    for neighbour in &report.neighbours {
        let leaves = if neighbour.egress == "fast" {
            "fast path".to_owned()
        } else {
            format!("kernel: {}", neighbour.egress.replace('_', " "))
        };
        table.add_row([
            neighbour.peer.clone(),
            leaves,
            neighbour.next_hop.clone(),
            neighbour.interface.clone(),
            neighbour.mac.clone().unwrap_or_else(|| "unknown".to_owned()),
            neighbour.state.clone(),
            neighbour.mtu.to_string(),
        ]);
    }
    table.to_string()
}

fn drops(report: &Report) -> String {
    if report.drops.is_empty() {
        return "drops: none".to_owned();
    }
    let mut table = table(&["where", "dropped or refused", "count"], 2);
    for drop in &report.drops {
        table.add_row([drop.place.clone(), drop.reason.replace('_', " "), drop.count.to_string()]);
    }
    table.to_string()
}

/// A duration in a suitable unit.
fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests;
