//! Clients on kernel sockets: one thread per connection or flow.

use std::thread;

use twinpath_load::Codec;
use twinpath_socket_load::{
    ClientConfig, ClientOutcome, Progress, SocketError, Stop, TcpClient, UdpClient, Wait,
};
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

use crate::error::RunError;
use crate::measure::in_words;
use crate::measured::{Measured, ThreadMeasured};
use crate::plan::{RunPlan, Transport};

/// How long an adaptive client polls after the last reply before it sleeps: about ten round trips between
/// machines.
const ADAPTIVE_SPIN: Duration = Duration::from_micros(50);

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread. `codec` makes the
/// codec of a thread, by its number.
pub(super) fn run(
    plan: &RunPlan,
    stop: &Stop,
    progress: &[Progress],
    codec: impl Fn(u32) -> Result<Box<dyn Codec>, RunError>,
) -> Result<Measured, RunError> {
    // All clients connect before the first one begins.
    let clients = (0..plan.threads)
        .map(|index| Client::connect(plan, index, codec(index)?))
        .collect::<Result<Vec<_>, RunError>>()?;
    let outcomes: Vec<Result<ClientOutcome, SocketError>> = thread::scope(|scope| {
        let start = |(client, progress): (Client, _)| {
            scope.spawn(move || {
                let outcome = client.run(stop, progress);
                if outcome.is_err() {
                    // If one thread fails, the others need not finish.
                    stop.request();
                }
                outcome
            })
        };
        let threads: Vec<_> = clients.into_iter().zip(progress).map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let threads = outcomes
        .into_iter()
        .map(|outcome| {
            let ClientOutcome { summary, cpu_time, transfers, complaint, broken } = outcome?;
            let broken = broken.map(|error| in_words(&error));
            Ok(ThreadMeasured { summary, cpu_time, transfers: Some(transfers), complaint, broken })
        })
        .collect::<Result<Vec<_>, SocketError>>()?;
    let mut notes = Vec::new();
    if plan.mode == Mode::Adaptive {
        notes.push(format!(
            "adaptive on kernel sockets: asks without sleeping for {} us after each reply, then sleeps",
            ADAPTIVE_SPIN.as_micros()
        ));
    }
    if plan.segments {
        notes.push("requests that are due leave as one message (UDP_SEGMENT, UDP_GRO)".to_owned());
    }
    Ok(Measured { threads, path: "kernel".to_owned(), allocations_per_packet: None, notes })
}

/// A connected client of either kind.
enum Client {
    Udp(Box<UdpClient>),
    Tcp(Box<TcpClient>),
}

impl Client {
    fn connect(plan: &RunPlan, index: u32, codec: Box<dyn Codec>) -> Result<Self, RunError> {
        let config = ClientConfig {
            target: plan.target,
            wait: wait_of(plan.mode),
            load: plan.thread_load(index),
            batch: plan.batch,
            segments: plan.segments,
            nagle: plan.nagle,
            source: plan.source,
            cpu: plan.thread_cpu(index),
        };
        Ok(match plan.transport {
            Transport::Udp => Self::Udp(Box::new(UdpClient::connect(&config, codec)?)),
            Transport::Tcp => Self::Tcp(Box::new(TcpClient::connect(&config, codec)?)),
        })
    }

    fn run(self, stop: &Stop, progress: &Progress) -> Result<ClientOutcome, SocketError> {
        match self {
            Self::Udp(client) => client.run(stop, progress),
            Self::Tcp(client) => client.run(stop, progress),
        }
    }
}

pub(crate) fn wait_of(mode: Mode) -> Wait {
    match mode {
        Mode::Adaptive => Wait::SpinThenSleep(ADAPTIVE_SPIN),
        Mode::Interrupt => Wait::Sleep,
        Mode::Poll => Wait::Spin,
    }
}
