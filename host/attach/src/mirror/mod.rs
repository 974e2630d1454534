//! The mirror of the kernel's tables, and questions to the kernel about the egress of peers.
//!
//! It runs on the control thread, and waits only for the kernel's answers: see [`Source`]. It subscribes
//! before it reads the tables, and reads them again when notifications were lost (counted). It makes no
//! routing decision itself: the kernel answers a route question per peer, and resolves and confirms
//! neighbours.

pub mod egress_book;
pub mod message;
pub mod table;

mod ask;
mod path_watch;
mod watch;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use twinpath_netlink::{NetlinkError, Source};
use twinpath_observe::report;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::{Egress, KernelReason, Update};
use twinpath_wire::TooBig;

use self::path_watch::{PathWatch, Said};
use self::table::{Change, Effect, Link, Tables};
use self::watch::{Heard, Watch};
use crate::mirror::egress_book::{BookCounters, BookLimits, EgressBook, Question, Step, lookup_interface};

/// Bounds of the mirror.
#[derive(Clone, Copy, Debug)]
pub struct MirrorLimits {
    /// Maximum number of neighbours; further ones are left out and counted.
    pub neighbours: usize,
    /// Size of the kernel's buffer of notifications, bytes. If it overflows, notifications are lost and the tables are
    /// read again, which is counted.
    pub notification_bytes: usize,
    /// Bounds of the peers and questions.
    pub book: BookLimits,
}

impl Default for MirrorLimits {
    fn default() -> Self {
        // A notification takes about 1 KiB of buffer: room for about two thousand.
        Self { neighbours: 16_384, notification_bytes: 2 * 1024 * 1024, book: BookLimits::default() }
    }
}

/// Events, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link appeared, or one of its properties changed.
    Link(Link),
    /// A link has another name; nothing else changed by that.
    Renamed {
        /// Its index.
        ifindex: u32,
        /// Name before.
        from: String,
        /// Name now.
        to: String,
    },
    /// A link is gone (removed, or moved to another namespace).
    LinkGone {
        /// Its index.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// The usable addresses of a link changed: see [`Tables::addresses`].
    Addresses {
        /// The link.
        ifindex: u32,
    },
    /// A neighbour's entry changed: see [`Tables::neighbour`].
    Neighbour {
        /// The link.
        ifindex: u32,
        /// The neighbour.
        address: IpAddr,
    },
    /// The strictness of the kernel's source check (`rp_filter`) may have changed.
    SourceCheck {
        /// The link; `None`: of all links.
        ifindex: Option<u32>,
    },
    /// A filter or a queueing discipline of a link may have changed.
    TrafficControl {
        /// The link.
        ifindex: u32,
    },
    /// Routes, rules, links or addresses changed, so the egress of replies may change. The update for
    /// workers follows as [`Event::Egress`] if they have anything to forget.
    Routes,
    /// An update for every worker.
    Egress(Update),
    /// A router says that a TCP segment was too long. Anybody can say so.
    TooBig(TooBig),
}

