//! Measures on the scratch link, alternately without and with twinpath attached.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;

use twinpath_attach::{AttachError, AttachPlan, Attachment, Target, pool_frames};
use twinpath_bpf::{
    Datagrams, EmptyXdp, Features, ProgramCost, SteerError, TcAttach, TcpFlows, XdpMode, program_costs,
};
use twinpath_claims::{ADDRESSES_MAX, Claim, Table, TableError};
use twinpath_config::Path;
use twinpath_frame::{Pool, PoolError};
use twinpath_instance::FallbackQuestion;
use twinpath_load::{Echo, Limit, LoadConfig};
use twinpath_observe::report;
use twinpath_port::PortQueue;
use twinpath_socket_load::socket::Source;
use twinpath_socket_load::{
    ClientConfig, ClientOutcome, EchoMethod, Peers, Progress, SocketError, Stop, TcpSink, UdpEcho, Wait,
    tcp_bulk, udp_client,
};
use twinpath_sys::netns::NetnsError;
use twinpath_sys::{affinity, clock};
use twinpath_time::Duration;
use twinpath_wire::{EmitError, Protocol};

use super::loss::{Loss, Measure, Pair};
use super::scratch::{HOST, Scratch, ScratchError};
use super::traffic::{self, KernelFrame};

/// Requests in flight for measures of throughput, and messages per system call of the server.
const IN_FLIGHT: u32 = 64;
/// Several round trips.
const SPIN: Duration = Duration::from_micros(50);
/// Warm-up before each slice of datagrams, which does not count.
const WARM_UP: Duration = Duration::from_millis(4);
/// A veth loses nothing; a longer stall affects only its slice.
const LOSS_TIMEOUT: Duration = Duration::from_millis(200);

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Question {
    /// The path to attach; a fast one.
    pub path: Path,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Addresses of the host, as in the table of claims.
    pub addresses: Vec<IpAddr>,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How the packet path's program is attached.
    pub tc: TcAttach,
    /// Whether to compare with the unchanged link. Otherwise, on the XDP paths, the comparison is with the
    /// link under an empty XDP program. Then the cost of running XDP on a veth does not count, which is
    /// right if the interface is not a veth.
    pub bare: bool,
    /// Number of pairs of measurements, without and with twinpath, for each measure; there is an interval
    /// from 6 on.
    pub pairs: usize,
    /// Length of each.
    pub slice: Duration,
}

impl Question {
    /// Pairs and slices of `serve --measure-fallback`: 2 x 8 x 3 slices of 45 ms.
    pub const PAIRS: usize = 8;
    /// See [`Question::PAIRS`].
    pub const SLICE: Duration = Duration::from_millis(45);
}

/// The cost of programs for one kind of frame.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameCost {
    /// `tcp-ack`, ...
    pub frame: &'static str,
    /// The cost of each program of the path.
    pub programs: Vec<ProgramCost>,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The path.
    pub path: Path,
    /// As in the parameters.
    pub bare: bool,
    /// The losses of kernel sockets.
    pub losses: Vec<Loss>,
    /// The run times of the programs.
    pub programs: Vec<FrameCost>,
    /// How long it took.
    pub took: Duration,
}

impl Measured {
    /// The result in the form of the report.
    #[must_use]
    pub fn report(&self, loss_max: f64) -> report::Fallback {
        let programs = self.programs.iter().flat_map(|frame| {
            frame.programs.iter().map(|cost| report::FallbackProgram {
                program: cost.program.to_owned(),
                frame: frame.frame.to_owned(),
                added_ns: cost.added_ns(),
                run_ns: cost.run_ns,
                empty_ns: cost.empty_ns,
            })
        });
        report::Fallback {
            path: self.path.name().to_owned(),
            compared_with: if self.bare || !self.path.is_xdp() {
                "a veth pair of our own with nothing attached"
            } else {
                "a veth pair of our own with an XDP program that does nothing"
            }
            .to_owned(),
            loss_max,
            measures: self.losses.iter().map(Loss::report).collect(),
            programs: programs.collect(),
            beyond: super::loss::beyond(&self.losses, loss_max),
            not_measured: None,
        }
    }
}

