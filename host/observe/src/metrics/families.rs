//! The metric families that do not belong only to switches and owners, in the order of docs/metrics.md.
//! This file has those that are computed from a report; those of counters are declared with the counters.

use twinpath_config::Path;
use twinpath_inspect::MetricKind;
use twinpath_worker::idle::Mode;

use super::declared::{
    CLAIMS, CONNECTIONS, FAST_CONNECTIONS, KEPT, KEPT_ON_INTERFACE, PROCEDURES, QUEUES, REQUESTS, SERVING,
    SESSIONS, WORKERS, WORKERS_GUARDED, WORKERS_IDLE, WORKERS_WHOLE,
};
use super::rows::{by, each, flag, of, of_interfaces, of_measures, of_workers, on, own, times, with};
use super::{Family, Row, Value};
use crate::report::{Interface, Report, RequestCounts};

type Rows = fn(&Report) -> Vec<Row>;

pub(super) fn counter(name: &'static str, help: &'static str, labels: &[&'static str], rows: Rows) -> Family {
    Family { name, kind: MetricKind::Counter, help, labels: labels.to_vec(), rows: Box::new(rows) }
}

pub(super) fn gauge(name: &'static str, help: &'static str, labels: &[&'static str], rows: Rows) -> Family {
    Family { name, kind: MetricKind::Gauge, help, labels: labels.to_vec(), rows: Box::new(rows) }
}

fn info(name: &'static str, help: &'static str, labels: &[&'static str], rows: Rows) -> Family {
    Family { name, kind: MetricKind::Info, help, labels: labels.to_vec(), rows: Box::new(rows) }
}

fn histogram(name: &'static str, help: &'static str, labels: &[&'static str], rows: Rows) -> Family {
    Family { name, kind: MetricKind::Histogram, help, labels: labels.to_vec(), rows: Box::new(rows) }
}

/// The families.
pub(super) fn all() -> Vec<Family> {
    let families = [
        of_instance(),
        of_interface(),
        of_fallback(),
        QUEUES.families(),
        of_claims(),
        CLAIMS.families(),
        SERVING.families(),
        KEPT.families(),
        KEPT_ON_INTERFACE.families(),
        of_service(),
        REQUESTS.families(),
        PROCEDURES.families(),
        CONNECTIONS.families(),
        FAST_CONNECTIONS.families(),
        SESSIONS.families(),
        of_worker(),
        WORKERS.families(),
        WORKERS_IDLE.families(),
        WORKERS_GUARDED.families(),
        WORKERS_WHOLE.families(),
    ];
    families.into_iter().flatten().collect()
}

fn of_instance() -> Vec<Family> {
    vec![
        info(
            "twinpath_build",
            "Version of the program, and the service it runs.",
            &["version", "service"],
            |report| {
                let instance = &report.instance;
                vec![Row {
                    labels: vec![instance.version.clone(), instance.kind.to_string()],
                    value: Value::Labels,
                }]
            },
        ),
        gauge("twinpath_uptime_seconds", "Time since the instance started.", &[], |report| {
            vec![Row { labels: vec![], value: Value::Number(report.instance.uptime_s) }]
        }),
        gauge(
            "twinpath_draining",
            "1 while the instance answers what it has accepted, and ends.",
            &[],
            |report| vec![Row { labels: vec![], value: flag(report.instance.draining.is_some()) }],
        ),
        counter("twinpath_reloads", "Reloads of the configuration, by outcome.", &["outcome"], |report| {
            let of =
                |outcome: &str, count| Row { labels: vec![outcome.to_owned()], value: Value::Count(count) };
            let configuration = report.instance.configuration.iter();
            configuration.flat_map(|it| [of("done", it.reloads), of("refused", it.refused)]).collect()
        }),
        gauge(
            "twinpath_standing_by",
            "0 while the instance stands by for another one, 1 while it serves in its place.",
            &[],
            |report| {
                let standing_by = report.instance.standing_by.iter();
                standing_by.map(|it| Row { labels: vec![], value: flag(it.serves) }).collect()
            },
        ),
        gauge(
            "twinpath_frame_memory_bytes",
            "Memory for frames: the workers' pools and the kernel's rings.",
            &[],
            |report| {
                vec![Row {
                    labels: vec![],
                    value: Value::Number(report.instance.pool_mib * f64::from(1 << 20)),
                }]
            },
        ),
    ]
}

fn of_interface() -> Vec<Family> {
    vec![
        info(
            "twinpath_interface",
            "Driver of the interface, and the address of its device on a bus.",
            &["interface", "kind", "driver", "bus"],
            |report| {
                let labels = |interface: &Interface| {
                    let device = &interface.device;
                    vec![
                        interface.name.clone(),
                        interface.kind.clone(),
                        device.driver.clone(),
                        device.bus.clone(),
                    ]
                };
                report.interfaces.iter().map(|it| Row { labels: labels(it), value: Value::Labels }).collect()
            },
        ),
        gauge("twinpath_interface_up", "1 while the link is up and has carrier.", &["interface"], |report| {
            of_interfaces(report, |it| flag(it.link == "up"))
        }),
        gauge("twinpath_interface_mtu_bytes", "MTU.", &["interface"], |report| {
            of_interfaces(report, |it| Value::Count(it.mtu.into()))
        }),
        gauge(
            "twinpath_interface_speed_bytes_per_second",
            "Speed of the link, if the driver reports it.",
            &["interface"],
            |report| {
                let known = report.interfaces.iter().filter_map(|it| Some((it, it.device.speed_mbps?)));
                known
                    .map(|(it, mbps)| Row { labels: on(it), value: Value::Count(u64::from(mbps) * 125_000) })
                    .collect()
            },
        ),
        gauge(
            "twinpath_interface_path",
            "1 for the path of the interface, 0 for the others.",
            &["interface", "path"],
            |report| {
                each(&report.interfaces, |it| {
                    Path::ALL.map(|path| Row {
                        labels: with(on(it), path.name()),
                        value: flag(it.path == path.name()),
                    })
                })
            },
        ),
        gauge(
            "twinpath_interface_foreign_xdp",
            "1 while a foreign XDP program is on the interface.",
            &["interface"],
            |report| of_interfaces(report, |it| flag(it.device.foreign_xdp.is_some())),
        ),
        gauge(
            "twinpath_interface_offload",
            "1 for an offload that is on, by its name in ethtool -k.",
            &["interface", "offload"],
            |report| {
                each(&report.interfaces, |it| {
                    let offloads = it.device.offloads.iter();
                    offloads
                        .map(|offload| Row { labels: with(on(it), &offload.name), value: flag(offload.on) })
                })
            },
        ),
    ]
}

fn of_fallback() -> Vec<Family> {
    vec![
        gauge(
            "twinpath_fallback_ratio",
            "Kernel traffic with a path attached, divided by that without it, measured at start on a separate link.",
            &["interface", "path", "measure"],
            |report| of_measures(report, |measure| measure.ratio),
        ),
        gauge(
            "twinpath_fallback_before",
            "The same without the path: us, Gbit/s, requests per second.",
            &["interface", "path", "measure"],
            |report| of_measures(report, |measure| measure.before),
        ),
        gauge(
            "twinpath_fallback_after",
            "The same with the path attached.",
            &["interface", "path", "measure"],
            |report| of_measures(report, |measure| measure.after),
        ),
        gauge(
            "twinpath_fallback_program_seconds",
            "Time that a program adds to a frame for the kernel, by test runs at start.",
            &["interface", "path", "program", "frame"],
            |report| {
                each(&report.interfaces, |it| {
                    each(&it.fallback, |fallback| {
                        fallback.programs.iter().map(|cost| Row {
                            labels: [
                                on(it),
                                vec![fallback.path.clone(), cost.program.clone(), cost.frame.clone()],
                            ]
                            .concat(),
                            value: Value::Number(cost.added_ns / 1e9),
                        })
                    })
                })
            },
        ),
    ]
}

fn of_claims() -> Vec<Family> {
    vec![
        counter(
            "twinpath_drops",
            "Drops and refusals, by place and reason; only those that happened.",
            &["place", "reason"],
            |report| {
                let labels = |place: &str, reason: &str| vec![place.to_owned(), reason.to_owned()];
                let drops = report.drops.iter();
                drops
                    .map(|it| Row { labels: labels(&it.place, &it.reason), value: Value::Count(it.count) })
                    .collect()
            },
        ),
        counter(
            "twinpath_verdicts",
            "Frames by the verdict of the claims' program; only verdicts that happened.",
            &["verdict"],
            |report| {
                let verdicts = report.rules.verdicts.iter();
                verdicts
                    .map(|it| Row { labels: vec![it.name.clone()], value: Value::Count(it.count) })
                    .collect()
            },
        ),
        gauge(
            "twinpath_claim_fast",
            "1 while the traffic of the claim comes by a fast path, 0 by the kernel's.",
            &["service", "claim"],
            |report| {
                each(&report.services, |service| {
                    service.claims.iter().map(|claim| Row {
                        labels: with(of(service), &claim.claim),
                        value: flag(claim.path != Path::Kernel.name()),
                    })
                })
            },
        ),
        counter(
            "twinpath_reflex_not_replied",
            "Requests that the kernel's programs left to a worker instead of replying, by reason.",
            &["interface", "reason"],
            |report| {
                each(&report.interfaces, |interface| {
                    interface.reflexes.iter().flat_map(|reflexes| &reflexes.not_replied).map(|count| Row {
                        labels: with(on(interface), &count.name),
                        value: Value::Count(count.count),
                    })
                })
            },
        ),
    ]
}

fn of_service() -> Vec<Family> {
    vec![
        counter(
            "twinpath_service_replies_not_kept",
            "Replies that could not be kept, by reason; they were sent nevertheless.",
            &["service", "reason"],
            |report| {
                each(&report.services, |service| {
                    service.kept.iter().flat_map(|kept| &kept.not_kept).map(|count| Row {
                        labels: with(of(service), &count.name),
                        value: Value::Count(count.count),
                    })
                })
            },
        ),
        counter(
            "twinpath_service_requests_answered",
            "Requests that the service answered, by its own count: calls of rpc, by outcome.",
            &["service", "outcome"],
            |report| {
                let counting =
                    report.services.iter().filter_map(|service| Some((service, service.requests?)));
                let rows = counting.flat_map(|(service, requests)| {
                    let RequestCounts { answered, refused, repeated, .. } = requests;
                    let first = answered.saturating_sub(refused + repeated);
                    [("answered", first), ("refused", refused), ("repeated", repeated)].map(
                        |(outcome, count)| Row {
                            labels: with(of(service), outcome),
                            value: Value::Count(count),
                        },
                    )
                });
                rows.collect()
            },
        ),
        counter(
            "twinpath_service_own",
            "A service's own counters, and its reasons to refuse, by their names.",
            &["service", "metric"],
            |report| own(report, |metric| metric.times.is_none().then_some(Value::Count(metric.count))),
        ),
        histogram(
            "twinpath_service_own_seconds",
            "Times that a service measures, by their names.",
            &["service", "metric"],
            |report| own(report, |metric| metric.times.as_ref().map(times)),
        ),
    ]
}

fn of_worker() -> Vec<Family> {
    vec![
        gauge(
            "twinpath_worker_mode",
            "1 for the mode of the worker, 0 for the others.",
            &["worker", "mode"],
            |report| {
                each(&report.workers, |worker| {
                    Mode::ALL.map(|mode| Row {
                        labels: with(by(worker), mode.name()),
                        value: flag(worker.mode == mode.name()),
                    })
                })
            },
        ),
        counter(
            "twinpath_worker_idle_seconds",
            "Time spent spinning in mode adaptive, asleep, and asleep with a latency request held.",
            &["worker", "how"],
            |report| {
                each(&report.workers, |worker| {
                    let idle = &worker.idle.counts;
                    let asleep = idle.slept_ns.saturating_sub(idle.held_ns);
                    [("spinning", idle.spun_ns), ("held", idle.held_ns), ("asleep", asleep)].map(
                        |(how, ns)| Row {
                            labels: with(by(worker), how),
                            value: Value::Number(ns as f64 / 1e9),
                        },
                    )
                })
            },
        ),
        gauge(
            "twinpath_worker_stuck",
            "1 while it is stuck, and the kernel serves in its place.",
            &["worker"],
            |report| of_workers(report, |worker| flag(worker.stuck_ms.is_some())),
        ),
        gauge(
            "twinpath_worker_latency_request_held",
            "1 while it holds a CPU latency request.",
            &["worker"],
            |report| of_workers(report, |worker| flag(worker.latency_request.held)),
        ),
    ]
}
