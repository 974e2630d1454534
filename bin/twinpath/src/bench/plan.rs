//! From arguments to what is to be done: every combination that makes no sense ends here, with one sentence.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use twinpath_control::choose::PathAsked;
use twinpath_load::{Arrivals, Limit, LoadConfig};
use twinpath_sys::affinity;
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

/// Without --count and --duration.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// More threads than this measure the scheduler.
const THREADS_MAX: u32 = 64;

/// Measure an echo service with requests that each carry a pattern, and verify every reply
#[derive(Debug, clap::Args)]
pub(crate) struct EchoArgs {
    /// Whom to ask: a name or an address and a port; IPv6 addresses in brackets
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// Over UDP (the default)
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,
    /// Over TCP, one connection per thread
    #[arg(long)]
    tcp: bool,
    /// The interface whose fast path is the transport; without it, kernel sockets
    #[arg(long, value_name = "IFACE")]
    on: Option<String>,
    /// auto (the default with --on), xdp, packet, or kernel (the default without)
    #[arg(long)]
    path: Option<PathAsked>,
    /// How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning)
    #[arg(long, default_value_t)]
    mode: Mode,
    /// Payload bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Requests that may be unanswered at once, per thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    inflight: u32,
    /// Threads, each with a flow of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Offer so many requests per second in all, whatever the replies do; latency counts from when a request was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// How those are spread over time: even (the default), jitter:PERCENT, poisson, or bursts:SIZE:GAP_US
    #[arg(long, value_name = "SHAPE", requires = "rate")]
    arrivals: Option<Arrivals>,
    /// Determines when exactly they are due; the same seed is the same sequence [default: drawn]
    #[arg(long, value_name = "N", requires = "arrivals")]
    arrivals_seed: Option<u64>,
    /// End after so many requests in all
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds [default: 5]
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Send, but do not count, for so many seconds first
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    warmup: f64,
    /// A request unanswered for so many seconds is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    timeout: f64,
    /// CPUs for the threads, in turn, such as 0,2-3
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
    /// Hold a CPU latency request meanwhile: CPUs stay in their shallowest idle state, on the whole machine
    #[arg(long)]
    latency_request: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also draw the distribution of the round-trip times
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A checked run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// As the user wrote it.
    pub(crate) target_name: String,
    pub(crate) target: SocketAddr,
    pub(crate) transport: Transport,
    /// With any path but `kernel`.
    pub(crate) interface: Option<String>,
    pub(crate) path: PathAsked,
    pub(crate) mode: Mode,
    pub(crate) threads: u32,
    /// For the threads in turn; empty: anywhere.
    pub(crate) cpus: Vec<usize>,
    /// All threads together.
    pub(crate) load: LoadConfig,
    pub(crate) latency_request: bool,
    pub(crate) json: bool,
    pub(crate) plot: Option<PathBuf>,
}

impl Plan {
    /// Checks the arguments and resolves the target.
    pub(crate) fn new(args: &EchoArgs) -> anyhow::Result<Self> {
        let path = match (args.path, &args.on) {
            (Some(path), _) => path,
            (None, Some(_)) => PathAsked::Auto,
            (None, None) => PathAsked::Kernel,
        };
        ensure!(
            path == PathAsked::Kernel || args.on.is_some(),
            "--path {path} needs the interface to take it on: add --on IFACE"
        );
        ensure!(
            path == PathAsked::Kernel || !args.tcp,
            "TCP runs on kernel sockets only, so far: leave out --on, or add --path kernel"
        );
        ensure!(
            (1..=THREADS_MAX).contains(&args.threads),
            "{} threads are impossible: choose 1 to {THREADS_MAX}",
            args.threads
        );
        let cpus = args.cpu.as_deref().map(affinity::parse_cpu_list).transpose()?.unwrap_or_default();
        let load = load_config(args)?;
        load.validate()?;
        Ok(Self {
            target_name: args.target.clone(),
            target: resolve(&args.target)?,
            transport: if args.tcp { Transport::Tcp } else { Transport::Udp },
            interface: args.on.clone(),
            path,
            mode: args.mode,
            threads: args.threads,
            cpus,
            load,
            latency_request: args.latency_request,
            json: args.json,
            plot: args.plot.clone(),
        })
    }

