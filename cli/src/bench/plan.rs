//! Derives the plan of a measurement from the arguments, and rejects invalid combinations with one
//! sentence.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use twinpath_clients::{RunPlan, Transport};
use twinpath_config::{InterfaceOverrides, PathAsked};
use twinpath_load::{INFLIGHT_MAX, Limit, LoadConfig};
use twinpath_socket_load::socket::Source;
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

use super::options::{
    CommonArgs, EchoArgs, PAPER_COUNT, PAPER_ITERATIONS, PAPER_QUANTILES, QUANTILES, Switch, parse_quantiles,
};
use super::service::Service;
use super::target::Target;

/// The default without --count and --duration.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// The default without --warmup.
const DEFAULT_WARMUP_S: f64 = 0.2;
/// With more threads, the scheduler would be measured.
pub(crate) const THREADS_MAX: u32 = 64;
/// More runs add no information, and a comparison looks at all pairs of two measurements' runs.
const ITERATIONS_MAX: u32 = 1000;

/// The output options.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// Percentiles, ascending.
    pub(crate) quantiles: Vec<f64>,
    /// A line per run instead of tables.
    pub(crate) lines: bool,
    /// A line above them.
    pub(crate) header: bool,
    pub(crate) extended: bool,
    pub(crate) json: bool,
}

/// The result files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) plot: Option<PathBuf>,
    pub(crate) hdr: Option<PathBuf>,
    pub(crate) directory: Option<PathBuf>,
}

/// A checked measurement.
#[derive(Clone, Debug)]
pub(crate) struct BenchPlan {
    pub(crate) target: Target,
    pub(crate) service: Service,
    pub(crate) transport: Transport,
    /// With any path but `kernel`.
    pub(crate) interface: Option<String>,
    pub(crate) path: PathAsked,
    pub(crate) mode: Mode,
    pub(crate) threads: u32,
    pub(crate) batch: bool,
    /// With `batch` over UDP: as one message.
    pub(crate) segments: bool,
    /// Over TCP, whether requests may wait for acknowledgements to leave in one segment.
    pub(crate) nagle: bool,
    /// The port that kernel sockets send from.
    pub(crate) source: Source,
    /// For the threads in turn; empty: anywhere.
    pub(crate) cpus: Vec<usize>,
    /// All threads together, one run.
    pub(crate) load: LoadConfig,
    /// The seed of the requests' bytes, so that late replies to an earlier run are not taken for ours.
    pub(crate) seed: u64,
    pub(crate) iterations: u32,
    pub(crate) running_average: bool,
    /// Maximum share of requests that may be lost, %.
    pub(crate) loss_max: Option<f64>,
    pub(crate) latency_request: bool,
    pub(crate) shown: Shown,
    pub(crate) files: Files,
}

impl BenchPlan {
    /// Checks the arguments and resolves the target.
    pub(crate) fn echo(args: &EchoArgs) -> anyhow::Result<Self> {
        let common = &args.common;
        let transport = if common.tcp { Transport::Tcp } else { Transport::Udp };
        let target = Target::resolve(&args.target, common.port, None)?;
        Self::new(common, target, transport, Service::echo(args.size)?)
    }

