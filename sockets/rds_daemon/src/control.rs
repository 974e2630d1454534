//! The control loop of a daemon.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use rustix::io::Errno;
use twinpath_attach::find_link;
use twinpath_attach::mirror::{Event, Mirror, MirrorLimits};
use twinpath_host::machine::Answer;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_host::{Awaited, Controlled, Door, notify, report_process};
use twinpath_observe::command::{Request, refusal};
use twinpath_observe::report::{self as report, Report};
use twinpath_rds_memory::{PortMaps, Positions};
use twinpath_rds_wire::TCP_PORT;
use twinpath_sys::descriptors::raise_limit;
use twinpath_sys::event_loop::channel::{Receiver, once};
use twinpath_sys::{EventFd, clock, race, socket_kind, tcp_listener};
use twinpath_time::{Duration, Instant};
use twinpath_worker::thread::panics;

use crate::conn::is_host;
use crate::hub::{Command, Hub};
use crate::keeper::{self, Found, Keeper};
use crate::reports::HubReport;
use crate::{RdsError, RdsPlan};

/// Commands that wait for the thread.
const COMMANDS_MAX: usize = 256;

/// How long the thread has to say what there is.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The answer to a request to read the configuration again.
const NO_RELOAD: &str = "there is no file to read again: the daemon is told everything on its command line; restart it with what is to change";

/// A running daemon.
pub(crate) struct Daemon {
    plan: RdsPlan,
    mirror: Awaited<Mirror>,
    door: Door,
    commands: SyncSender<Command>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    /// The thread has ended: something is sent when it has.
    ended: Receiver<()>,
    known: HubReport,
    confined: report::Sandbox,
    started: Instant,
}

/// An event of the control loop.
pub(crate) enum Woken {
    Mirror(Event),
    /// A program may want to be let in.
    Knocked,
    /// The thread has ended.
    Ended,
}

fn addresses_of(mirror: &Mirror, plan: &RdsPlan) -> Vec<IpAddr> {
    let tables = mirror.tables();
    let links = plan.interfaces.iter().filter_map(|name| tables.link_named(name));
    let addresses = links.flat_map(|link| tables.addresses(link.ifindex).map(|(address, _)| address));
    addresses.filter(|address| is_host(*address)).collect()
}

/// The keeper of a daemon that was killed, or a new one.
fn find_or_begin(plan: &RdsPlan) -> (Option<Keeper>, Found) {
    let path = keeper::path_beside(&plan.listen);
    if let Some((keeper, found)) = Keeper::find(&path) {
        return (Some(keeper), found);
    }
    let Some(begin) = plan.keeper else { return (None, Found::default()) };
    match Keeper::begin(|socket| begin(socket, &path)) {
        Ok(keeper) => (Some(keeper), Found::default()),
        Err(error) => {
            tracing::warn!("the sockets of programs will not outlive this daemon: {error}");
            (None, Found::default())
        }
    }
}

/// The tables of a daemon that was killed, or new ones, which are kept.
fn tables(
    (keeper, found): &mut (Option<Keeper>, Found),
    generation: u32,
) -> Result<(Positions, PortMaps), Errno> {
    if let Some((positions, maps)) = found.tables.take()
        && let (Ok(positions), Ok(maps)) = (Positions::of_fd(positions), PortMaps::of_fd(maps))
    {
        // Peers say it anew when they are connected.
        maps.clear();
        return Ok((positions, maps));
    }
    let (positions, maps) = (Positions::new(generation)?, PortMaps::new()?);
    if let Some(keeper) = keeper {
        keeper.keep_tables(positions.fd(), maps.fd())?;
    }
    Ok((positions, maps))
}

