//! The options of `bench stream`, and the plan made from them.

use anyhow::ensure;
use twinpath_clients::{StreamPlan, Transport};
use twinpath_config::{InterfaceOverrides, PathAsked};
use twinpath_load::{DATAGRAM_MIN, PAYLOAD_MAX};

use super::super::options::{Bench, EXIT_CODES, parse_percent};
use super::super::plan::{THREADS_MAX, seconds};
use super::super::target::Target;
use crate::options::KeyOptions;

/// The ports of discard (RFC 863) and chargen (RFC 864).
const DISCARD_PORT: u16 = 9;
const CHARGEN_PORT: u16 = 19;
/// Maximum number of bytes of a system call: each thread has a buffer of that size.
const CALL_BYTES_MAX: usize = 16 << 20;
/// Maximum rate, bits per second: below it, sums of bits stay exact.
const RATE_MAX: f64 = 1e13;

/// Measure how much goes through in one direction: to a service that discards it, or from one that makes it
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct StreamArgs {
    /// The target: a name or an address, and a port unless it is that of discard, 9, or with --reverse that of chargen,
    /// 19; IPv6 addresses with a port in brackets, link-local ones as fe80::1%eth0
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// Datagrams over UDP, to a `twinpath serve discard`, which counts them
    #[arg(long, short = 'u', conflicts_with = "tcp")]
    udp: bool,
    /// Bytes over TCP, to any service that discards them (the default)
    #[arg(long)]
    tcp: bool,
    /// Receive, over TCP, from a service that sends without being asked, such as chargen
    #[arg(long, short = 'R')]
    reverse: bool,
    /// The port, if the target does not name it
    #[arg(long, short = 'p', value_name = "PORT")]
    port: Option<u16>,
    #[command(flatten)]
    keys: KeyOptions<Bench>,
    /// Over UDP, bits of payload per second of all streams together; k, M or G after the number multiply it [default:
    /// as many as possible]
    #[arg(long, short = 'b', value_name = "BITS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Payload bytes of a datagram, or of a system call over TCP [default: those of one packet; 131072]
    #[arg(long, short = 'l', value_name = "BYTES")]
    size: Option<usize>,
    /// Streams, each with a thread and a connection or flow of its own
    #[arg(long, short = 'j', visible_alias = "connections", value_name = "N", default_value_t = 1)]
    threads: u32,
    /// End after this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    duration: f64,
    /// Seconds that the service may take to answer a question over UDP, or to read what is on its way over TCP
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    timeout: f64,
    /// Over UDP, fail (exit code 1) if more than this percentage of the datagrams is lost [default: any may be]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    loss_max: Option<f64>,
    /// Show more: every stream by itself, and system calls
    #[arg(long, short = 'x')]
    extended: bool,
    /// Hold a CPU latency request meanwhile: all CPUs of the machine stay in their shallowest idle state
    #[arg(long)]
    latency_request: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// A checked measurement.
#[derive(Clone, Debug)]
pub(super) struct StreamBench {
    pub(super) target: Target,
    pub(super) plan: StreamPlan,
    /// Maximum share of datagrams that may be lost, %.
    pub(super) loss_max: Option<f64>,
    pub(super) extended: bool,
    pub(super) latency_request: bool,
    pub(super) json: bool,
}

impl StreamBench {
    /// Checks the arguments and resolves the target.
    pub(super) fn new(args: &StreamArgs) -> anyhow::Result<Self> {
        let transport = if args.udp { Transport::Udp } else { Transport::Tcp };
        ensure!(
            !args.reverse || transport == Transport::Tcp,
            "--reverse is for TCP: a service that sends datagrams to anybody who asks would send them to a forged address too"
        );
        ensure!(
            args.rate.is_none() || transport == Transport::Udp,
            "--rate is for UDP: TCP finds the rate by itself"
        );
        ensure!(
            args.loss_max.is_none() || transport == Transport::Udp,
            "--loss-max is for UDP: TCP sends again what was lost"
        );
        ensure!(
            (1..=THREADS_MAX).contains(&args.threads),
            "{} threads are impossible: choose 1 to {THREADS_MAX}",
            args.threads
        );
        if let Some(size) = args.size {
            let (least, most) = match transport {
                Transport::Udp => (DATAGRAM_MIN, PAYLOAD_MAX),
                Transport::Tcp => (1, CALL_BYTES_MAX),
            };
            ensure!((least..=most).contains(&size), "--size {size} is impossible: choose {least} to {most}");
        }
        let path = path_of(args, transport)?;
        let duration = seconds("--duration", args.duration)?;
        ensure!(!duration.is_zero(), "nothing to measure: the duration is zero");
        let timeout = seconds("--timeout", args.timeout)?;
        ensure!(
            !timeout.is_zero() && timeout.as_secs() <= 60,
            "--timeout {} is impossible: choose one above 0 and up to 60 seconds",
            args.timeout
        );
        let default_port = if args.reverse { CHARGEN_PORT } else { DISCARD_PORT };
        let interface = args.keys.overrides.interface.name.clone().flatten();
        let target = Target::resolve(&args.target, args.port, Some(default_port))?.on(interface.as_deref())?;
        let worker = &args.keys.overrides.worker;
        let plan = StreamPlan {
            target: target.address,
            transport,
            from_service: args.reverse,
            interface,
            path,
            mode: worker.mode.unwrap_or_default(),
            threads: args.threads,
            cpus: worker.cpus.iter().flatten().map(|cpu| *cpu as usize).collect(),
            size: args.size,
            rate_bits_per_s: args.rate,
            duration,
            timeout,
            session: twinpath_sys::clock::now().as_nanos() ^ u64::from(std::process::id()) << 32,
        };
        Ok(Self {
            target,
            plan,
            loss_max: args.loss_max,
            extended: args.extended,
            latency_request: args.latency_request,
            json: args.json,
        })
    }
}

fn path_of(args: &StreamArgs, transport: Transport) -> anyhow::Result<PathAsked> {
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
        path == PathAsked::Kernel || transport == Transport::Udp,
        "TCP runs on kernel sockets only, so far: leave out --on, or add --udp or --path kernel"
    );
    Ok(path)
}