    /// A possible reason for a service that answered at first and then stopped.
    pub(crate) fn silence_may_be(&self) -> &'static str {
        match (&self.service, self.transport) {
            (Service::Echo { .. }, Transport::Udp) => {
                "did the service end, or does it limit the replies to one source? `twinpath serve echo` gives one 50,000 a \
                 second: start it with --reply-rate 0 to measure how many it can"
            }
            _ => "did the service end?",
        }
    }

    /// Checks the options that all services share.
    pub(crate) fn new(
        args: &CommonArgs,
        target: Target,
        transport: Transport,
        service: Service,
    ) -> anyhow::Result<Self> {
        let path = path_of(args, transport)?;
        let interface = args.keys.overrides.interface.name.clone().flatten();
        let target = target.on(interface.as_deref())?;
        ensure!(
            (1..=THREADS_MAX).contains(&args.threads),
            "{} threads are impossible: choose 1 to {THREADS_MAX}",
            args.threads
        );
        let iterations = args.iterations.unwrap_or(if args.paper { PAPER_ITERATIONS } else { 1 });
        ensure!(
            (1..=ITERATIONS_MAX).contains(&iterations),
            "{iterations} iterations are impossible: choose 1 to {ITERATIONS_MAX}"
        );
        let worker = &args.keys.overrides.worker;
        let cpus = worker.cpus.iter().flatten().map(|cpu| *cpu as usize).collect();
        let seed = twinpath_sys::clock::now().as_nanos() ^ u64::from(std::process::id()) << 32;
        let load = load_config(args, seed)?;
        load.validate()?;
        let default_quantiles = if args.paper { PAPER_QUANTILES } else { QUANTILES };
        Ok(Self {
            target,
            service,
            transport,
            interface,
            path,
            mode: worker.mode.unwrap_or_default(),
            threads: args.threads,
            batch: args.batch,
            segments: args.segments,
            nagle: nagle(args, transport)?,
            source: Source::Any,
            cpus,
            load,
            seed,
            iterations,
            running_average: args.running_average,
            loss_max: args.loss_max,
            latency_request: args.latency_request,
            shown: Shown {
                quantiles: parse_quantiles(args.quantiles.as_deref().unwrap_or(default_quantiles))?,
                lines: iterations > 1 || args.no_header,
                header: !args.no_header,
                extended: args.extended,
                json: args.json,
            },
            files: Files {
                plot: args.plot.clone(),
                hdr: args.hdr.clone(),
                directory: args.output_dir.clone(),
            },
        })
    }

    /// The parameters of a run, by its number from 1.
    pub(crate) fn run(&self, number: u32) -> RunPlan {
        RunPlan {
            target: self.target.address,
            requests: self.service.requests(),
            seed: self.seed.wrapping_add(u64::from(number) << 32),
            transport: self.transport,
            interface: self.interface.clone(),
            path: self.path,
            mode: self.mode,
            threads: self.threads,
            batch: self.batch,
            segments: self.segments,
            nagle: self.nagle,
            source: self.source,
            cpus: self.cpus.clone(),
            load: self.load,
        }
    }
}

fn path_of(args: &CommonArgs, transport: Transport) -> anyhow::Result<PathAsked> {
    let InterfaceOverrides { name, path, .. } = &args.keys.overrides.interface;
    let path = match (*path, name) {
        (Some(path), _) => path,
        (None, Some(_)) => PathAsked::Auto,
        (None, None) => PathAsked::Kernel,
    };
    ensure!(
        path == PathAsked::Kernel || name.is_some(),
        "--path {path} needs the interface to take it on: add --on IFACE"
    );
    ensure!(
        transport == Transport::Udp
            || matches!(path, PathAsked::Kernel | PathAsked::Packet | PathAsked::Auto),
        "--path {path} has no TCP: choose --path packet or kernel, or add --udp"
    );
    ensure!(
        path == PathAsked::Kernel || !args.batch,
        "--batch is for kernel sockets: the fast path makes no system call per request, and hands over together what \
         is due together"
    );
    ensure!(
        transport == Transport::Udp || !args.segments,
        "--segments is for UDP: TCP has segments of its own"
    );
    Ok(path)
}

/// ksf's tools set TCP_NODELAY only with one request in flight. Requests that share a send anyway, or have their own
/// due times, gain nothing from waiting.
fn nagle(args: &CommonArgs, transport: Transport) -> anyhow::Result<bool> {
    ensure!(
        args.nagle.is_none() || transport == Transport::Tcp,
        "--nagle is for TCP: no datagram waits for another"
    );
    let usual = args.inflight.is_some_and(|inflight| inflight > 1) && args.rate.is_none() && !args.batch;
    Ok(transport == Transport::Tcp && args.nagle.map_or(usual, |nagle| nagle == Switch::On))
}

