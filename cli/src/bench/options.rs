//! The command-line options that all services share; short names are those of ksf's tools.

use std::path::PathBuf;

use twinpath_config::{Command, Key};
use twinpath_load::Arrivals;

use crate::options::{HasKeys, KeyOptions};

/// Number of runs with `--paper`, as in ksf's README.
pub(crate) const PAPER_ITERATIONS: u32 = 99;
/// Requests per thread in each of those runs: the default of rpctest.
pub(crate) const PAPER_COUNT: u64 = 1_000_000;
/// Its quantiles: one, two and three standard deviations of a normal distribution on either side of the median.
pub(crate) const PAPER_QUANTILES: &str = "0.3,4.6,31.7,50,68.3,95.4,99.7";
/// The default quantiles of a table or line.
pub(crate) const QUANTILES: &str = "50,90,99,99.9";

/// Measure an echo service with requests that each carry a pattern, and verify every reply
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct EchoArgs {
    /// The target: a name or an address and a port; IPv6 addresses in brackets, link-local ones as [fe80::1%eth0]:7
    #[arg(value_name = "HOST:PORT")]
    pub(crate) target: String,
    /// Payload bytes of a request
    #[arg(long, short = 'l', value_name = "BYTES", default_value_t = 64)]
    pub(crate) size: usize,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// Over UDP
    #[arg(long, short = 'u', conflicts_with = "tcp")]
    pub(crate) udp: bool,
    /// Over TCP, one connection per thread
    #[arg(long)]
    pub(crate) tcp: bool,
    /// The port, if the target does not name it
    #[arg(long, short = 'p', value_name = "PORT")]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) keys: KeyOptions<Bench>,
    /// Maximum number of unanswered requests per thread [default: 1; with --rate: 1024]
    #[arg(long, short = 'a', value_name = "N")]
    pub(crate) inflight: Option<u32>,
    /// Threads, each with a connection or flow of its own
    #[arg(long, short = 'j', value_name = "N", default_value_t = 1)]
    pub(crate) threads: u32,
    /// Send all requests that are due with one call, and receive all waiting replies with one; without it, each call
    /// sends one request or receives one reply
    #[arg(long)]
    pub(crate) batch: bool,
    /// With --batch over UDP, send them as one message, which the kernel segments (UDP_SEGMENT), and receive replies as
    /// it has coalesced them (UDP_GRO)
    #[arg(long, requires = "batch")]
    pub(crate) segments: bool,
    /// Over TCP, whether the kernel may hold a request back while earlier ones are unacknowledged, to send several in
    /// one segment (Nagle's algorithm) [default: as ksf's tools, on with several in flight; off with --batch or --rate]
    #[arg(long, value_enum, value_name = "ON_OFF")]
    pub(crate) nagle: Option<Switch>,
    /// Requests per second of all threads together, independent of replies; latency counts from the due time of a request
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// How --rate is spread over time: even (the default), jitter:PERCENT, poisson, bursts:SIZE:GAP_US, or steps:MS:PERCENT
    #[arg(long, value_name = "SHAPE", requires = "rate")]
    pub(crate) arrivals: Option<Arrivals>,
    /// The seed of the due times; the same seed gives the same sequence [default: drawn]
    #[arg(long, value_name = "N", requires = "arrivals")]
    pub(crate) arrivals_seed: Option<u64>,
    /// End a run after this number of requests of all threads; k, M or G after the number multiply it
    #[arg(long, short = 'c', value_name = "N", value_parser = parse_count)]
    pub(crate) count: Option<u64>,
    /// End a run after this number of seconds [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Send for this number of seconds before counting [default: 0.2; with --paper: 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) warmup: Option<f64>,
    /// A request without an answer after this number of seconds is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) timeout: f64,
    /// Fail (exit code 1) if more than this percentage of the requests is lost [default: any may be]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) loss_max: Option<f64>,
    /// Number of runs, each on new connections, with one line each; the report has the median of the runs
    #[arg(long, short = 'i', value_name = "N")]
    pub(crate) iterations: Option<u32>,
    /// Measure as ksf's README does: 99 runs of 1,000,000 requests per thread, no warm-up, its quantiles; other options
    /// override that
    #[arg(long)]
    pub(crate) paper: bool,
    /// Report the average of the runs so far instead of their median
    #[arg(long, short = 'm')]
    pub(crate) running_average: bool,
    /// The percentiles to show, separated by commas [default: 50,90,99,99.9]
    #[arg(long, short = 'q', value_name = "LIST")]
    pub(crate) quantiles: Option<String>,
    /// Show more: times and rates of the threads, system calls, CPU time per request
    #[arg(long, short = 'x')]
    pub(crate) extended: bool,
    /// Print one line per run, without a line of column names
    #[arg(long, short = 'H')]
    pub(crate) no_header: bool,
    /// Write into this directory: the report, an HDR log, and each run's latencies as numbers and as a plot
    #[arg(long, short = 'd', value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Also write the round-trip times of each run to an HdrHistogram log (V2)
    #[arg(long, value_name = "FILE.hlog")]
    pub(crate) hdr: Option<PathBuf>,
    /// Hold a CPU latency request during the runs: all CPUs of the machine stay in their shallowest idle state
    #[arg(long)]
    pub(crate) latency_request: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the distribution of the round-trip times, of all runs together
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Bench;

impl HasKeys for Bench {
    const COMMAND: Command = Command::Bench;

    fn help(key: &Key) -> Option<(&'static str, &'static str)> {
        match key.path {
            "interface.name" => {
                Some(("The interface whose fast path is the transport; without it, kernel sockets", ""))
            }
            "interface.path" => {
                Some(("The path: auto, xdp, packet or kernel", "auto with --on, kernel without"))
            }
            "worker.mode" => Some((
                "How to wait for replies: adaptive, interrupt (sleeping) or poll (spinning)",
                "adaptive",
            )),
            "worker.cpus" => Some(("CPUs for the threads, in turn, such as 0,2-3", "")),
            _ => None,
        }
    }
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Parses a number; `9M` is nine million.
fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| format!("\"{text}\" is no count: write a number, such as 9000000 or 9M"))
}