/// Parses a rate; `1.5G` is 1,500,000,000.
fn parse_rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|rate| rate * factor);
    rate.filter(|rate| (1.0..=RATE_MAX).contains(rate))
        .ok_or_else(|| format!("\"{text}\" is no rate: write bits per second, such as 500M or 1.5G"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stream: StreamArgs,
    }

    fn bench(line: &str) -> Result<StreamBench, String> {
        let words = std::iter::once("stream").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        StreamBench::new(&line.stream).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn defaults_are_bytes_over_tcp_to_the_port_of_discard() {
        let StreamBench { plan, target, .. } = bench("127.0.0.1").unwrap();
        assert_eq!((plan.target, target.name.as_str()), ("127.0.0.1:9".parse().unwrap(), "127.0.0.1:9"));
        assert_eq!((plan.transport, plan.path, plan.threads), (Transport::Tcp, PathAsked::Kernel, 1));
        assert_eq!((plan.duration, plan.size), (Duration::from_secs(5), None));
        assert_eq!(bench("127.0.0.1 --reverse").unwrap().plan.target.port(), 19);
        assert_eq!(bench("127.0.0.1:7 -R").unwrap().plan.target.port(), 7);
    }

    #[test]
    fn options_are_those_of_the_other_commands() {
        let plan = bench("::1 -u -p 7009 -b 1.5G -l 1000 -j 2 --on lo --mode poll --cpu 0,1").unwrap().plan;
        assert_eq!(plan.target, "[::1]:7009".parse().unwrap());
        assert_eq!((plan.transport, plan.path), (Transport::Udp, PathAsked::Auto));
        assert_eq!((plan.rate_bits_per_s, plan.size, plan.threads), (Some(1.5e9), Some(1000), 2));
        assert_eq!((plan.interface.as_deref(), plan.cpus), (Some("lo"), vec![0, 1]));
        assert_eq!(bench("::1 --connections 3").unwrap().plan.threads, 3);
    }

    #[test]
    fn what_makes_no_sense_gets_one_sentence() {
        for (line, words) in [
            ("127.0.0.1 -u -R", "--reverse is for TCP"),
            ("127.0.0.1 --rate 1M", "--rate is for UDP"),
            ("127.0.0.1 --loss-max 1", "--loss-max is for UDP"),
            ("127.0.0.1 -u --loss-max 101", "is no share"),
            ("fe80::1", "as [fe80::1%eth0]:9"),
            ("127.0.0.1 -u --rate 0", "is no rate"),
            ("127.0.0.1 -u --rate fast", "is no rate"),
            ("127.0.0.1 -u --rate 1e14", "is no rate"),
            ("127.0.0.1 -u --size 31", "choose 32 to 65507"),
            ("127.0.0.1 -u --size 65508", "choose 32 to 65507"),
            ("127.0.0.1 --size 0", "choose 1 to 16777216"),
            ("127.0.0.1 --threads 0", "1 to 64"),
            ("127.0.0.1 --duration 0", "nothing to measure"),
            ("127.0.0.1 --duration=-1", "--duration -1 is no time"),
            ("127.0.0.1 --timeout 0", "above 0 and up to 60"),
            ("127.0.0.1 --on lo", "kernel sockets only"),
            ("127.0.0.1 -u --path xdp", "add --on IFACE"),
            ("127.0.0.1 --udp --tcp", "cannot be used with"),
            ("127.0.0.1:1 -p 2", "two ports"),
        ] {
            let error = bench(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error:?} lacks {words:?}");
        }
    }
}