fn load_config(args: &CommonArgs, seed: u64) -> anyhow::Result<LoadConfig> {
    let limit = match (args.count, args.duration) {
        (Some(_), Some(_)) => bail!("--count and --duration both say when to end: give one of them"),
        (Some(count), None) => {
            ensure!(
                count >= u64::from(args.threads),
                "{count} requests cannot be divided among {} threads",
                args.threads
            );
            Limit::Count(count)
        }
        (None, Some(duration)) => Limit::Duration(seconds("--duration", duration)?),
        (None, None) if args.paper => Limit::Count(PAPER_COUNT * u64::from(args.threads)),
        (None, None) => Limit::Duration(DEFAULT_DURATION),
    };
    let warmup = args.warmup.unwrap_or(if args.paper { 0.0 } else { DEFAULT_WARMUP_S });
    Ok(LoadConfig {
        // An open loop must not wait for replies.
        inflight: args.inflight.unwrap_or(if args.rate.is_some() { INFLIGHT_MAX } else { 1 }),
        rate_per_s: args.rate,
        arrivals: args.arrivals.unwrap_or_default(),
        arrivals_seed: args.arrivals_seed.unwrap_or(seed),
        limit,
        warmup: seconds("--warmup", warmup)?,
        loss_timeout: seconds("--timeout", args.timeout)?,
    })
}

pub(crate) fn seconds(option: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| duration.as_secs() <= 24 * 3600)
        .with_context(|| format!("{option} {value} is no time: give seconds, 0 or more and at most a day"))
}

