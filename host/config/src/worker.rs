//! `[worker]`: the threads that serve.

use super::key::{Change, section};
use super::{
    CpuGoal, INSTANCES, LatencyGoal, LatencyRequest, Mode, Priority, RequestScope, SERVE_AND_SWITCH,
    WITH_WORKERS, Wrong,
};

/// One worker for each queue of the largest common NICs.
pub(super) const WORKERS_MAX: u32 = 64;
/// A second of spinning burns a core: `poll` is meant for that.
const SPIN_US_MAX: u64 = 1_000_000;
/// An hour after the last frame nothing lingers.
const LINGER_MS_MAX: u64 = 3_600_000;
/// In percent. 0 would be mode interrupt, and no worker runs for longer than this (`twinpath_worker::thread::guard::RUN_PERMILLE`).
const SPIN_SHARE_MAX: u64 = 90;
/// Two ticks of the kernel's coarsest clock.
const FAIL_OPEN_MS_MIN: u64 = 20;
/// After a minute no client waits any more.
const FAIL_OPEN_MS_MAX: u64 = 60_000;

section! {
    /// `[worker]`
    pub struct Worker, WorkerOverrides in "worker" {
        /// Workers
        count: u32 = 1 => range(1, WORKERS_MAX as u64), unit("workers"), option("workers", "N", SERVE_AND_SWITCH);

        /// CPUs for the workers, one for each; as an option a list such as 0,2-3
        cpus: Vec<u32> = Vec::new() =>
            values_are("one number per worker, each once"), unset("none: not pinned"),
            option("cpu", "LIST", WITH_WORKERS), example("[1]");

        /// How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps)
        mode: Mode = Mode::default() =>
            option("mode", "MODE", WITH_WORKERS), change(Change::Set);

        /// The goal of adaptive: 99 % of the packets are received within this time, such as 20us
        latency: Option<LatencyGoal> = None =>
            values_are("`1us` to `1s`"), unset("none"), option("latency", "TIME", INSTANCES),
            conflicts(&["cpu-budget", "spin-us"]), example("\"20us\""), change(Change::Set);

        /// Another goal of adaptive: at most this much of a core is spent waiting, such as 5%
        cpu: Option<CpuGoal> = None =>
            values_are("`0.1%` to `100%`"), unset("none"), option("cpu-budget", "PERCENT", INSTANCES),
            conflicts(&["latency", "spin-us"]), comment("\"5%\""), change(Change::Set);

        /// For experts: how long adaptive spins after the last packet
        spin_us: Option<u64> = None =>
            range(0, SPIN_US_MAX), unit("us"), advice("for a worker that never sleeps set mode = \"poll\""),
            unset("learnt"), option("spin-us", "US", INSTANCES), conflicts(&["latency", "cpu-budget"]),
            comment("50");

        /// How long the CPU latency request is held after the last traffic
        linger_ms: Option<u64> = None =>
            range(0, LINGER_MS_MAX), unit("ms"), unset("learnt; 1000 in interrupt"),
            option("linger-ms", "MS", INSTANCES), example("1000");

        /// When a CPU latency request is held during traffic: auto (if it was measured to help), always or never
        latency_request: LatencyRequest = LatencyRequest::default() =>
            option("latency-request", "WHEN", INSTANCES);

        /// The CPUs of the latency request: machine (all), cpu (the workers' alone) or auto (the workers' where that serves)
        latency_request_scope: RequestScope = RequestScope::default() =>
            option("latency-request-scope", "SCOPE", INSTANCES);

        /// The maximum exit latency of the idle states that the latency request permits
        latency_request_max_exit_us: Option<u32> = None =>
            values_are("0 or more"), unit("us"), zero("all but the shallowest"), unset("measured"),
            option("latency-request-max-exit-us", "US", INSTANCES), example("2");

        /// Priority of the workers: auto (before other threads while they use little of the CPU), normal, slice:US, nice:N
        /// or fifo:N (real time)
        priority: Priority = Priority::default() =>
            values_are("`auto`, `normal`, `slice:100` to `slice:100000`, `nice:-20` to `nice:19`, `fifo:1` to `fifo:99`"),
            option("priority", "PRIORITY", INSTANCES);

        /// Maximum share of the CPU that a worker spins, at a priority that keeps other threads off
        spin_share_max: u32 = twinpath_worker::thread::guard::SPIN_PERMILLE / 10 =>
            range(1, SPIN_SHARE_MAX), unit("%"), advice("the rest is for others"),
            option("spin-share-max", "PERCENT", INSTANCES);

        /// The kernel serves once frames have waited for this time, because a worker is stuck or was stopped
        fail_open_ms: u32 = 100 =>
            range(FAIL_OPEN_MS_MIN, FAIL_OPEN_MS_MAX), unit("ms"), zero("never"),
            option("fail-open-ms", "MS", INSTANCES);
    }
}

impl Worker {
    /// Everything that cannot work, whatever the host.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let mut faults = Vec::new();
        let cpus = &self.cpus;
        if !cpus.is_empty() && cpus.len() != self.count as usize {
            let sentence =
                format!("{} CPUs for {} workers: name one for each, or none", cpus.len(), self.count);
            faults.push(("worker.cpus", sentence));
        }
        if let Some((_, cpu)) = cpus.iter().enumerate().find(|(at, cpu)| cpus[..*at].contains(cpu)) {
            faults.push(("worker.cpus", format!("CPU {cpu} twice: two workers would take turns on it")));
        }
        if self.latency_request_scope == RequestScope::Cpu && cpus.is_empty() {
            let sentence = "a request for the workers' CPUs alone needs to know them: name them in worker.cpus or with --cpu";
            faults.push(("worker.latency_request_scope", sentence.to_owned()));
        }
        if self.latency.is_some() && self.cpu.is_some() {
            let sentence = "a latency and a share of a core are two goals: give one of latency and cpu";
            faults.push(("worker.cpu", sentence.to_owned()));
        }
        if self.spin_us.is_some() && (self.latency.is_some() || self.cpu.is_some()) {
            let sentence = "a fixed spin leaves nothing to reach a goal by: give a goal or spin_us, not both";
            faults.push(("worker.spin_us", sentence.to_owned()));
        }
        faults.extend(self.range_faults());
        faults
    }
}

impl WorkerOverrides {
    /// At most one of a goal and a fixed spin applies: if the command line names one, those of the file do not
    /// apply.
    pub(super) fn complete(&mut self) {
        if self.latency.is_some() || self.cpu.is_some() || self.spin_us.is_some() {
            self.latency.get_or_insert(None);
            self.cpu.get_or_insert(None);
            self.spin_us.get_or_insert(None);
        }
    }
}