/// The reason that a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum FallbackError {
    /// The link.
    #[error("{0}")]
    Scratch(#[from] ScratchError),
    /// Its namespaces.
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    /// Frame memory.
    #[error("{0}")]
    Pool(#[from] PoolError),
    /// Attaching to it.
    #[error("cannot attach to the scratch link: {0}")]
    Attach(#[from] AttachError),
    /// Test runs, or the programs for comparison.
    #[error("{0}")]
    Steer(#[from] SteerError),
    /// The table of claims for test runs.
    #[error("{0}")]
    Table(#[from] TableError),
    /// The frames for test runs.
    #[error("cannot build frames for test runs: {0}")]
    Frames(#[from] EmitError),
    /// Servers and clients.
    #[error("{0}")]
    Plain(#[from] SocketError),
    /// CPUs.
    #[error("{0}")]
    Cpus(#[from] affinity::AffinityError),
    /// A server or client thread.
    #[error("a thread of the measurement panicked")]
    Panicked,
    /// No answers came.
    #[error("nothing to compare: {0} gave no value")]
    Silent(&'static str),
}

/// Measures the cost of a path's programs for frames of the kernel's traffic, with the claims of `table`.
/// The calling thread should stay on its CPU.
///
/// # Errors
/// [`FallbackError::Steer`], [`FallbackError::Frames`].
pub fn test_runs(path: Path, table: &Table) -> Result<Vec<FrameCost>, FallbackError> {
    let of = if path.is_xdp() { twinpath_bpf::Path::Xdp } else { twinpath_bpf::Path::Packet };
    costs_of(of, Features::default(), table, &traffic::frames()?)
}

/// Measures the cost of the packet path's programs for segments of the kernel's connections, where workers have connections
/// too: at the ports of `table` if `claimed`, else at another one. The calling thread should stay on its CPU.
///
/// # Errors
/// [`FallbackError::Steer`], [`FallbackError::Frames`].
pub fn test_runs_with_connections(table: &Table, claimed: bool) -> Result<Vec<FrameCost>, FallbackError> {
    let flows = Arc::new(TcpFlows::load(1)?);
    let features =
        Features { connections: Some(&flows), datagrams: Datagrams::BySocket, ..Features::default() };
    costs_of(twinpath_bpf::Path::Packet, features, table, &traffic::segments(claimed)?)
}

fn costs_of(
    path: twinpath_bpf::Path,
    features: Features<'_>,
    table: &Table,
    frames: &[KernelFrame],
) -> Result<Vec<FrameCost>, FallbackError> {
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).collect();
    let costs = program_costs(path, features, table, &bytes)?;
    Ok(frames.iter().zip(costs).map(|(frame, programs)| FrameCost { frame: frame.name, programs }).collect())
}

/// Runs a measurement. It blocks for some seconds, depending on the parameters.
///
/// # Errors
/// [`FallbackError`]; in this case nothing is left behind.
pub fn measure(question: &Question) -> Result<Measured, FallbackError> {
    let begun = clock::now();
    let scratch = Scratch::build()?;
    let (losses, programs) = scratch.host.run(|| Bench::new(question, &scratch)?.measure())??;
    Ok(Measured {
        path: question.path,
        bare: question.bare,
        losses,
        programs,
        took: clock::now().since(begun),
    })
}

/// Measures a path for an instance that is about to start; takes about 3 s.
///
/// # Errors
/// [`FallbackError`] as a sentence.
pub fn measure_for_instance(asked: &FallbackQuestion) -> Result<report::Fallback, String> {
    let FallbackQuestion { path, claims, addresses, ring_frames, tc, bare, loss_max } = asked.clone();
    let (pairs, slice) = (Question::PAIRS, Question::SLICE);
    let question = Question { path, claims, addresses, ring_frames, tc, bare, pairs, slice };
    measure(&question).map(|found| found.report(loss_max)).map_err(|error| error.to_string())
}

/// The program or attachment on the scratch link.
enum On {
    Nothing,
    /// A program that does nothing.
    Empty {
        /// Dropping it detaches the program.
        _program: EmptyXdp,
    },
    /// twinpath.
    Us(Box<Attachment>, Vec<Box<dyn PortQueue>>),
}

/// A measurement, on a thread in the host's namespace.
struct Bench<'a> {
    question: &'a Question,
    scratch: &'a Scratch,
    peer_cpu: usize,
    host_cpu: usize,
    pool: Pool,
    on: On,
}

impl<'a> Bench<'a> {
    fn new(question: &'a Question, scratch: &'a Scratch) -> Result<Self, FallbackError> {
        let cpus = affinity::allowed_cpus()?;
        let peer_cpu = cpus.first().copied().unwrap_or(0);
        let host_cpu = cpus.get(1).copied().unwrap_or(peer_cpu);
        affinity::pin_current_thread(host_cpu)?;
        let pool = Pool::new(pool_frames(question.path, 1, question.ring_frames))?;
        Ok(Self { question, scratch, peer_cpu, host_cpu, pool, on: On::Nothing })
    }

    fn target(&self) -> Target {
        let mut addresses = self.question.addresses.clone();
        // Room for the next one.
        addresses.truncate(ADDRESSES_MAX - 1);
        addresses.push(HOST.address.into());
        Target {
            ifindex: self.scratch.host_ifindex,
            mac: HOST.mac,
            addresses,
            claims: self.question.claims.clone(),
        }
    }

    fn measure(mut self) -> Result<(Vec<Loss>, Vec<FrameCost>), FallbackError> {
        let mut pairs = Measure::ALL.map(|_| Vec::with_capacity(self.question.pairs));
        for number in 0..self.question.pairs {
            let mut both = [[0.0; Measure::ALL.len()]; 2];
            // The order alternates, so that a drift affects both sides equally and half the changes are saved.
            let order = if number % 2 == 0 { [false, true] } else { [true, false] };
            for with in order {
                if with {
                    self.attach()?
                } else {
                    self.detach()?
                };
                both[usize::from(with)] = [self.round_trip()?, self.bulk()?, self.rate()?];
            }
            let [before, after] = both;
            for (at, pairs) in pairs.iter_mut().enumerate() {
                pairs.push(Pair { before: before[at], after: after[at] });
            }
        }
        self.take_off();
        let programs = test_runs(self.question.path, &self.target().table()?)?;
        let loss = |(measure, pairs): (Measure, &Vec<Pair>)| {
            Loss::of(measure, pairs).ok_or(FallbackError::Silent(measure.name()))
        };
        let losses = Measure::ALL.into_iter().zip(&pairs).map(loss).collect::<Result<_, _>>()?;
        Ok((losses, programs))
    }

    fn attach(&mut self) -> Result<(), FallbackError> {
        if matches!(self.on, On::Us(..)) {
            return Ok(());
        }
        self.take_off();
        let plan = AttachPlan {
            path: self.question.path,
            rx_queues: 1,
            ring_frames: self.question.ring_frames,
            tc: self.question.tc,
            virtual_device: true,
            port: 0,
            fail_open: Duration::ZERO,
            replies: None,
            super_frames: false,
            datagrams: Datagrams::None,
            connections: None,
        };
        let regions = [Arc::clone(self.pool.region())];
        let (mut attachment, placed) = Attachment::attach(self.target(), &plan, &regions)?;
        let mut queues = Vec::with_capacity(placed.len());
        for mut placed in placed {
            placed.queue.prepare(&mut self.pool);
            attachment.serving(placed.queue.id())?;
            queues.push(placed.queue);
        }
        self.on = On::Us(Box::new(attachment), queues);
        Ok(())
    }

    fn detach(&mut self) -> Result<(), FallbackError> {
        let as_wanted = match self.on {
            On::Nothing => !self.wants_empty(),
            On::Empty { .. } => true,
            On::Us(..) => false,
        };
        if as_wanted {
            return Ok(());
        }
        self.take_off();
        if self.wants_empty() {
            let mode =
                if self.question.path == Path::XdpGeneric { XdpMode::Generic } else { XdpMode::Native };
            self.on = On::Empty { _program: EmptyXdp::attach(self.scratch.host_ifindex, mode)? };
        }
        Ok(())
    }

    fn wants_empty(&self) -> bool {
        self.question.path.is_xdp() && !self.question.bare
    }

    /// Detaches the programs first, then the queues; their frames return to the pool.
    fn take_off(&mut self) {
        if let On::Us(attachment, queues) = std::mem::replace(&mut self.on, On::Nothing) {
            drop(attachment);
            for queue in queues {
                queue.close().into_iter().for_each(|frame| self.pool.release(frame));
            }
        }
    }

    /// Sleeping immediately would add the scheduler's noise to both sides, so the ends poll for a while
    /// before they sleep. Polling for ever would keep the kernel's own packet thread off its CPU for whole
    /// ticks.
    fn wait(&self) -> Wait {
        if self.peer_cpu == self.host_cpu { Wait::Sleep } else { Wait::SpinThenSleep(SPIN) }
    }

    /// Median round trip, us.
    fn round_trip(&self) -> Result<f64, FallbackError> {
        let load = LoadConfig { inflight: 1, ..self.load() };
        let outcome = self.ask(EchoMethod::Single, load, twinpath_load::PAYLOAD_MIN)?;
        Ok(outcome.summary.histogram.value_at_quantile(0.5) as f64 / 1_000.0)
    }

    /// Requests answered per second.
    fn rate(&self) -> Result<f64, FallbackError> {
        let load = LoadConfig { inflight: IN_FLIGHT, ..self.load() };
        Ok(self.ask(EchoMethod::Batch(IN_FLIGHT as usize), load, 64)?.summary.requests_per_s())
    }

    fn load(&self) -> LoadConfig {
        LoadConfig {
            limit: Limit::Duration(self.question.slice),
            warmup: WARM_UP,
            loss_timeout: LOSS_TIMEOUT,
            ..LoadConfig::default()
        }
    }

    /// Offers a load from the peer's namespace to a kernel socket in the host's.
    fn ask(
        &self,
        method: EchoMethod,
        load: LoadConfig,
        payload_len: usize,
    ) -> Result<ClientOutcome, FallbackError> {
        let requests = Echo::new(payload_len, 0).map_err(SocketError::from)?;
        let echo = self.unclaimed(
            Protocol::Udp,
            || UdpEcho::bind(host(), self.wait(), method, Peers::First),
            UdpEcho::address,
        )?;
        let config = ClientConfig {
            nagle: false,
            source: Source::Any,
            target: echo.address(),
            wait: self.wait(),
            load,
            batch: true,
            segments: false,
            cpu: Some(self.peer_cpu),
        };
        let stop = Stop::new();
        thread::scope(|scope| {
            let server = scope.spawn(|| echo.run(&stop));
            let outcome = self
                .scratch
                .peer
                .run(|| udp_client(&config, Box::new(requests), &Stop::new(), &Progress::default()));
            stop.request();
            server.join().map_err(|_| FallbackError::Panicked)??;
            Ok(outcome??)
        })
    }

    /// Throughput of one TCP connection, Gbit/s.
    fn bulk(&self) -> Result<f64, FallbackError> {
        let sink = self.unclaimed(Protocol::Tcp, || TcpSink::bind(host()), TcpSink::address)?;
        let target = sink.address();
        let stop = Stop::new();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                // The receiver is gone if the measurement has failed.
                sink.run(&stop, |counts| {
                    let _ = tell.send(counts);
                })
            });
            let (slice, cpu) = (self.question.slice, self.peer_cpu);
            let sent =
                self.scratch.peer.run(|| tcp_bulk(target, [Duration::ZERO, slice], Some(cpu), &Stop::new()));
            let arrived = sent.as_ref().is_ok_and(Result::is_ok).then(|| told.recv_timeout(LOSS_TIMEOUT));
            stop.request();
            server.join().map_err(|_| FallbackError::Panicked)??;
            sent??;
            let counts = arrived.and_then(Result::ok).ok_or(FallbackError::Silent(Measure::Bulk.name()))?;
            Ok(counts.bytes_per_s() * 8.0 / 1e9)
        })
    }

    /// Starts a server on a port that is not claimed.
    fn unclaimed<T>(
        &self,
        protocol: Protocol,
        bind: impl Fn() -> Result<T, SocketError>,
        address: impl Fn(&T) -> SocketAddr,
    ) -> Result<T, FallbackError> {
        let claimed = |server: &T| {
            let port = (protocol, address(server).port());
            self.question.claims.iter().any(|claim| claim.transport() == Some(port))
        };
        let mut held = Vec::new();
        loop {
            let server = bind()?;
            if !claimed(&server) {
                return Ok(server);
            }
            // Held until another port was found: there are far more ports than claims.
            held.push(server);
        }
    }
}

fn host() -> SocketAddr {
    SocketAddr::new(HOST.address.into(), 0)
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        self.take_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_measured_on_a_link_of_our_own_and_leaves_nothing() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let deadline = clock::now() + Duration::from_secs(30);
        for (path, bare) in [(Path::Packet, true), (Path::XdpNative, true), (Path::XdpNative, false)] {
            let question = Question {
                path,
                claims: vec![Claim::port(Protocol::Udp, 7)],
                addresses: vec!["192.0.2.1".parse().unwrap()],
                ring_frames: 64,
                tc: TcAttach::here(),
                bare,
                pairs: 2,
                slice: Duration::from_millis(20),
            };
            let leaked = twinpath_frame::leaked();
            // On a very busy machine a whole slice may pass without an answer. Such pairs are left out, and
            // none may remain.
            let found = loop {
                match measure(&question) {
                    Err(FallbackError::Silent(_)) => {
                        assert!(clock::now() < deadline, "{path} gives no figures")
                    }
                    found => break found.unwrap(),
                }
            };
            assert_eq!(found.losses.len(), 3);
            assert!(found.losses.iter().all(|loss| loss.before > 0.0 && loss.after > 0.0));
            assert!(found.losses.iter().all(|loss| (1..=2).contains(&loss.pairs)));
            assert_eq!(found.programs.len(), 6);
            let programs = if path == Path::Packet { 2 } else { 1 };
            assert!(found.programs.iter().all(|frame| frame.programs.len() == programs));
            assert_eq!(twinpath_frame::leaked(), leaked, "every frame came home");
        }
    }
}
