//! Computes the rates between two reports of one instance, per second. Pure.

use serde::Serialize;
use twinpath_observe::report::{
    Crossed, Interface, PortCounts, Procedure, Queue, Report, ServeCounts, Service, ServiceClaim, Times,
    Worker, WorkerCounts,
};

/// An instance over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Process id.
    pub(crate) pid: u32,
    /// The services as text: `echo on udp/7`.
    pub(crate) serves: String,
    /// Time since its start, s.
    pub(crate) uptime_s: f64,
    /// Length of the interval, s.
    pub(crate) seconds: f64,
    pub(crate) services: Vec<ServiceRates>,
    /// The procedures that were called over the interval.
    pub(crate) rpc: Vec<ProcedureRates>,
    pub(crate) interfaces: Vec<InterfaceRates>,
    pub(crate) workers: Vec<WorkerRates>,
    /// Reasons that have occurred since its start, the most frequent first.
    pub(crate) drops: Vec<DropRate>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ServiceRates {
    pub(crate) name: String,
    /// On both paths.
    pub(crate) requests_per_s: f64,
    pub(crate) replies_per_s: f64,
    /// Share of the requests that arrived through the kernel's sockets, 0 to 1; `None` without requests.
    pub(crate) kernel_share: Option<f64>,
    /// Time that answered frames spent inside, ns, over all workers; `None` without any.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) p999_ns: Option<u64>,
    /// TCP connections open.
    pub(crate) connections: u64,
    pub(crate) claims: Vec<ServiceClaim>,
    /// The reasons why requests are not on the fast path: a sentence each.
    pub(crate) why: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ProcedureRates {
    pub(crate) service: String,
    pub(crate) program: String,
    pub(crate) procedure: String,
    pub(crate) calls_per_s: f64,
    pub(crate) failed_per_s: f64,
    pub(crate) bytes_in_per_s: f64,
    pub(crate) bytes_out_per_s: f64,
    /// From the arrival of calls until their results were there, ns.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct InterfaceRates {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) link: String,
    pub(crate) queues: Vec<QueueRates>,
    /// Frames that cross within the kernel, past all queues.
    pub(crate) crossed: Option<QueueRates>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct QueueRates {
    pub(crate) queue: u32,
    pub(crate) worker: u32,
    pub(crate) frames_in_per_s: f64,
    pub(crate) frames_out_per_s: f64,
    pub(crate) bits_in_per_s: f64,
    pub(crate) bits_out_per_s: f64,
    pub(crate) kicks_per_s: f64,
    pub(crate) ring_full_per_s: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WorkerRates {
    pub(crate) worker: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) mode: String,
    /// In percent of one CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) busy_turns_per_s: f64,
    pub(crate) sleeps_per_s: f64,
    pub(crate) wakeups_per_s: f64,
    pub(crate) latency_request_held: bool,
    pub(crate) pool_free: u32,
    pub(crate) pool_frames: u32,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) p999_ns: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DropRate {
    pub(crate) place: String,
    pub(crate) reason: String,
    pub(crate) per_s: f64,
    pub(crate) total: u64,
}

/// The rates from `before` to `after`. If `before` belongs to another process, or is later than `after`,
/// the rates are those since the start.
pub(crate) fn rates(before: &Report, after: &Report) -> Rates {
    let none = Report::default();
    let same =
        before.instance.pid == after.instance.pid && before.instance.uptime_s < after.instance.uptime_s;
    let before = if same { before } else { &none };
    let seconds = after.instance.uptime_s - before.instance.uptime_s;
    let interval = Interval { seconds };
    Rates {
        pid: after.instance.pid,
        serves: format!("{} on {}", after.instance.kind, after.instance.ports.join(" and ")),
        uptime_s: after.instance.uptime_s,
        seconds,
        services: after.services.iter().map(|now| interval.service(now, before, after)).collect(),
        rpc: after.rpc.iter().filter_map(|now| interval.procedure(now, before)).collect(),
        interfaces: after.interfaces.iter().map(|now| interval.interface(now, before)).collect(),
        workers: after.workers.iter().map(|now| interval.worker(now, before)).collect(),
        drops: interval.drops(before, after),
    }
}

struct Interval {
    seconds: f64,
}

impl Interval {
    /// A counter that has decreased was reset, so its value is the increase.
    fn rate(&self, before: u64, after: u64) -> f64 {
        let grown = if after >= before { after - before } else { after };
        if self.seconds > 0.0 { grown as f64 / self.seconds } else { 0.0 }
    }

    fn service(&self, now: &Service, before: &Report, after: &Report) -> ServiceRates {
        let earlier =
            before.services.iter().find(|service| service.name == now.name).cloned().unwrap_or_default();
        let rate = |count: fn(&ServeCounts) -> u64| self.rate(count(&earlier.serve), count(&now.serve));
        let (fast, kernel) = (rate(|it| it.fast_requests), rate(|it| it.kernel_requests));
        let requests_per_s = fast + kernel;
        let all = |report: &Report| {
            report.workers.iter().fold(Times::default(), |sum, worker| sum.with(&worker.counts.service_time))
        };
        let times = all(after).since(&all(before));
        ServiceRates {
            name: now.name.clone(),
            requests_per_s,
            replies_per_s: rate(|it| it.fast_replies) + rate(|it| it.kernel_replies),
            kernel_share: (requests_per_s > 0.0).then(|| kernel / requests_per_s),
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
            p999_ns: times.quantile(0.999),
            connections: now.tcp.connections,
            claims: now.claims.clone(),
            why: self.why(now, kernel, rate(|it| it.fast_replies_by_kernel), before, after),
        }
    }

    /// `None`: it was not called.
    fn procedure(&self, now: &Procedure, before: &Report) -> Option<ProcedureRates> {
        let earlier = before.rpc.iter().find(|it| it.is_same(now)).cloned().unwrap_or_default();
        let times = now.counts.took.since(&earlier.counts.took);
        let rate = |count: fn(&Procedure) -> u64| self.rate(count(&earlier), count(now));
        (times.count() > 0).then(|| ProcedureRates {
            service: now.service.clone(),
            program: now.program.clone(),
            procedure: now.procedure.clone(),
            calls_per_s: rate(Procedure::calls),
            failed_per_s: rate(|it| it.counts.failed),
            bytes_in_per_s: rate(|it| it.counts.bytes_in),
            bytes_out_per_s: rate(|it| it.counts.bytes_out),
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
        })
    }

    /// The reasons why requests are not on the fast path.
    fn why(
        &self,
        now: &Service,
        kernel: f64,
        by_kernel: f64,
        before: &Report,
        after: &Report,
    ) -> Vec<String> {
        let on_kernel = |claim: &&ServiceClaim| !claim.is_fast();
        let mut why: Vec<_> = now
            .claims
            .iter()
            .filter(on_kernel)
            .map(|claim| format!("{}: {}", claim.claim, claim.why))
            .collect();
        if by_kernel > 0.0 {
            why.push(format!(
                "{by_kernel:.0} replies/s to fast requests leave through the kernel: no way out is known yet, or the reply \
                 is too large for it (show neighbours)"
            ));
        }
        if kernel > 0.0 && now.claims.iter().any(ServiceClaim::is_fast) {
            let passed = self.passed(before, after);
            let reasons = if passed.is_empty() { String::new() } else { format!("; passed on: {passed}") };
            why.push(format!(
                "{kernel:.0} requests/s came through the kernel: local clients, fragments{reasons}"
            ));
        }
        why
    }

    /// Verdicts that passed frames to the kernel that could have been claimed, with their rates.
    fn passed(&self, before: &Report, after: &Report) -> String {
        let ordinary = ["claimed", "unclaimed", "not_for_this_host", "multicast"];
        let rates =
            after.rules.verdicts.iter().filter(|now| !ordinary.contains(&now.name.as_str())).map(|now| {
                let earlier =
                    before.rules.verdicts.iter().find(|it| it.name == now.name).map_or(0, |it| it.count);
                (now.name.replace('_', " "), self.rate(earlier, now.count))
            });
        let told: Vec<_> =
            rates.filter(|(_, rate)| *rate > 0.0).map(|(name, rate)| format!("{name} {rate:.0}/s")).collect();
        told.join(", ")
    }

    fn interface(&self, now: &Interface, before: &Report) -> InterfaceRates {
        let earlier = before.interfaces.iter().find(|it| it.name == now.name);
        let queues = now.queues.iter().map(|queue| {
            let earlier = earlier.and_then(|it| it.queues.iter().find(|it| it.queue == queue.queue)).cloned();
            self.queue(queue, &earlier.unwrap_or_default())
        });
        let as_queue = |crossed: &Crossed| {
            let Crossed { frames_in, frames_out, bytes_in, bytes_out } = *crossed;
            let counts = PortCounts { frames_in, frames_out, bytes_in, bytes_out, ..PortCounts::default() };
            Queue { counts, ..Queue::default() }
        };
        let crossed_before = earlier.and_then(|it| it.crossed.as_ref()).map(as_queue).unwrap_or_default();
        InterfaceRates {
            crossed: now.crossed.as_ref().map(|crossed| self.queue(&as_queue(crossed), &crossed_before)),
            name: now.name.clone(),
            path: now.path.clone(),
            link: now.link.clone(),
            queues: queues.collect(),
        }
    }

    fn queue(&self, now: &Queue, earlier: &Queue) -> QueueRates {
        let rate = |count: fn(&PortCounts) -> u64| self.rate(count(&earlier.counts), count(&now.counts));
        QueueRates {
            queue: now.queue,
            worker: now.worker,
            frames_in_per_s: rate(|it| it.frames_in),
            frames_out_per_s: rate(|it| it.frames_out),
            bits_in_per_s: rate(|it| it.bytes_in) * 8.0,
            bits_out_per_s: rate(|it| it.bytes_out) * 8.0,
            kicks_per_s: rate(|it| it.kicks),
            ring_full_per_s: rate(|it| it.ring_full),
        }
    }

    fn worker(&self, now: &Worker, before: &Report) -> WorkerRates {
        let earlier = before.workers.iter().find(|it| it.worker == now.worker).cloned().unwrap_or_default();
        let rate = |count: fn(&WorkerCounts) -> u64| self.rate(count(&earlier.counts), count(&now.counts));
        let times = now.counts.service_time.since(&earlier.counts.service_time);
        WorkerRates {
            worker: now.worker,
            cpu: now.cpu,
            mode: now.mode.clone(),
            cpu_percent: rate(|it| it.cpu_ns) / 1e7,
            busy_turns_per_s: rate(|it| it.turns_busy),
            sleeps_per_s: rate(|it| it.sleeps),
            wakeups_per_s: rate(|it| it.wakeups),
            latency_request_held: now.latency_request.held,
            pool_free: now.counts.pool_free as u32,
            pool_frames: now.pool_frames,
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
            p999_ns: times.quantile(0.999),
        }
    }

    fn drops(&self, before: &Report, after: &Report) -> Vec<DropRate> {
        let mut drops: Vec<_> = after
            .drops
            .iter()
            .map(|now| {
                let same =
                    before.drops.iter().find(|it| (&it.place, &it.reason) == (&now.place, &now.reason));
                DropRate {
                    place: now.place.clone(),
                    reason: now.reason.clone(),
                    per_s: self.rate(same.map_or(0, |it| it.count), now.count),
                    total: now.count,
                }
            })
            .collect();
        drops.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then(b.total.cmp(&a.total)));
        drops
    }
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::{self as report, Count, Drop, Instance, ProcedureCounts};

    use super::*;

    fn called(procedure: &str, calls: u64) -> Procedure {
        let counts = ProcedureCounts {
            took: Times { buckets: vec![(1_023, calls)], ..Times::default() },
            failed: calls / 10,
            bytes_in: 100 * calls,
            bytes_out: 200 * calls,
        };
        Procedure { procedure: procedure.to_owned(), counts, ..Procedure::default() }
    }

    fn at(uptime_s: f64, requests: u64) -> Report {
        Report {
            instance: Instance { pid: 7, uptime_s, ..Instance::default() },
            services: vec![Service {
                name: "echo".to_owned(),
                serve: ServeCounts {
                    fast_requests: 3 * requests,
                    fast_replies: 3 * requests,
                    kernel_requests: requests,
                    kernel_replies: requests,
                    ..ServeCounts::default()
                },
                claims: vec![
                    ServiceClaim {
                        claim: "udp port 7".into(),
                        path: "packet".into(),
                        why: "it is best".into(),
                        ..ServiceClaim::default()
                    },
                    ServiceClaim {
                        claim: "tcp port 7".into(),
                        path: "kernel".into(),
                        why: "it is TCP".into(),
                        ..ServiceClaim::default()
                    },
                ],
                ..Service::default()
            }],
            rpc: [called("READ", requests), called("LINK", 7)].into(),
            interfaces: vec![Interface {
                name: "veth0".to_owned(),
                queues: vec![Queue {
                    counts: PortCounts {
                        frames_in: 3 * requests,
                        bytes_in: 300 * requests,
                        ..PortCounts::default()
                    },
                    ..Queue::default()
                }],
                ..Interface::default()
            }],
            workers: vec![Worker {
                counts: WorkerCounts {
                    cpu_ns: requests * 1_000_000,
                    service_time: Times { buckets: vec![(1_023, 3 * requests)], ..Times::default() },
                    ..WorkerCounts::default()
                },
                ..Worker::default()
            }],
            rules: report::Rules {
                verdicts: vec![
                    Count { name: "claimed".to_owned(), count: 3 * requests },
                    Count { name: "fragment".to_owned(), count: 2 * requests },
                ],
                ..report::Rules::default()
            },
            drops: vec![
                Drop { place: "worker 0".to_owned(), reason: "old".to_owned(), count: 9 },
                Drop { place: "worker 0".to_owned(), reason: "new".to_owned(), count: requests },
            ],
            ..Report::default()
        }
    }

    #[test]
    fn rates_are_per_second_of_the_instances_own_time() {
        let rates = rates(&at(10.0, 1_000), &at(12.0, 2_000));
        assert_eq!((rates.seconds, rates.uptime_s), (2.0, 12.0));
        let service = &rates.services[0];
        assert_eq!(
            (service.requests_per_s, service.replies_per_s, service.kernel_share),
            (2_000.0, 2_000.0, Some(0.25))
        );
        assert_eq!((service.p50_ns, service.p999_ns), (Some(1_023), Some(1_023)));
        assert_eq!(
            service.why,
            [
                "tcp port 7: it is TCP",
                "500 requests/s came through the kernel: local clients, fragments; passed on: fragment 1000/s"
            ]
        );
        let [read] = &rates.rpc[..] else { panic!("one procedure was called: {:?}", rates.rpc) };
        assert_eq!((read.procedure.as_str(), read.calls_per_s, read.failed_per_s), ("READ", 500.0, 50.0));
        assert_eq!((read.bytes_in_per_s, read.bytes_out_per_s), (50_000.0, 100_000.0));
        assert_eq!((read.p50_ns, read.p99_ns), (Some(1_023), Some(1_023)));
        let queue = &rates.interfaces[0].queues[0];
        assert_eq!((queue.frames_in_per_s, queue.bits_in_per_s), (1_500.0, 1_200_000.0));
        assert_eq!(rates.workers[0].cpu_percent, 50.0);
        let drops: Vec<_> = rates.drops.iter().map(|it| (it.reason.as_str(), it.per_s, it.total)).collect();
        assert_eq!(drops, [("new", 500.0, 2_000), ("old", 0.0, 9)]);
    }

    #[test]
    fn another_process_or_a_counter_that_began_anew_counts_from_its_start() {
        let mut other = at(10.0, 1_000);
        other.instance.pid = 8;
        let since_start = rates(&other, &at(4.0, 400));
        assert_eq!((since_start.seconds, since_start.interfaces[0].queues[0].frames_in_per_s), (4.0, 300.0));
        let mut anew = at(12.0, 1_000);
        anew.interfaces[0].queues[0].counts.frames_in = 50;
        assert_eq!(rates(&at(10.0, 1_000), &anew).interfaces[0].queues[0].frames_in_per_s, 25.0);
    }

    #[test]
    fn quiet_has_no_share_and_no_quantiles() {
        let rates = rates(&at(10.0, 5), &at(11.0, 5));
        let service = &rates.services[0];
        assert_eq!((service.kernel_share, service.p50_ns, service.why.len()), (None, None, 1));
    }
}