/// An error of the netlink sockets.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The socket could not be opened.
    #[error("{0}")]
    Open(#[source] NetlinkError),
    /// The buffer could not be set.
    #[error("cannot give the netlink socket a buffer of {bytes} bytes: {error}")]
    Buffer {
        /// Its size.
        bytes: usize,
        /// Why.
        error: io::Error,
    },
    /// The subscription failed.
    #[error("cannot subscribe to link, address, neighbour and route notifications: {0}")]
    Subscribe(#[source] NetlinkError),
    /// Notifications cannot be received any more.
    #[error("cannot read netlink notifications: {0}")]
    Receive(#[source] io::Error),
    /// A table could not be read.
    #[error("cannot read the kernel's tables: {0}")]
    Dump(#[source] NetlinkError),
}

/// Counters of the mirror, for `show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// How often notifications were lost and the tables read again.
    pub overruns: u64,
    /// Notifications that could not be decoded.
    pub undecoded: u64,
    /// Messages of routers about paths whose checksum was wrong.
    pub messages_damaged: u64,
    /// Neighbours left out because the table was full.
    pub neighbours_refused: u64,
    /// Neighbours that the kernel refused to resolve (because CAP_NET_ADMIN is missing).
    pub resolves_refused: u64,
    /// The counts of the book of peers.
    pub book: BookCounters,
}

/// Maximum number of route questions and datagrams that one [`Mirror::take`] handles, so that a flood of
/// them leaves the control thread time for other work.
const TURN_MAX: u32 = 64;

/// The mirror. It works only while events are taken from it.
pub struct Mirror {
    tables: Tables,
    book: EgressBook,
    watch: Watch,
    paths: PathWatch,
    kernel: ask::Kernel,
    /// The last turn has left something to do.
    has_more: bool,
    events: VecDeque<Event>,
    effects: Vec<Effect>,
    overruns: u64,
    messages_damaged: u64,
    resolves_refused: u64,
}

impl Mirror {
    /// Subscribes and reads the tables, in the calling thread's network namespace. Needs no capability.
    ///
    /// # Errors
    /// Any step that failed, by name.
    pub fn open(limits: MirrorLimits) -> Result<Self, MirrorError> {
        let watch = Watch::open(limits.notification_bytes)?;
        let kernel = ask::Kernel::open()?;
        let mut tables = Tables::new(limits.neighbours);
        tables.replace(kernel.dump()?, &mut Vec::new());
        Ok(Self {
            tables,
            book: EgressBook::new(limits.book),
            watch,
            paths: PathWatch::closed(),
            kernel,
            has_more: false,
            events: VecDeque::new(),
            effects: Vec::new(),
            overruns: 0,
            messages_damaged: 0,
            resolves_refused: 0,
        })
    }

    /// The tables, including all events taken so far, and perhaps later ones.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// From now on observes the paths that the kernel learns, if this process has CAP_NET_RAW. Without it,
    /// a change is noticed when a worker asks again after [`BookLimits::refresh`].
    #[must_use]
    pub fn hearing_of_paths(self) -> Self {
        Self { paths: PathWatch::open(), ..self }
    }

    /// Sets the interfaces that are served on a fast path: the kernel sends replies by all others.
    pub fn serve_on(&mut self, ifindexes: impl IntoIterator<Item = u32>) {
        self.book.serve_on(ifindexes);
    }

    /// A worker asks for the egress of `peer`, or still uses it; `source` is the source address of replies,
    /// if policy routing should use it. The answer arrives as [`Event::Egress`]. Until then, and if the
    /// route is not plain, the kernel's socket serves.
    pub fn ask(&mut self, peer: IpAddr, source: Option<IpAddr>) {
        self.book.ask(peer, source, clock::now(), &self.tables);
    }

    /// The next event until that time; `None`: there is none. Blocks the calling thread; a control loop
    /// waits for the descriptors instead ([`Source`]).
    ///
    /// # Errors
    /// The netlink socket failed; the tables stay as they are.
    pub fn next_by(&mut self, until: Instant) -> Result<Option<Event>, MirrorError> {
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            if clock::now() >= until {
                return Ok(None);
            }
            self.watch.wait(self.deadline().map_or(until, |deadline| deadline.min(until)))?;
        }
    }

    /// The egress of one peer. Blocks the calling thread for at most `patience`, until its neighbour is
    /// resolved. Events in that time are kept.
    ///
    /// # Errors
    /// The reason why the kernel's socket must be used.
    pub fn resolve(
        &mut self,
        peer: IpAddr,
        source: Option<IpAddr>,
        patience: Duration,
    ) -> Result<Egress, KernelReason> {
        let until = clock::now() + patience;
        let mut kept = VecDeque::new();
        self.ask(peer, source);
        let answer = loop {
            match self.next_by(until) {
                Ok(Some(event)) => {
                    let forgotten = event == Event::Egress(Update::Clear)
                        || event == Event::Egress(Update::Forget { peer });
                    kept.push_back(event);
                    // The routes changed meanwhile, and there are no workers that ask again.
                    if forgotten {
                        self.ask(peer, source);
                    }
                }
                Ok(None) => break self.book.told(peer).unwrap_or(Err(KernelReason::Unknown)),
                Err(_) => break Err(KernelReason::Unknown),
            }
            match self.book.told(peer) {
                None | Some(Err(KernelReason::Unknown)) => {}
                Some(Err(reason)) if reason.is_unresolved() => {}
                Some(answer) => break answer,
            }
        };
        kept.append(&mut self.events);
        self.events = kept;
        answer
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> MirrorCounters {
        MirrorCounters {
            overruns: self.overruns,
            undecoded: self.watch.undecoded(),
            messages_damaged: self.messages_damaged,
            neighbours_refused: self.tables.neighbours_refused(),
            resolves_refused: self.resolves_refused,
            book: self.book.counters(),
        }
    }

    /// The peers and their egress, for `show`.
    #[must_use]
    pub fn report(&self) -> Vec<report::Neighbour> {
        self.book.report(&self.tables)
    }

    fn changed(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.tables.apply(change, &mut self.effects);
        }
        self.take_effects();
    }

    /// Reads everything again after lost notifications.
    fn overrun(&mut self) -> Result<(), MirrorError> {
        self.overruns += 1;
        tracing::warn!(
            times = self.overruns,
            "netlink notifications were lost: reading links, addresses and neighbours again"
        );
        self.watch.drop_stale()?;
        self.tables.replace(self.kernel.dump()?, &mut self.effects);
        // These are in no table, and notifications of them may be among the lost ones.
        self.effects.push(Effect::SourceCheck(None));
        self.effects.extend(self.tables.links().map(|link| Effect::TrafficControl(link.ifindex)));
        self.take_effects();
        Ok(())
    }

    fn take_effects(&mut self) {
        let mut routes = false;
        for effect in std::mem::take(&mut self.effects) {
            self.events.push_back(match effect {
                Effect::Link(link) => Event::Link(link),
                Effect::Renamed { ifindex, from, to } => Event::Renamed { ifindex, from, to },
                Effect::LinkGone { ifindex, name } => Event::LinkGone { ifindex, name },
                Effect::Addresses(ifindex) => Event::Addresses { ifindex },
                Effect::Neighbour(ifindex, address) => {
                    self.book.neighbour_changed(ifindex, address, clock::now(), &self.tables);
                    Event::Neighbour { ifindex, address }
                }
                Effect::SourceCheck(ifindex) => Event::SourceCheck { ifindex },
                Effect::TrafficControl(ifindex) => Event::TrafficControl { ifindex },
                Effect::Routes => {
                    routes = true;
                    continue;
                }
            });
        }
        // Once per batch: one update is enough for a thousand routes that change together.
        if routes {
            self.book.routes_changed();
            self.events.push_back(Event::Routes);
        }
    }

    fn take_steps(&mut self) {
        for _ in 0..TURN_MAX {
            match self.book.step() {
                Some(Step::Tell(update)) => self.events.push_back(Event::Egress(update)),
                Some(Step::Resolve { ifindex, next_hop }) => {
                    if let Err(error) = self.kernel.resolve(ifindex, next_hop) {
                        self.resolves_refused += 1;
                        tracing::debug!("{error}");
                    }
                }
                Some(Step::AskRoute(question)) => {
                    let Question { peer, source, .. } = question;
                    let answer = lookup_interface(peer, self.book.fast(), &self.tables)
                        .and_then(|interface| self.kernel.route(peer, source, interface));
                    self.book.route_answered(question, answer, clock::now(), &self.tables);
                }
                None => return,
            }
        }
        self.has_more = true;
    }

    /// Does one piece of work that is due; false if there is none.
    fn turn(&mut self, now: Instant) -> Result<bool, MirrorError> {
        if self.book.deadline().is_some_and(|due| due <= now) {
            self.book.act(now);
            return Ok(true);
        }
        match self.watch.take()? {
            Heard::Changes(changes) => self.changed(changes),
            Heard::Overrun => self.overrun()?,
            Heard::Nothing => {
                // Without peers nobody needs this.
                let said = if self.book.is_empty() { None } else { self.paths.take(now) };
                let Some(Said { peer, too_big, is_damaged }) = said else { return Ok(false) };
                self.messages_damaged += u64::from(is_damaged);
                self.events.extend(too_big.map(Event::TooBig));
                self.book.path_changed(peer, now);
            }
        }
        Ok(true)
    }
}

impl Source for Mirror {
    type Event = Event;
    type Error = MirrorError;

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.watch.as_fd()).chain(self.paths.descriptors()).collect()
    }

    fn is_watched(&self, descriptor: usize) -> bool {
        // Anybody can send the messages that announce paths.
        descriptor == 0
            || (!self.book.is_empty() && !self.paths.has_ended() && self.paths.deadline().is_none())
    }

    fn deadline(&self) -> Option<Instant> {
        if self.has_more {
            return Some(Instant::ZERO);
        }
        let paths = self.paths.deadline().filter(|_| !self.book.is_empty());
        [self.book.deadline(), paths].into_iter().flatten().min()
    }

    /// # Errors
    /// The netlink socket failed; the tables stay as they are.
    fn take(&mut self) -> Result<Option<Event>, MirrorError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        // Notifications come before questions, because they may invalidate the answers.
        self.has_more = true;
        let overruns = self.overruns;
        for _ in 0..TURN_MAX {
            if !self.turn(clock::now())? {
                self.has_more = false;
                break;
            }
            // Reading everything again takes long, and may be due again immediately: other work gets its
            // turn in between.
            if self.overruns != overruns {
                break;
            }
        }
        self.take_steps();
        Ok(self.events.pop_front())
    }
}