    /// The part of thread `index`, which counts from 0.
    pub(crate) fn thread_load(&self, index: u32) -> LoadConfig {
        let threads = u64::from(self.threads);
        let limit = match self.load.limit {
            // The first threads take what cannot be divided; no thread has nothing, see `load_config`.
            Limit::Count(count) => {
                Limit::Count(count / threads + u64::from(u64::from(index) < count % threads))
            }
            duration @ Limit::Duration(_) => duration,
        };
        LoadConfig {
            limit,
            rate_per_s: self.load.rate_per_s.map(|rate| rate / f64::from(self.threads)),
            seed: self.load.seed.wrapping_add(u64::from(index)),
            arrivals_seed: self.load.arrivals_seed.wrapping_add(u64::from(index)),
            ..self.load
        }
    }

    /// The CPU of thread `index`.
    pub(crate) fn thread_cpu(&self, index: u32) -> Option<usize> {
        self.cpus.iter().cycle().nth(index as usize).copied()
    }
}

fn load_config(args: &EchoArgs) -> anyhow::Result<LoadConfig> {
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
        (None, None) => Limit::Duration(DEFAULT_DURATION),
    };
    let seed = twinpath_sys::clock::now().as_nanos() ^ u64::from(std::process::id()) << 32;
    Ok(LoadConfig {
        payload_len: args.size,
        inflight: args.inflight,
        rate_per_s: args.rate,
        arrivals: args.arrivals.unwrap_or_default(),
        arrivals_seed: args.arrivals_seed.unwrap_or(seed),
        limit,
        warmup: seconds("--warmup", args.warmup)?,
        loss_timeout: seconds("--timeout", args.timeout)?,
        // So that replies to an earlier run, still under way, are not taken for ours.
        seed,
    })
}

fn seconds(option: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| duration.as_secs() <= 24 * 3600)
        .with_context(|| format!("{option} {value} is no time: give seconds, 0 or more and at most a day"))
}

/// The first address of the target.
fn resolve(target: &str) -> anyhow::Result<SocketAddr> {
    let has_port = target.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    ensure!(
        has_port,
        "\"{target}\" names no host and port: write HOST:PORT, and an IPv6 address in brackets, as [::1]:7"
    );
    let mut addresses = target.to_socket_addrs().with_context(|| format!("cannot resolve \"{target}\""))?;
    addresses.next().with_context(|| format!("\"{target}\" has no address"))
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

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("echo").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Plan::new(&line.echo).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn defaults_are_one_udp_request_at_a_time_over_the_kernel() {
        let plan = plan("[::1]:7").unwrap();
        assert_eq!(plan.target, "[::1]:7".parse().unwrap());
        assert_eq!(
            (plan.transport, plan.path, plan.mode),
            (Transport::Udp, PathAsked::Kernel, Mode::Adaptive)
        );
        assert_eq!((plan.load.payload_len, plan.load.inflight), (64, 1));
        assert_eq!(plan.load.limit, Limit::Duration(Duration::from_secs(5)));
    }

    #[test]
    fn an_interface_alone_means_the_path_is_chosen() {
        assert_eq!(plan("127.0.0.1:7 --on lo").unwrap().path, PathAsked::Auto);
        assert_eq!(plan("127.0.0.1:7 --on lo --path kernel").unwrap().path, PathAsked::Kernel);
    }

    #[test]
    fn threads_share_the_count_and_the_rate() {
        let plan = plan("127.0.0.1:7 --threads 3 --count 10 --rate 30 --cpu 1,0").unwrap();
        let counts: Vec<_> = (0..3).map(|index| plan.thread_load(index).limit).collect();
        assert_eq!(counts, [Limit::Count(4), Limit::Count(3), Limit::Count(3)]);
        assert_eq!(plan.thread_load(2).rate_per_s, Some(10.0));
        assert_eq!(
            (0..3).map(|index| plan.thread_cpu(index)).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1)]
        );
    }

    #[test]
    fn what_makes_no_sense_gets_one_sentence() {
        for (line, words) in [
            ("127.0.0.1", "write HOST:PORT"),
            ("::1:7", "in brackets"),
            ("127.0.0.1:70000", "write HOST:PORT"),
            ("no-such-host.invalid:7", "cannot resolve \"no-such-host.invalid:7\""),
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
            ("127.0.0.1:7 --on lo --tcp", "kernel sockets only"),
            ("127.0.0.1:7 --mode lazy", "adaptive, interrupt or poll"),
            ("127.0.0.1:7 --cpu 1-0", "not a list of CPUs"),
            ("127.0.0.1:7 --udp --tcp", "cannot be used with"),
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error:?} lacks {words:?}");
        }
    }
}
