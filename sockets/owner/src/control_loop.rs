//! The control loop of an owner: its events, the requests that it answers, its start and its end.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, socket};
use twinpath_attach::mirror::{Event, Mirror, MirrorLimits};
use twinpath_attach::path::{Announced, Announcements, bypassed};
use twinpath_attach::{LeasedInterface, Load, find_link, hosts};
use twinpath_host::machine::Answer;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_host::{Awaited, Controlled, Door, notify};
use twinpath_inspect::Counter;
use twinpath_observe::command::{Request, refusal};
use twinpath_observe::report::Report;
use twinpath_observe::together::first_of;
use twinpath_sys::descriptors::raise_limit;
use twinpath_sys::event_loop::sleep_until;
use twinpath_sys::socket_kind::network_namespace;
use twinpath_sys::{clock, race};
use twinpath_time::Duration;

use crate::budget::Budget;
use crate::program::Program;
use crate::take_over::{Former, take_over};
use crate::{
    HANDED_BURST, HANDED_EVERY, LENT_EVERY, OPENED_EVERY, Owner, OwnerError, OwnerPlan, PROGRAMS_MAX, Refused,
};
use twinpath_host::aside;

/// An event of the control loop.
pub(crate) enum Woken {
    Mirror(Event),
    Announced(Announced),
    /// A program may want to be let in.
    Knocked,
    /// This program has said something, or ended.
    Program(u64),
    /// This program has had no lease for a while.
    Unused(u64),
    /// A new owner serves, or does not.
    Taker,
}

impl Controlled for Owner {
    type Event = Woken;
    type Error = OwnerError;

    const NAME: &'static str = "the owner of an interface";
    const TAKES_CONNECTIONS: bool = true;

    async fn next(&mut self) -> Result<Woken, OwnerError> {
        if let Some(taker) = &self.taker {
            // The programs are the other owner's.
            taker.speaks().await;
            return Ok(Woken::Taker);
        }
        let programs = &self.programs;
        let stirs = async {
            // The first one that is ready wins.
            let next = programs.iter().position(|program| program.number > self.heard).unwrap_or(0);
            let (before, from_next) = programs.split_at(next);
            first_of(from_next.iter().chain(before).map(async |program| {
                program.stirs().await;
                program.number
            }))
            .await
        };
        let unused =
            programs.iter().filter_map(|program| Some((program.gives_number_back_at()?, program.number)));
        let unused = unused.min();
        let is_unused = async {
            let Some((when, number)) = unused else { return std::future::pending().await };
            sleep_until(when).await;
            number
        };
        race!(
            async { Ok(Woken::Mirror(self.mirror.next().await?)) },
            async {
                match self.announcements.next().await {
                    Ok(announced) => Ok(Woken::Announced(announced)),
                    Err(never) => match never {},
                }
            },
            async {
                aside::catches_up().await;
                self.door.knocked().await;
                Ok(Woken::Knocked)
            },
            async { Ok(Woken::Program(stirs.await)) },
            async { Ok(Woken::Unused(is_unused.await)) },
        )
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Mirror(event) => self.kernel_says(&event),
            Woken::Announced(Announced::Policies) => self.look_at_bypassed(),
            Woken::Announced(Announced::Device) => {}
            Woken::Knocked => self.let_in(),
            Woken::Program(number) => {
                self.heard = number;
                self.attend(number);
            }
            Woken::Unused(number) => self.take_unused_number(number),
            Woken::Taker => return self.taker_spoke(),
        }
        true
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        // The client may have closed its connection.
        drop(answer.send(self.answer_request(&request)));
    }

    async fn connection(&mut self, request: Request, mut stream: UnixStream) {
        if request == Request::Sockets {
            self.hand_over(stream);
        } else if let Err(why) = self.answer_request(&request) {
            // The client may have closed its connection.
            let _ = stream.write_all(&refusal(&why));
        }
    }

    fn report(&mut self) -> Report {
        self.report_all()
    }

    fn scrape(&mut self) -> Report {
        self.report_all()
    }

    async fn reload(&mut self) -> Result<Vec<String>, String> {
        notify::reloading();
        tracing::error!("not reloaded: {NO_RELOAD}");
        notify::ready();
        Err(NO_RELOAD.to_owned())
    }

    async fn end(&mut self, _within: Option<Duration>) -> bool {
        false
    }

    async fn finish_turn(&mut self) -> Result<bool, OwnerError> {
        // The owner of one program ends with the last of its children.
        Ok(!self.door.is_closed() || !self.programs.is_empty())
    }
}

/// The answer to a request to read the configuration again.
const NO_RELOAD: &str = "there is no file to read again: an owner is told everything on its command line; restart it with what is to change";

