//! The client `twinpath-lab plain offer`: datagrams at a rate over a kernel socket, from a thread that sleeps in between.
//!
//! What it costs itself is the same for each server, so that the CPU time of the machine beside it can be compared.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::ensure;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use twinpath_clients::measure::print;
use twinpath_sys::clock;

use super::program::AskReport;

/// Datagrams leave in bursts, one for each of these.
const PERIOD: Duration = Duration::from_micros(500);
/// What is answered later than this after the end is lost.
const LAST_REPLIES: twinpath_time::Duration = twinpath_time::Duration::from_millis(20);
const PAYLOAD_LEN: usize = 64;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The echo server
    target: SocketAddr,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Datagrams per second
    #[arg(long, default_value_t = 100_000)]
    rate: u32,
    /// No reply is expected, and all datagrams count as answered
    #[arg(long)]
    dropped: bool,
}

/// Prints an [`AskReport`], without round-trip times and CPU time.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.duration.is_finite() && args.duration > 0.0, "a client needs a time");
    let any: SocketAddr = if args.target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    socket.connect(args.target)?;
    socket.set_nonblocking(true)?;
    let burst = f64::from(args.rate) * PERIOD.as_secs_f64();
    let rounds = (args.duration / PERIOD.as_secs_f64()) as u64;
    let (mut sent, mut answered) = (0_u64, 0_u64);
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let period = Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
    timerfd_settime(
        &timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec { it_interval: period, it_value: period },
    )?;
    let begun = clock::now();
    for round in 1..=rounds {
        while (sent as f64) < burst * round as f64 {
            match socket.send(&[sent as u8; PAYLOAD_LEN]) {
                Ok(_) => {}
                // A server that went away: what is lost says so.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error.into()),
            }
            sent += 1;
        }
        answered += replies(&socket)?;
        // Sleeps until the next period begins, or not at all if it has.
        rustix::io::read(&timer, &mut [0; 8])?;
    }
    let ended = clock::now();
    while !args.dropped && answered < sent && clock::now() < ended + LAST_REPLIES {
        answered += replies(&socket)?;
    }
    let answered = if args.dropped { sent } else { answered };
    Ok(print(serde_json::to_value(AskReport {
        answered,
        lost: sent.saturating_sub(answered),
        requests_per_s: sent as f64 / (ended.nanos_since(begun) as f64 / 1e9),
        from_ns: begun.as_nanos(),
        to_ns: ended.as_nanos(),
        ..AskReport::default()
    })?)?)
}

/// Takes what has come.
fn replies(socket: &UdpSocket) -> anyhow::Result<u64> {
    let (mut count, mut reply) = (0, [0; PAYLOAD_LEN + 1]);
    loop {
        match socket.recv(&mut reply) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error.into()),
        }
    }
}