impl Daemon {
    pub(crate) fn start(plan: RdsPlan, socket_path: &Path) -> Result<Self, RdsError> {
        // Each socket of a program is a descriptor.
        raise_limit();
        let mirror = Awaited::new(Mirror::open(MirrorLimits::default())?)?;
        for name in &plan.interfaces {
            find_link(&mirror, name)?;
        }
        let listener = tcp_listener::listen(None, TCP_PORT, None).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => RdsError::PortInUse,
            _ => RdsError::Listen(error),
        })?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(std::io::Error::from)?;
        let door = Door::open(&plan.listen)?;
        let mut config = plan.config;
        if config.generation == 0 {
            // Another one than before, whichever was before: the clock counts from the start of the machine, and the number of
            // the process differs where it starts at once.
            let random = clock::now().as_nanos() ^ u64::from(std::process::id()) << 32;
            config.generation = (random ^ random >> 32) as u32 | 1;
        }
        let mut keeper = find_or_begin(&plan);
        let (positions, maps) = tables(&mut keeper, config.generation).map_err(std::io::Error::from)?;
        let needs = Needs {
            socket: socket_path.to_owned(),
            listeners: vec![door.path().to_owned()],
            ..Needs::default()
        };
        let confined = sandbox::enter(plan.sandbox, &needs);
        let (keeper, found) = keeper;
        config.generation = positions.generation();
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let wake = Arc::new(EventFd::new().map_err(std::io::Error::from)?);
        let mut hub =
            Hub::new(config, plan.limits, listener, received, Arc::clone(&wake), (keeper, positions, maps))
                .map_err(std::io::Error::from)?;
        let (end, ended) = once();
        let found = found.programs;
        hub.addresses = addresses_of(&mirror, &plan);
        let run = move || {
            panics::end_process_on_panic(|| {
                hub.recover(found);
                hub.run();
            });
            drop(hub);
            // Control may have ended before.
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name("rds".to_owned()).spawn(run)?;
        let known = HubReport { rds: report::Rds::default(), drops: Vec::new() };
        let thread = Some(thread);
        let started = clock::now();
        Ok(Self { plan, mirror, door, commands, wake, thread, ended, known, confined, started })
    }

    pub(crate) fn stop(mut self) {
        self.tell(Command::End);
        if let Some(thread) = self.thread.take() {
            // A panic has ended the process.
            let _ = thread.join();
        }
    }

    fn tell(&self, command: Command) {
        // The thread takes them all at once. If it has ended, there is nobody to tell.
        let _ = self.commands.send(command);
        self.wake.signal();
    }

    fn tell_addresses(&self) {
        self.tell(Command::Addresses(addresses_of(&self.mirror, &self.plan)));
    }

    fn let_in(&mut self) {
        while let Some(socket) = self.door.let_in() {
            let Ok(peer) = socket_kind::peer(&socket) else { continue };
            self.tell(Command::Program(socket, peer.user, peer.pid()));
        }
    }

    /// Asks the thread what there is.
    /// It answers between two turns, so this takes as long as one.
    fn look(&mut self) {
        let (answer, answered) = sync_channel(1);
        self.tell(Command::Report(answer));
        if let Ok(known) = answered.recv_timeout(ANSWER_WITHIN) {
            self.known = known;
        }
    }

    fn report_all(&self) -> Report {
        Report {
            instance: report::Instance {
                kind: report::InstanceKind::Rds,
                ports: vec![format!("tcp port {TCP_PORT}"), self.door.path().display().to_string()],
                ..report_process(self.started, 0, &self.confined)
            },
            rds: Some(self.known.rds.clone()),
            drops: self.known.drops.clone(),
            ..Report::default()
        }
    }

    fn answer_request(&self, request: &Request) -> Result<serde_json::Value, String> {
        match request {
            Request::Show(topic) => topic.of(&self.report_all()),
            Request::Reload => Err(NO_RELOAD.to_owned()),
            Request::Port(_) => Err(twinpath_observe::command::NO_SWITCH.to_owned()),
            Request::Connections(_) => Err(twinpath_observe::command::NO_SERVICES.to_owned()),
            Request::Capture(_)
            | Request::Sockets
            | Request::StandBy
            | Request::Drain(_)
            | Request::Measure
            | Request::Set(_) => {
                Err("the daemon of Reliable Datagram Sockets has no workers: `twinpath show rds` shows what it does".to_owned())
            }
        }
    }
}

impl Controlled for Daemon {
    type Event = Woken;
    type Error = RdsError;

    const NAME: &'static str = "the daemon of Reliable Datagram Sockets";
    const TAKES_CONNECTIONS: bool = false;

    async fn next(&mut self) -> Result<Woken, RdsError> {
        race!(
            async { Ok(Woken::Mirror(self.mirror.next().await?)) },
            async {
                self.door.knocked().await;
                Ok(Woken::Knocked)
            },
            async {
                let _ = self.ended.recv().await;
                Ok(Woken::Ended)
            },
        )
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Mirror(Event::Addresses { .. } | Event::Link(_) | Event::LinkGone { .. }) => {
                self.tell_addresses();
            }
            Woken::Mirror(Event::Renamed { from, to, .. }) => {
                let renamed = self.plan.interfaces.iter_mut().filter(|name| **name == from);
                renamed.for_each(|name| name.clone_from(&to));
            }
            Woken::Mirror(_) => {}
            Woken::Knocked => self.let_in(),
            Woken::Ended => return false,
        }
        true
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        self.look();
        // The client may have closed its connection.
        drop(answer.send(self.answer_request(&request)));
    }

    async fn connection(&mut self, request: Request, mut stream: UnixStream) {
        if let Err(why) = self.answer_request(&request) {
            // The client may have closed its connection.
            let _ = stream.write_all(&refusal(&why));
        }
    }

    fn report(&mut self) -> Report {
        self.look();
        self.report_all()
    }

    fn scrape(&mut self) -> Report {
        self.look();
        self.report_all()
    }

    async fn reload(&mut self) -> Result<Vec<String>, String> {
        notify::reloading();
        tracing::error!("not reloaded: {NO_RELOAD}");
        notify::ready();
        Err(NO_RELOAD.to_owned())
    }

    async fn end(&mut self, _within: Option<Duration>) -> bool {
        self.tell(Command::End);
        true
    }

    async fn finish_turn(&mut self) -> Result<bool, RdsError> {
        Ok(true)
    }
}