impl Owner {
    pub(crate) async fn start(mut plan: OwnerPlan, socket_path: &Path) -> Result<Self, OwnerError> {
        plan.limits.programs = plan.limits.programs.clamp(1, PROGRAMS_MAX);
        // A program can send up to 253 in one message.
        raise_limit();
        // An owner of one program is started when the program asks. Any other opens the interface now, so that a
        // mistake is reported immediately, and not to the first program.
        let limits = plan.limits;
        let leased = if plan.passed.is_some() {
            // Its program runs meanwhile, and may need all CPUs.
            let load = Load::WhenIdle;
            let (programs, sockets) = (limits.programs, limits.sockets_per_program);
            Some(LeasedInterface::open_for_others(&plan.interface, programs, sockets, load)?)
        } else {
            drop(LeasedInterface::open_for_others(&plan.interface, 1, 1, Load::AtOnce)?);
            None
        };
        let mirror = Awaited::new(Mirror::open(MirrorLimits::default())?)?;
        let announcements = Awaited::new(Announcements::open())?;
        let link = find_link(&mirror, &plan.interface).map_err(twinpath_attach::LeaseError::from)?;
        let own = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(std::io::Error::from)?;
        let namespace = network_namespace(own.as_fd())?;
        let (former, door, programs) = match &plan.take_over {
            Some(from) => {
                let (former, door, programs) = take_over(from, &plan.interface)?.into_parts();
                (Some(former), door, programs)
            }
            None => {
                let door = plan.passed.as_ref().map(|passed| Door::passed(&passed.from));
                (None, door.unwrap_or_else(|| Door::open(&plan.listen))?, Vec::new())
            }
        };
        let needs = Needs {
            socket: socket_path.to_owned(),
            listeners: plan.passed.is_none().then(|| door.path().to_owned()).into_iter().collect(),
            ..Needs::default()
        };
        let confined = sandbox::enter(plan.sandbox, &needs);
        let next_number = programs.len() as u64;
        let openings = Budget::new(limits.programs_per_user.saturating_mul(2), OPENED_EVERY);
        let lendings = Budget::new(limits.sockets_per_user.saturating_mul(2), LENT_EVERY);
        if let Some(former) = former {
            Former::ends(&former)?;
        }
        let mut owner = Self {
            plan,
            mirror,
            announcements,
            door,
            namespace,
            ifindex: Some(link.ifindex),
            programs,
            leased,
            heard: 0,
            next_number,
            refused: Refused::default(),
            unread: Counter::default(),
            openings,
            lendings,
            handings: Budget::new(HANDED_BURST, HANDED_EVERY),
            taker: None,
            confined,
            started: clock::now(),
        };
        // What was announced while a former owner passed its programs on.
        owner.look_at_bypassed();
        Ok(owner)
    }

    fn answer_request(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        match request {
            Request::Show(topic) => topic.of(&self.report_all()),
            Request::Reload => Err(NO_RELOAD.to_owned()),
            Request::Port(_) => Err(twinpath_observe::command::NO_SWITCH.to_owned()),
            Request::Connections(_) => Err(twinpath_observe::command::NO_SERVICES.to_owned()),
            Request::Capture(_) => Err(
                "the owner of an interface has no captures: what programs receive does not come through it"
                    .to_owned(),
            ),
            Request::Sockets | Request::StandBy | Request::Drain(_) | Request::Measure | Request::Set(_) => {
                Err("the owner of an interface has no workers and serves nothing itself".to_owned())
            }
        }
    }

    fn kernel_says(&mut self, event: &Event) {
        match event {
            Event::Link(link) if self.ifindex == Some(link.ifindex) => {
                self.addresses_changed();
                self.look_at_bypassed();
            }
            Event::SourceCheck { ifindex } if ifindex.is_none() || *ifindex == self.ifindex => {
                self.look_at_bypassed();
            }
            Event::Routes if bypassed::has_loose_source_check(&self.plan.interface) => {
                self.look_at_bypassed();
            }
            Event::Link(link) if self.ifindex.is_none() && link.name == self.plan.interface => {
                tracing::info!("{} is back", link.name);
                self.ifindex = Some(link.ifindex);
            }
            Event::Addresses { ifindex } => {
                self.addresses_changed();
                if self.ifindex == Some(*ifindex) {
                    self.look_at_bypassed();
                }
            }
            Event::Renamed { ifindex, to, .. } if self.ifindex == Some(*ifindex) => {
                tracing::info!("{} is now called {to}", self.plan.interface);
                self.plan.interface.clone_from(to);
            }
            Event::LinkGone { ifindex, .. } if self.ifindex == Some(*ifindex) => {
                tracing::info!("{} is gone: the kernel serves all programs", self.plan.interface);
                self.ifindex = None;
                self.programs.iter().for_each(Program::hang_up);
                self.programs.clear();
                self.leased = None;
            }
            _ => {}
        }
    }

    /// Frames to addresses that the interface has got since are for programs as well, and those from addresses that the host has got on
    /// any interface are the kernel's to judge.
    fn addresses_changed(&mut self) {
        let tables = self.mirror.tables();
        let Some(link) = self.ifindex.and_then(|ifindex| tables.link(ifindex)) else { return };
        let Some(mac) = link.mac else { return };
        let addresses: Vec<_> = tables.addresses(link.ifindex).map(|(address, _)| address).collect();
        let Some(interface) = &mut self.leased else { return };
        if let Err(error) = interface.set_addresses(mac, addresses, &hosts(tables)) {
            tracing::error!("{}: the change of its addresses is not in force: {error}", self.plan.interface);
        }
    }
}