/// The name of a percentile: p99.9.
pub(crate) fn quantile_name(percent: f64) -> String {
    format!("p{percent}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        echo: EchoArgs,
    }

    fn plan(line: &str) -> Result<BenchPlan, String> {
        let words = std::iter::once("echo").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        BenchPlan::echo(&line.echo).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn defaults_are_one_udp_request_at_a_time_over_the_kernel() {
        let plan = plan("[::1]:7").unwrap();
        assert_eq!(plan.target.address, "[::1]:7".parse().unwrap());
        assert_eq!(
            (plan.transport, plan.path, plan.mode),
            (Transport::Udp, PathAsked::Kernel, Mode::Adaptive)
        );
        assert_eq!((plan.service.size(), plan.load.inflight), (64, 1));
        assert!(!plan.batch && !plan.shown.lines && plan.iterations == 1);
        assert_eq!(plan.load.limit, Limit::Duration(Duration::from_secs(5)));
    }

    #[test]
    fn an_interface_alone_means_the_path_is_chosen() {
        assert_eq!(plan("127.0.0.1:7 --on lo").unwrap().path, PathAsked::Auto);
        assert_eq!(plan("127.0.0.1:7 --on lo --path kernel").unwrap().path, PathAsked::Kernel);
        assert_eq!(plan("127.0.0.1:7 --tcp --on lo").unwrap().path, PathAsked::Auto);
    }

    #[test]
    fn threads_share_the_count_and_the_rate() {
        let plan = plan("127.0.0.1:7 --threads 3 --count 10 --rate 30 --cpu 1,0").unwrap();
        let counts: Vec<_> = (0..3).map(|index| plan.run(1).thread_load(index).limit).collect();
        assert_eq!(counts, [Limit::Count(4), Limit::Count(3), Limit::Count(3)]);
        assert_eq!((plan.run(1).thread_load(2).rate_per_s, plan.load.inflight), (Some(10.0), 1024));
        assert_eq!(
            (0..3).map(|index| plan.run(1).thread_cpu(index)).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1)]
        );
    }

    #[test]
    fn the_options_of_ksfs_tools_are_ours() {
        let plan = plan("127.0.0.1 -p 7 -u -a 128 -c 9M -j 3 -i 5 -l 100 -m -H -x -q 99,50 -d out").unwrap();
        assert_eq!((plan.target.name.as_str(), plan.transport), ("127.0.0.1:7", Transport::Udp));
        assert_eq!((plan.load.inflight, plan.load.limit), (128, Limit::Count(9_000_000)));
        assert_eq!((plan.threads, plan.iterations, plan.service.size()), (3, 5, 100));
        assert!(plan.running_average && plan.shown.lines && !plan.shown.header && plan.shown.extended);
        assert_eq!(plan.shown.quantiles, [50.0, 99.0]);
        assert_eq!(plan.files.directory, Some("out".into()));
    }

    #[test]
    fn requests_wait_for_acknowledgements_where_ksfs_do() {
        for (line, nagle) in [
            ("--tcp", false),
            ("--tcp -a 2", true),
            ("--tcp -a 2 --nagle off", false),
            ("--tcp --nagle on", true),
            ("--tcp -a 2 --batch", false),
            ("--tcp -a 2 --rate 5", false),
            ("--tcp -a 2 --rate 5 --nagle on", true),
            ("--udp -a 2", false),
        ] {
            assert_eq!(plan(&format!("127.0.0.1:7 {line}")).unwrap().nagle, nagle, "{line}");
        }
    }

    #[test]
    fn as_in_the_paper_unless_told() {
        let paper = plan("127.0.0.1:7 --paper -j2").unwrap();
        assert_eq!((paper.iterations, paper.load.limit), (99, Limit::Count(2_000_000)));
        assert_eq!((paper.load.warmup, paper.shown.quantiles.len()), (Duration::ZERO, 7));
        let told = plan("127.0.0.1:7 --paper -i 3 -c 10 --warmup 1 -q 50").unwrap();
        assert_eq!((told.iterations, told.load.limit), (3, Limit::Count(10)));
        assert_eq!((told.load.warmup, told.shown.quantiles), (Duration::from_secs(1), vec![50.0]));
        let timed = plan("127.0.0.1:7 --paper --duration 1").unwrap();
        assert_eq!(timed.load.limit, Limit::Duration(Duration::from_secs(1)));
    }

    #[test]
    fn what_makes_no_sense_gets_one_sentence() {
        for (line, words) in [
            ("127.0.0.1", "write HOST:PORT"),
            ("::1:7", "in brackets"),
            ("127.0.0.1:7 --size 15", "at least 16"),
            ("127.0.0.1:7 --size 65508", "at most 65507"),
            ("127.0.0.1:7 --inflight 0", "1 to 1024"),
            ("127.0.0.1:7 --inflight 1025", "1 to 1024"),
            ("127.0.0.1:7 --threads 0", "1 to 64"),
            ("127.0.0.1:7 --count 1 --duration 1", "give one of them"),
            ("127.0.0.1:7 --count 0", "cannot be divided"),
            ("127.0.0.1:7 --duration 0", "nothing to measure"),
            ("127.0.0.1:7 --duration -1", "unexpected argument"),
            ("127.0.0.1:7 --duration=-1", "--duration -1 is no time"),
            ("127.0.0.1:7 --warmup nan", "--warmup NaN is no time"),
            ("127.0.0.1:7 --rate 0", "rate of 0"),
            ("127.0.0.1:7 --rate 10 --arrivals jitter", "choose even, jitter:PERCENT"),
            ("127.0.0.1:7 --rate 1e6 --arrivals bursts:4:9", "leave time for a pause"),
            ("127.0.0.1:7 --arrivals poisson", "--rate"),
            ("127.0.0.1:7 --timeout 0", "loss timeout"),
            ("127.0.0.1:7 --path xdp", "add --on IFACE"),
            ("127.0.0.1:7 --path fast", "use auto, xdp"),
            ("127.0.0.1:7 --on lo --tcp --path xdp", "--path xdp has no TCP"),
            ("127.0.0.1:7 --on lo --batch", "--batch is for kernel sockets"),
            ("127.0.0.1:7 --segments", "--batch"),
            ("127.0.0.1:7 --tcp --batch --segments", "--segments is for UDP"),
            ("127.0.0.1:7 --nagle on", "--nagle is for TCP"),
            ("127.0.0.1:7 -i 0", "0 iterations"),
            ("127.0.0.1:7 -q 50,x", "no list of percentiles"),
            ("127.0.0.1:7 -c 9X", "is no count"),
            ("127.0.0.1:7 --mode lazy", "adaptive, interrupt or poll"),
            ("127.0.0.1:7 --cpu 1-0", "not a list of CPUs"),
            ("127.0.0.1:7 --udp --tcp", "cannot be used with"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error:?} lacks {words:?}");
        }
    }
}