/// Parses a share in percent.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| format!("\"{text}\" is no share: write percent, 0 to 100, such as 0.1"))
}

/// The sentence for a measurement that lost more than it may.
pub(crate) fn too_many_lost(lost: u64, sent: u64, what: &str, most: Option<f64>) -> Option<String> {
    let percent = lost as f64 * 100.0 / sent.max(1) as f64;
    let most = most.filter(|most| percent > *most)?;
    Some(format!("{lost} of {sent} {what} were lost, {percent:.3} %: more than --loss-max {most}"))
}

/// What the exit code says, for the end of a help text.
pub(crate) const EXIT_CODES: &str = "Exit code 0: measured; what was lost is in the report, and fails only with --loss-max. 1: nothing was \
    answered, something was wrong (a corrupt or refused reply, a broken connection), or more was lost than --loss-max allows; standard \
    error says which. 2: the command line is wrong.";

/// Parses percentiles; returns them ascending.
pub(crate) fn parse_quantiles(text: &str) -> anyhow::Result<Vec<f64>> {
    let parse = |word: &str| word.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let mut percents: Vec<f64> = text.split(',').map(parse).collect::<Option<_>>().ok_or_else(|| {
        anyhow::anyhow!("\"{text}\" is no list of percentiles: write numbers from 0 to 100, as {QUANTILES}")
    })?;
    percents.sort_by(f64::total_cmp);
    percents.dedup();
    anyhow::ensure!(
        percents.len() <= QUANTILES_MAX,
        "{} percentiles are too many: at most {QUANTILES_MAX}",
        percents.len()
    );
    Ok(percents)
}

/// More columns than this cannot be read.
const QUANTILES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes() {
        assert_eq!(parse_count("9M"), Ok(9_000_000));
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("7"), Ok(7));
        for text in ["", "-1", "101", "nan", "1%"] {
            assert!(parse_percent(text).unwrap_err().contains("is no share"), "{text}");
        }
        assert_eq!(parse_percent("0.1"), Ok(0.1));
        for text in ["", "M", "-1", "1.5M", "9MM", "99999999999999G", "1µ"] {
            assert!(parse_count(text).unwrap_err().contains("is no count"), "{text}");
        }
    }

    #[test]
    fn more_may_not_be_lost_than_is_said() {
        assert_eq!(too_many_lost(10, 100, "requests", None), None);
        assert_eq!(too_many_lost(10, 100, "requests", Some(10.0)), None);
        assert_eq!(too_many_lost(0, 0, "requests", Some(0.0)), None);
        let said = too_many_lost(1, 1000, "requests", Some(0.05)).unwrap();
        assert_eq!(said, "1 of 1000 requests were lost, 0.100 %: more than --loss-max 0.05");
    }

    #[test]
    fn quantiles_are_sorted_and_bounded() {
        assert_eq!(parse_quantiles("99.9, 50,0,50").unwrap(), [0.0, 50.0, 99.9]);
        for text in ["", "50,,90", "101", "-1", "p50", "nan"] {
            assert!(parse_quantiles(text).unwrap_err().to_string().contains("0 to 100"), "{text}");
        }
        assert_eq!(parse_quantiles(PAPER_QUANTILES).unwrap().len(), 7);
        parse_quantiles(QUANTILES).unwrap();
    }
}
