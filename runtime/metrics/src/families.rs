//! The metric families, in the order of docs/metrics.md.

use twinpath_config::Path;
use twinpath_report::{Interface, Report, ServiceRequests};
use twinpath_worker::idle::Mode;

use super::rows::{
    by, by_path, each, flag, of, of_interfaces, of_measures, of_queues, of_services, of_workers, on, own,
    times, with,
};
use super::{Family, Kind, Row, Value};

pub(super) const fn counter(name: &'static str, help: &'static str, rows: fn(&Report) -> Vec<Row>) -> Family {
    Family { name, kind: Kind::Counter, help, rows }
}

pub(super) const fn gauge(name: &'static str, help: &'static str, rows: fn(&Report) -> Vec<Row>) -> Family {
    Family { name, kind: Kind::Gauge, help, rows }
}

const fn info(name: &'static str, help: &'static str, rows: fn(&Report) -> Vec<Row>) -> Family {
    Family { name, kind: Kind::Info, help, rows }
}

/// The families that are not only of switches. Names and labels are stable, because dashboards depend on them.
pub(super) const FAMILIES: &[Family] = &[
    info("twinpath_build", "Version of the program, and the service it runs.", |report| {
        let instance = &report.instance;
        vec![Row {
            labels: vec![("version", instance.version.clone()), ("service", instance.service.clone())],
            value: Value::Labels,
        }]
    }),
    gauge("twinpath_uptime_seconds", "Time since the instance started.", |report| {
        vec![Row { labels: vec![], value: Value::Number(report.instance.uptime_s) }]
    }),
    gauge("twinpath_draining", "1 while the instance answers what it has accepted, and ends.", |report| {
        vec![Row { labels: vec![], value: flag(report.instance.draining.is_some()) }]
    }),
    counter(
        "twinpath_reloads",
        "Times that the configuration was read again, by what came of it.",
        |report| {
            let of = |outcome: &str, count| Row {
                labels: vec![("outcome", outcome.to_owned())],
                value: Value::Count(count),
            };
            let configuration = report.instance.configuration.iter();
            configuration.flat_map(|it| [of("done", it.reloads), of("refused", it.refused)]).collect()
        },
    ),
    gauge(
        "twinpath_standing_by",
        "0 while the instance stands by for another one, 1 while it serves in its place.",
        |report| {
            let standing_by = report.instance.standing_by.iter();
            standing_by.map(|it| Row { labels: vec![], value: flag(it.serves) }).collect()
        },
    ),
    gauge(
        "twinpath_frame_memory_bytes",
        "Memory for frames: the workers' pools and the kernel's rings.",
        |report| {
            vec![Row { labels: vec![], value: Value::Number(report.instance.pool_mib * f64::from(1 << 20)) }]
        },
    ),
    info(
        "twinpath_interface",
        "Driver of the interface, and the address of its device on a bus.",
        |report| {
            let labels = |interface: &Interface| {
                let device = &interface.device;
                vec![
                    ("interface", interface.name.clone()),
                    ("kind", interface.kind.clone()),
                    ("driver", device.driver.clone()),
                    ("bus", device.bus.clone()),
                ]
            };
            report.interfaces.iter().map(|it| Row { labels: labels(it), value: Value::Labels }).collect()
        },
    ),
    gauge("twinpath_interface_up", "1 while the link is up and has carrier.", |report| {
        of_interfaces(report, |it| flag(it.link == "up"))
    }),
    gauge("twinpath_interface_mtu_bytes", "MTU.", |report| {
        of_interfaces(report, |it| Value::Count(it.mtu.into()))
    }),
    gauge(
        "twinpath_interface_speed_bytes_per_second",
        "Speed of the link, where the driver tells it.",
        |report| {
            let known = report.interfaces.iter().filter_map(|it| Some((it, it.device.speed_mbps?)));
            known
                .map(|(it, mbps)| Row { labels: on(it), value: Value::Count(u64::from(mbps) * 125_000) })
                .collect()
        },
    ),
    gauge(
        "twinpath_interface_path",
        "1 for the path that the interface is on, 0 for the others.",
        |report| {
            each(&report.interfaces, |it| {
                Path::ALL.map(|path| Row {
                    labels: with(on(it), "path", path.name()),
                    value: flag(it.path == path.name()),
                })
            })
        },
    ),
    gauge(
        "twinpath_interface_foreign_xdp",
        "1 while an XDP program that is not ours is on the interface.",
        |report| of_interfaces(report, |it| flag(it.device.foreign_xdp.is_some())),
    ),
    gauge(
        "twinpath_interface_offload",
        "1 for an offload that is on, by its name in ethtool -k.",
        |report| {
            each(&report.interfaces, |it| {
                let offloads = it.device.offloads.iter();
                offloads.map(|offload| Row {
                    labels: with(on(it), "offload", &offload.name),
                    value: flag(offload.on),
                })
            })
        },
    ),
    gauge(
        "twinpath_fallback_ratio",
        "Kernel traffic with a path attached over that without it, as measured at start on a link of its own.",
        |report| of_measures(report, |measure| measure.ratio),
    ),
    gauge(
        "twinpath_fallback_before",
        "The same without the path: us, Gbit/s, requests per second.",
        |report| of_measures(report, |measure| measure.before),
    ),
    gauge("twinpath_fallback_after", "The same with the path attached.", |report| {
        of_measures(report, |measure| measure.after)
    }),
    gauge(
        "twinpath_fallback_program_seconds",
        "What a program adds to a frame that stays the kernel's, by test runs at start.",
        |report| {
            each(&report.interfaces, |it| {
                each(&it.fallback, |fallback| {
                    fallback.programs.iter().map(|cost| Row {
                        labels: with(
                            with(with(on(it), "path", &fallback.path), "program", &cost.program),
                            "frame",
                            &cost.frame,
                        ),
                        value: Value::Number(cost.added_ns / 1e9),
                    })
                })
            })
        },
    ),
    counter("twinpath_queue_frames_received", "Frames received on the fast path.", |report| {
        of_queues(report, |queue| queue.frames_in)
    }),
    counter("twinpath_queue_frames_sent", "Frames sent on the fast path.", |report| {
        of_queues(report, |queue| queue.frames_out)
    }),
    counter(
        "twinpath_queue_bytes_received",
        "Bytes received on the fast path, from the Ethernet header.",
        |report| of_queues(report, |queue| queue.bytes_in),
    ),
    counter(
        "twinpath_queue_bytes_sent",
        "Bytes sent on the fast path, from the Ethernet header.",
        |report| of_queues(report, |queue| queue.bytes_out),
    ),
    counter(
        "twinpath_queue_frames_direct",
        "Of the frames received, those that came through the direct ring.",
        |report| of_queues(report, |queue| queue.frames_direct),
    ),
    counter(
        "twinpath_queue_direct_opened",
        "How often the direct ring was opened again after a sleep of the worker.",
        |report| of_queues(report, |queue| queue.direct_opened),
    ),
    counter(
        "twinpath_queue_packets_received",
        "Packets that the received frames are on a wire: a super-frame is several.",
        |report| of_queues(report, |queue| queue.packets_in),
    ),
    counter(
        "twinpath_queue_packets_sent",
        "Packets that the sent frames are on a wire: a super-frame is several.",
        |report| of_queues(report, |queue| queue.packets_out),
    ),
    counter(
        "twinpath_queue_frames_joined",
        "Of the frames sent, those that left within super-frames, for the kernel to cut.",
        |report| of_queues(report, |queue| queue.frames_joined),
    ),
    counter(
        "twinpath_queue_super_frames_refused",
        "Super-frames that the kernel refused; after the first, every frame leaves by itself.",
        |report| of_queues(report, |queue| queue.super_frames_refused),
    ),
    counter("twinpath_queue_kicks", "System calls made to send or to wake the kernel.", |report| {
        of_queues(report, |queue| queue.kicks)
    }),
    counter(
        "twinpath_drops",
        "Everything dropped or refused, by place and reason; only what has happened.",
        |report| {
            let labels =
                |place: &str, reason: &str| vec![("place", place.to_owned()), ("reason", reason.to_owned())];
            let drops = report.drops.iter();
            drops
                .map(|it| Row { labels: labels(&it.place, &it.reason), value: Value::Count(it.count) })
                .collect()
        },
    ),
    counter(
        "twinpath_verdicts",
        "Frames by what the claims' program decided; only verdicts given.",
        |report| {
            let verdicts = report.rules.verdicts.iter();
            verdicts
                .map(|it| Row { labels: vec![("verdict", it.name.clone())], value: Value::Count(it.count) })
                .collect()
        },
    ),
    gauge(
        "twinpath_claim_fast",
        "1 while what the service asked for comes by a fast path, 0 by the kernel's.",
        |report| {
            each(&report.services, |service| {
                service.claims.iter().map(|claim| Row {
                    labels: with(of(service), "claim", &claim.claim),
                    value: flag(claim.path != Path::Kernel.name()),
                })
            })
        },
    ),
    counter("twinpath_service_requests", "Requests served, by the path they came by.", |report| {
        by_path(report, |service| [service.fast_requests, service.kernel_requests])
    }),
    counter("twinpath_service_replies", "Replies sent, by the path they left by.", |report| {
        by_path(report, |service| [service.fast_replies, service.kernel_replies])
    }),
    counter(
        "twinpath_claim_reflex_replies",
        "Requests that the kernel's programs replied to by themselves: no worker has seen them.",
        |report| {
            each(&report.services, |service| {
                service.claims.iter().map(|claim| Row {
                    labels: with(of(service), "claim", &claim.claim),
                    value: Value::Count(claim.reflex_replies),
                })
            })
        },
    ),
    counter(
        "twinpath_reflex_not_replied",
        "Requests that the kernel's programs could have replied to and left to a worker, by reason.",
        |report| {
            each(&report.interfaces, |interface| {
                interface.reflexes.iter().flat_map(|reflexes| &reflexes.not_replied).map(|count| Row {
                    labels: with(on(interface), "reason", &count.name),
                    value: Value::Count(count.count),
                })
            })
        },
    ),
    gauge(
        "twinpath_service_kept_replies",
        "Replies that a service keeps for the kernel's programs, and that are valid.",
        |report| {
            let keeping =
                report.services.iter().filter_map(|service| Some((service, service.kept.as_ref()?)));
            let rows =
                keeping.map(|(service, kept)| Row { labels: of(service), value: Value::Count(kept.entries) });
            rows.collect()
        },
    ),
    counter(
        "twinpath_service_replies_not_kept",
        "Replies that a service wanted to keep and that could not be kept, by reason: they were sent all the same.",
        |report| {
            each(&report.services, |service| {
                service.kept.iter().flat_map(|kept| &kept.not_kept).map(|count| Row {
                    labels: with(of(service), "reason", &count.name),
                    value: Value::Count(count.count),
                })
            })
        },
    ),
    counter(
        "twinpath_kept_replies_displaced",
        "Kept replies that were valid and made room for others.",
        |report| {
            let keeping = report
                .interfaces
                .iter()
                .filter_map(|interface| Some((interface, interface.reflexes.as_ref()?.kept.as_ref()?)));
            let rows = keeping
                .map(|(interface, kept)| Row { labels: on(interface), value: Value::Count(kept.evictions) });
            rows.collect()
        },
    ),
    counter(
        "twinpath_service_fast_requests_answered_by_kernel",
        "Fast-path requests whose reply left through the kernel: its way out was not known, or too small.",
        |report| of_services(report, |service| service.fast_replies_by_kernel),
    ),
    counter(
        "twinpath_service_requests_answered",
        "Requests that the service answered, as it counts them itself: calls of rpc, by what became of them.",
        |report| {
            let counting = report.services.iter().filter_map(|service| Some((service, service.requests?)));
            let rows = counting.flat_map(|(service, requests)| {
                let ServiceRequests { answered, refused, repeated, .. } = requests;
                let first = answered.saturating_sub(refused + repeated);
                [("answered", first), ("refused", refused), ("repeated", repeated)].map(|(outcome, count)| {
                    Row { labels: with(of(service), "outcome", outcome), value: Value::Count(count) }
                })
            });
            rows.collect()
        },
    ),
    counter(
        "twinpath_service_replies_forgotten",
        "Replies kept for calls that come again, which made room for others before their age.",
        |report| {
            let counting = report.services.iter().filter_map(|service| Some((service, service.requests?)));
            counting
                .map(|(service, requests)| Row {
                    labels: of(service),
                    value: Value::Count(requests.forgotten),
                })
                .collect()
        },
    ),
    counter(
        "twinpath_service_own",
        "What a service counts itself, and the reasons for which it refuses, by names of its own.",
        |report| own(report, |metric| metric.times.is_none().then_some(Value::Count(metric.count))),
    ),
    Family {
        name: "twinpath_service_own_seconds",
        kind: Kind::Histogram,
        help: "Times that a service measures itself, by names of its own.",
        rows: |report| own(report, |metric| metric.times.as_ref().map(|its| times(&its.into()))),
    },
    gauge("twinpath_service_connections", "TCP connections open.", |report| {
        of_services(report, |service| service.connections)
    }),
    counter("twinpath_service_connections_accepted", "TCP connections accepted.", |report| {
        of_services(report, |service| service.accepted)
    }),
    gauge(
        "twinpath_service_queued_bytes",
        "Bytes that TCP connections hold: parts of requests, and replies not taken.",
        |report| of_services(report, |service| service.queued_bytes),
    ),
    gauge("twinpath_service_deferred", "Requests that threads which may block work on, or will.", |report| {
        of_services(report, |service| service.deferred)
    }),
    counter("twinpath_service_deferred_done", "Requests answered by such threads.", |report| {
        of_services(report, |service| service.deferred_done)
    }),
    counter(
        "twinpath_service_deferred_waits",
        "Times that a connection waited for room among them.",
        |report| of_services(report, |service| service.deferred_waits),
    ),
    gauge("twinpath_service_deferred_threads", "Such threads.", |report| {
        of_services(report, |service| service.deferred_threads)
    }),
    gauge("twinpath_service_sessions", "UDP peers that have a session.", |report| {
        of_services(report, |service| service.sessions)
    }),
    counter("twinpath_service_sessions_aged", "Sessions ended for their age.", |report| {
        of_services(report, |service| service.sessions_aged)
    }),
    counter("twinpath_service_sessions_displaced", "Sessions ended to make room for others.", |report| {
        of_services(report, |service| service.sessions_displaced)
    }),
    counter("twinpath_service_stream_bytes_received", "Bytes received on TCP connections.", |report| {
        of_services(report, |service| service.stream_bytes_in)
    }),
    counter("twinpath_service_stream_bytes_sent", "Bytes sent on TCP connections.", |report| {
        of_services(report, |service| service.stream_bytes_out)
    }),
    gauge("twinpath_service_peers", "Peers whose way out is known or asked for.", |report| {
        of_services(report, |service| service.peers)
    }),
    gauge("twinpath_worker_mode", "1 for the mode that the worker is in, 0 for the others.", |report| {
        each(&report.workers, |worker| {
            Mode::ALL.map(|mode| Row {
                labels: with(by(worker), "mode", mode.name()),
                value: flag(worker.mode == mode.name()),
            })
        })
    }),
    counter("twinpath_worker_turns", "Turns of the worker, by whether they found work.", |report| {
        each(&report.workers, |worker| {
            [("work", worker.turns_busy), ("nothing", worker.turns_empty)].map(|(found, count)| Row {
                labels: with(by(worker), "found", found),
                value: Value::Count(count),
            })
        })
    }),
    counter("twinpath_worker_sleeps", "Times the worker went to sleep.", |report| {
        of_workers(report, |worker| Value::Count(worker.sleeps))
    }),
    counter(
        "twinpath_worker_wakeups",
        "Times it was woken by something other than its own deadline.",
        |report| of_workers(report, |worker| Value::Count(worker.wakeups)),
    ),
    counter("twinpath_worker_wakeups_by_cause", "Wake-ups, by what ended the sleep.", |report| {
        each(&report.workers, |worker| {
            let idle = &worker.idle;
            [
                ("packet", idle.woken_by_packet),
                ("prediction", idle.woken_by_prediction),
                ("other", idle.woken_by_other),
            ]
            .map(|(cause, count)| Row {
                labels: with(by(worker), "cause", cause),
                value: Value::Count(count),
            })
        })
    }),
    counter("twinpath_worker_spins", "Stretches of spinning in mode adaptive.", |report| {
        of_workers(report, |worker| Value::Count(worker.idle.spins))
    }),
    counter(
        "twinpath_worker_idle_seconds",
        "Time spent spinning in mode adaptive, asleep, and asleep with a latency request held.",
        |report| {
            each(&report.workers, |worker| {
                let idle = &worker.idle;
                let asleep = idle.slept_ns.saturating_sub(idle.held_ns);
                [("spinning", idle.spun_ns), ("held", idle.held_ns), ("asleep", asleep)].map(|(how, ns)| {
                    Row { labels: with(by(worker), "how", how), value: Value::Number(ns as f64 / 1e9) }
                })
            })
        },
    ),
    counter(
        "twinpath_worker_guard_stops",
        "Times it slept because it had spun, or paused because it had run, for its share of a CPU.",
        |report| {
            each(&report.workers, |worker| {
                let guard = worker.guard.clone().unwrap_or_default();
                [("spun", guard.sleeps), ("ran", guard.pauses)].map(|(had, count)| Row {
                    labels: with(by(worker), "had", had),
                    value: Value::Count(count),
                })
            })
        },
    ),
    counter(
        "twinpath_worker_priority_steps",
        "Times it took the other of two priorities, as it took much of its CPU, or no longer.",
        |report| {
            of_workers(report, |worker| Value::Count(worker.guard.as_ref().map_or(0, |guard| guard.steps)))
        },
    ),
    gauge("twinpath_worker_stuck", "1 while it is stuck, and the kernel serves in its place.", |report| {
        of_workers(report, |worker| flag(worker.stuck_ms.is_some()))
    }),
    counter(
        "twinpath_worker_times_stuck",
        "Times the kernel stopped claiming for it, as it was stuck.",
        |report| of_workers(report, |worker| Value::Count(worker.times_stuck)),
    ),
    counter("twinpath_worker_cpu_seconds", "CPU time of the worker's thread.", |report| {
        of_workers(report, |worker| Value::Number(worker.cpu_ns as f64 / 1e9))
    }),
    gauge("twinpath_worker_latency_request_held", "1 while it holds a CPU latency request.", |report| {
        of_workers(report, |worker| flag(worker.latency_request.held))
    }),
    gauge("twinpath_worker_pool_frames", "Frames of its pool.", |report| {
        of_workers(report, |worker| Value::Count(worker.pool_frames.into()))
    }),
    gauge("twinpath_worker_pool_frames_free", "Frames of its pool that nothing uses now.", |report| {
        of_workers(report, |worker| Value::Count(worker.pool_free.into()))
    }),
    counter(
        "twinpath_worker_allocations",
        "Heap allocations of its thread while serving: it makes none per packet.",
        |report| of_workers(report, |worker| Value::Count(worker.allocations)),
    ),
    gauge(
        "twinpath_worker_heap_bytes",
        "Heap bytes that its thread holds beyond those at its start.",
        |report| of_workers(report, |worker| Value::Count(worker.heap_bytes)),
    ),
    Family {
        name: "twinpath_worker_service_time_seconds",
        kind: Kind::Histogram,
        help: "Time that answered frames spent inside: from the start of the turn that took them until replies had left.",
        rows: |report| of_workers(report, |worker| times(&(&worker.service_time).into())),
    },
    Family {
        name: "twinpath_worker_wake_latency_seconds",
        kind: Kind::Histogram,
        help: "From the kernel's stamp on a packet until the worker that slept took it; packets without stamps are not in it.",
        rows: |report| of_workers(report, |worker| times(&(&worker.idle.wake_latency).into())),
    },
];
