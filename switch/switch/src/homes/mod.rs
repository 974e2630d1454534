//! The network namespaces that a switch has ports in: each with a mirror of its links, and with what its interfaces that are
//! ports have in common.
//!
//! A namespace is opened with the first port in it. [`Homes::give_back_unused`] gives it back with the last one: nothing of
//! it is held any more, except for the queues, which workers still have. Queues are named by the number of their set, which
//! no other set has until the last of them has come back ([`Homes::queue_is_back`]). A namespace that has a port again
//! before that is opened anew, and gets queues with another number.
//!
//! Never here: ports themselves, workers, snapshots. All calls are made on the control thread.

mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use slab::Slab;
use twinpath_attach::mirror::table::{Link, Tables};
use twinpath_attach::mirror::{Event, Mirror, MirrorError, MirrorLimits};
use twinpath_attach::path::XdpAnnouncements;
use twinpath_attach::path::forwarding::takes_redirected;
use twinpath_attach::{AttachError, PlacedQueue, PortSet, PortSetPlan, ReceiveThread};
use twinpath_bpf::{Keep, KeepError, KeepPlan, KeptEntry, Offload, Unserved};
use twinpath_host::{Awaited, readable_copy, until_readable};
use twinpath_observe::together::first_of;
use twinpath_port::{CarriedPort, PORTS_MAX, PortId};
use twinpath_sys::event_loop::Watched;
use twinpath_sys::netns::{NetnsError, Visit};
use twinpath_sys::{Namespace, clock, race};
use twinpath_time::{Duration, Instant};
use twinpath_vxlan::{OpenError, UdpPorts, VxlanConfig, VxlanPort};

/// Numbers of sets of queues. With those of ports they fit into 16 bits, and the last one stays unused.
const SETS_MAX: u16 = u16::MAX - PORTS_MAX as u16;

/// A namespace.
struct Home {
    /// As it is named for its ports; `None`: our own.
    name: Option<String>,
    namespace: Namespace,
    mirror: Awaited<Mirror>,
    /// What its interfaces that are ports have in common, while there are any.
    interfaces: Option<Interfaces>,
    /// The UDP ports of its VXLAN ports.
    udp_ports: UdpPorts,
}

/// What the interfaces of a namespace that are ports have in common.
struct Interfaces {
    set: PortSet,
    /// The number by which its queues are named.
    number: u16,
    /// The queues that carry them, one for each worker, until the workers get them.
    queues: Vec<PlacedQueue>,
    /// Readable when a worker was found stuck.
    stuck: Option<Watched<OwnedFd>>,
    /// What drivers can do with XDP, once one forwards frames.
    xdp: Option<Awaited<XdpAnnouncements>>,
}

/// Why a network namespace could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the sources say it")]
pub enum HomeError {
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    #[error("cannot wait for the kernel's notifications: {0}")]
    Wait(#[source] io::Error),
}

/// Why an interface could not be made a port.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the sentences say it")]
pub enum HoldError {
    #[error("{0}")]
    Attach(#[from] AttachError),
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    #[error("cannot hold a descriptor a second time: {0}; raise the limit of open files (ulimit -n)")]
    Descriptor(#[from] std::io::Error),
    #[error("{0}")]
    Keep(#[from] KeepError),
    #[error("all numbers of queues are in use until workers have given some back: try again")]
    Numbers,
}

/// What was heard of a namespace.
pub enum Heard {
    /// What the kernel has announced.
    Kernel(Event),
    /// A worker does not look at its frames.
    Stuck,
    /// Drivers may take frames of XDP programs from now on, or no longer.
    Xdp,
}

impl Home {
    /// Moves the thread there while the result lives; nothing to do for our own.
    fn visit(&self) -> Result<Option<Visit>, NetnsError> {
        self.name.is_some().then(|| self.namespace.visit()).transpose()
    }

    fn set(&self) -> Option<&PortSet> {
        self.interfaces.as_ref().map(|interfaces| &interfaces.set)
    }

    async fn next(&mut self) -> Result<Heard, MirrorError> {
        let (stuck, xdp) = match &mut self.interfaces {
            Some(Interfaces { stuck, xdp, .. }) => (stuck.as_ref(), xdp.as_mut()),
            None => (None, None),
        };
        race!(
            async { Ok(Heard::Kernel(self.mirror.next().await?)) },
            async {
                until_readable(stuck).await;
                Ok(Heard::Stuck)
            },
            async {
                match xdp {
                    Some(announcements) => match announcements.next().await {
                        Ok(()) => Ok(Heard::Xdp),
                        Err(never) => match never {},
                    },
                    None => std::future::pending().await,
                }
            },
        )
    }
}

/// An interface that is a port now.
pub struct Held {
    /// The queues that are to carry it, if they have just been made: the workers get them first.
    pub queues: Vec<PlacedQueue>,
    /// For each worker the name of the queue that is to carry it, and what it is there.
    pub ports: Vec<(PortId, CarriedPort)>,
}

/// All of them; the first is our own.
pub struct Homes {
    all: Slab<Home>,
    /// The numbers of sets of queues that are in use, each with how many of its queues workers have still to give back, once
    /// they have been asked to.
    numbers: BTreeMap<u16, Option<usize>>,
    /// How often notifications were lost in namespaces that have been given back.
    overruns: u64,
    /// What outlives the process, and for how long flows go on, if they do.
    keep: Option<(Keep, Duration)>,
    /// The interfaces that [`Self::set_up`] has set down.
    down: BTreeSet<(HomeAt, u32)>,
}

/// Entries by which the kernel may forward frames in a namespace.
pub struct HomeOffload {
    /// The place of the namespace.
    pub home: HomeAt,
    /// The entries.
    pub offload: Offload,
    /// Those that a former process has left.
    pub left: Vec<KeptEntry>,
}

/// A namespace that has no interface any more that is a port. Its entries are void.
pub struct Emptied {
    /// Its place, which another one may have from now on.
    pub home: HomeAt,
    /// The number of its queues, for [`Homes::awaits`].
    pub number: u16,
}

impl Emptied {
    /// The name of the queue that a worker had for its interfaces, which the worker has to give back.
    #[must_use]
    pub const fn queue(&self, worker: usize) -> PortId {
        carrier(self.number, worker)
    }
}

/// The place of a namespace among those known.
pub type HomeAt = usize;

/// The place of our own.
const OWN: HomeAt = 0;

/// The name of a worker's queue for the interfaces of a set.
const fn carrier(number: u16, worker: usize) -> PortId {
    PortId { port: PORTS_MAX as u16 + number, queue: worker as u16 }
}

/// The number of the set that a queue is of; `None`: it is the queue of one port.
fn set_of(queue: PortId) -> Option<u16> {
    queue.port.checked_sub(PORTS_MAX as u16)
}

/// A mirror of the calling thread's network namespace.
fn open_mirror() -> Result<Awaited<Mirror>, HomeError> {
    Awaited::new(Mirror::open(MirrorLimits::default())?).map_err(HomeError::Wait)
}

impl Homes {
    /// Our own namespace alone. `keep`: what outlives the process, and for how long flows go on.
    ///
    /// # Errors
    /// [`HomeError`].
    pub async fn own(keep: Option<(Keep, Duration)>) -> Result<Self, HomeError> {
        let (namespace, mirror) = (Namespace::own()?, open_mirror()?);
        let own = Home { name: None, namespace, mirror, interfaces: None, udp_ports: UdpPorts::default() };
        let mut all = Slab::new();
        all.insert(own);
        Ok(Self { all, numbers: BTreeMap::new(), overruns: 0, keep, down: BTreeSet::new() })
    }

    /// The place of a namespace, which is opened if it is not known; it stays until [`Self::give_back_unused`] finds no port in
    /// it.
    ///
    /// # Errors
    /// [`HomeError`].
    pub async fn at(&mut self, name: Option<&str>) -> Result<HomeAt, HomeError> {
        let Some(name) = name else { return Ok(OWN) };
        let namespace = match Namespace::named(name) {
            Ok(namespace) => namespace,
            // The process by which it was found may be gone, or closed to a confined one.
            Err(error) => {
                let known = self.find(|home| home.name.as_deref() == Some(name));
                return known.ok_or_else(|| error.into());
            }
        };
        // It may be known by another name, or be our own.
        if let Some(at) = self.find(|home| home.namespace.is_same(&namespace)) {
            return Ok(at);
        }
        let mirror = {
            // Nothing else runs on this thread until its sockets are there: they stay in the namespace.
            let _visit = namespace.visit()?;
            open_mirror()?
        };
        let name = Some(name.to_owned());
        let udp_ports = UdpPorts::default();
        Ok(self.all.insert(Home { name, namespace, mirror, interfaces: None, udp_ports }))
    }

    fn find(&self, is_it: impl Fn(&Home) -> bool) -> Option<HomeAt> {
        self.all.iter().find(|(_, home)| is_it(home)).map(|(at, _)| at)
    }

    /// The links of a namespace.
    pub fn tables(&self, at: HomeAt) -> &Tables {
        self.all[at].mirror.tables()
    }

    /// A link of a namespace as last heard.
    pub fn link(&self, at: HomeAt, ifindex: u32) -> Option<&Link> {
        self.tables(at).link(ifindex)
    }

    /// Makes an interface ready to be a port of that number. `plan` is for the set that it belongs to, if that is yet to be made;
    /// the set gets a number here.
    ///
    /// # Errors
    /// [`HoldError`].
    pub fn hold(
        &mut self,
        at: HomeAt,
        plan: PortSetPlan,
        (number, ifindex): (u16, u32),
    ) -> Result<Held, HoldError> {
        let _visit = self.all[at].visit()?;
        let Self { all, numbers, keep, .. } = self;
        let home = &mut all[at];
        let interfaces = match &mut home.interfaces {
            Some(interfaces) => interfaces,
            None => {
                let keep = keep.as_ref().map(|(keep, duration)| {
                    Ok::<_, KeepError>(KeepPlan { folder: keep.home()?, keep: *duration, now: clock::now() })
                });
                let keep = keep.transpose()?;
                let number = (0..SETS_MAX).find(|number| !numbers.contains_key(number));
                let number = number.ok_or(HoldError::Numbers)?;
                let (set, queues) = PortSet::open(PortSetPlan { number, ..plan }, keep.as_ref())?;
                let stuck = set.stuck().map(readable_copy).transpose()?;
                numbers.insert(number, None);
                home.interfaces.insert(Interfaces { set, number, queues, stuck, xdp: None })
            }
        };
        interfaces.set.attach(ifindex)?;
        let Interfaces { set, number: of_set, queues, .. } = interfaces;
        let ports = match set.ports(number, ifindex) {
            Ok(ports) => ports,
            Err(error) => {
                set.detach(ifindex)?;
                return Err(error.into());
            }
        };
        let ports =
            ports.into_iter().enumerate().map(|(worker, port)| (carrier(*of_set, worker), port)).collect();
        Ok(Held { queues: std::mem::take(queues), ports })
    }

    /// Gives back what no port needs any more; `ports` says where each one is, and whether it is on an interface. A
    /// namespace without ports is forgotten. One without interfaces that are ports loses what these had in common.
    /// Workers have to give back the queues of the returned ones.
    pub fn give_back_unused(&mut self, ports: impl IntoIterator<Item = (HomeAt, bool)>) -> Vec<Emptied> {
        let mut used = BTreeMap::<HomeAt, bool>::new();
        for (at, is_interface) in ports {
            *used.entry(at).or_default() |= is_interface;
        }
        let mut emptied = Vec::new();
        for (at, home) in &mut self.all {
            if used.get(&at) != Some(&true)
                && let Some(Interfaces { mut set, number, .. }) = home.interfaces.take()
            {
                // With `keep`, what would outlive the process goes as well.
                if let Err(error) = set.detach_all() {
                    tracing::warn!("the kernel has interfaces again as the programs go: {error}");
                }
                emptied.push(Emptied { home: at, number });
            }
        }
        self.all.retain(|at, home| {
            let stays = at == OWN || used.contains_key(&at);
            if !stays {
                self.overruns += home.mirror.counters().overruns;
            }
            stays
        });
        emptied
    }

    /// Workers were asked for this many queues with that number. Nothing else gets the number until the last of them is
    /// back.
    pub fn awaits(&mut self, number: u16, queues: usize) {
        if queues == 0 {
            self.numbers.remove(&number);
        } else {
            self.numbers.insert(number, Some(queues));
        }
    }

    /// A worker has given back a queue. Returns whether it was one for the interfaces of a namespace.
    pub fn queue_is_back(&mut self, queue: PortId) -> bool {
        let Some(number) = set_of(queue) else { return false };
        // One of a set that is in use was given back unasked.
        if let Some(Some(awaited)) = self.numbers.get_mut(&number) {
            *awaited -= 1;
            if *awaited == 0 {
                self.numbers.remove(&number);
            }
        }
        true
    }

    /// Has the workers get the frames of an interface that is held.
    pub fn claim(&mut self, at: HomeAt, ifindex: u32, unserved: Unserved) -> Result<(), AttachError> {
        self.set_mut(at).map_or(Ok(()), |set| set.claim(ifindex, unserved))
    }

    /// Whether the kernel may forward frames of a namespace's interfaces, which the first of them has decided.
    pub fn has_entries(&self, at: HomeAt) -> bool {
        self.all[at].set().is_some_and(PortSet::has_entries)
    }

    /// Has the driver of an interface that is a port forward the frames that it can.
    pub fn attach_xdp(&mut self, at: HomeAt, ifindex: u32) -> Result<(), HoldError> {
        let _visit = self.all[at].visit()?;
        let Some(Interfaces { set, xdp, .. }) = &mut self.all[at].interfaces else { return Ok(()) };
        // First what can fail without a trace.
        let announced = xdp.is_none().then(|| Awaited::new(XdpAnnouncements::open())).transpose()?;
        set.attach_xdp(ifindex)?;
        if announced.is_some() {
            *xdp = announced;
        }
        Ok(())
    }

    /// Whether an interface takes frames that drivers forward to it; not if none does.
    pub fn takes_xdp(&self, at: HomeAt, ifindex: u32) -> bool {
        if self.all[at].interfaces.as_ref().is_none_or(|interfaces| interfaces.xdp.is_none()) {
            return false;
        }
        self.run(at, || takes_redirected(ifindex)).ok().flatten().unwrap_or(false)
    }

    /// The entries by which the kernel may forward frames in each namespace, once. All ports are held that are to be at first.
    pub fn take_offloads(&mut self) -> Vec<HomeOffload> {
        let sets =
            self.all.iter_mut().filter_map(|(at, home)| Some((at, &mut home.interfaces.as_mut()?.set)));
        let take = |(home, set): (HomeAt, &mut PortSet)| {
            let left = set.has_started();
            let left = left.map_err(|error| tracing::error!("flows of the former process end: {error}"));
            Some(HomeOffload { home, offload: set.take_offload()?, left: left.unwrap_or_default() })
        };
        sets.filter_map(take).collect()
    }

    /// Removes what a former process has left of namespaces that have no ports now.
    pub fn keep_no_others(&self) {
        let Some((keep, _)) = &self.keep else { return };
        let homes = self.sets().filter_map(|set| Some(set.folder()?.to_owned()));
        if let Err(error) = keep.retain(&homes.collect::<Vec<_>>()) {
            tracing::warn!(
                "something of the former process is left, and does nothing once its time is over: {error}"
            );
        }
    }

    /// The folder of what outlives the process.
    pub fn kept(&self) -> Option<&Path> {
        self.keep.as_ref().map(|(keep, _)| keep.folder())
    }

    /// Undoes [`Self::hold`].
    pub fn take_back(&mut self, at: HomeAt, ifindex: u32, held: Held) -> Result<(), AttachError> {
        if let Some(interfaces) = &mut self.all[at].interfaces {
            interfaces.queues.extend(held.queues);
        }
        self.let_go(at, ifindex)
    }

    /// Runs something in a namespace.
    pub fn run<T>(&self, at: HomeAt, what: impl FnOnce() -> T) -> Result<T, NetnsError> {
        let _visit = self.all[at].visit()?;
        Ok(what())
    }

    /// Opens a VXLAN port with its sockets in a namespace.
    pub fn open_vxlan(
        &mut self,
        at: HomeAt,
        config: &VxlanConfig,
    ) -> Result<Result<VxlanPort, OpenError>, NetnsError> {
        let _visit = self.all[at].visit()?;
        Ok(VxlanPort::open(config, &mut self.all[at].udp_ports))
    }

    /// Sets an interface that is up down, so that the other end of its link sees no carrier, or one that is down up. What was set
    /// down here is set up again when the kernel gets the interface back.
    ///
    /// # Errors
    /// The kernel refuses; the interface may be gone.
    pub fn set_up(&mut self, at: HomeAt, ifindex: u32, up: bool) -> io::Result<()> {
        self.run(at, || link::set_up(ifindex, up)).map_err(io::Error::other)?.map_err(io::Error::from)?;
        if up {
            self.down.remove(&(at, ifindex));
        } else {
            self.down.insert((at, ifindex));
        }
        Ok(())
    }

    /// Sets up what [`Self::set_up`] has set down.
    fn set_up_again(&mut self, at: HomeAt, ifindex: u32) {
        if self.down.remove(&(at, ifindex))
            && let Some(name) = self.link(at, ifindex).map(|link| link.name.clone())
            && let Err(error) = self.set_up(at, ifindex, true)
        {
            tracing::warn!("{name} stays down: {error}");
        }
    }

    /// Gives an interface back to the kernel; it may be gone.
    pub fn let_go(&mut self, at: HomeAt, ifindex: u32) -> Result<(), AttachError> {
        self.set_up_again(at, ifindex);
        self.set_mut(at).map_or(Ok(()), |set| set.detach(ifindex))
    }

    /// Gives all interfaces back, or leaves them to the programs by which flows go on.
    pub fn let_all_go(&mut self) {
        for (at, ifindex) in self.down.clone() {
            self.set_up_again(at, ifindex);
        }
        if self.keep.is_some() {
            return self.sets().for_each(|set| set.leave(clock::now()));
        }
        for Interfaces { set, .. } in self.all.iter_mut().filter_map(|(_, home)| home.interfaces.as_mut()) {
            if let Err(error) = set.detach_all() {
                tracing::warn!("the kernel has interfaces only when the process has ended: {error}");
            }
        }
    }

    /// The interfaces that a queue carries, for messages; `None`: it is the queue of one port.
    pub fn carried_by(&self, queue: PortId) -> Option<String> {
        let number = set_of(queue)?;
        let at = self.find(|home| home.interfaces.as_ref().is_some_and(|it| it.number == number))?;
        let home = &self.all[at];
        let of = home.name.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        Some(format!("interfaces{of}"))
    }

    /// Acknowledges that the programs of a namespace have found a worker stuck.
    pub fn read_stuck(&mut self, at: HomeAt) {
        self.set_mut(at).into_iter().for_each(PortSet::read_stuck);
    }

    /// Since when frames wait for a worker, if the programs of any namespace have found it stuck.
    pub fn stuck_since(&self, worker: usize) -> Option<Instant> {
        self.sets().filter_map(|set| set.stuck_since(worker as u32)).min()
    }

    /// Waits for news of any of them. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Result<(HomeAt, Heard), MirrorError> {
        let each = self.all.iter_mut().map(async |(at, home)| (at, home.next().await));
        let (at, heard) = first_of(each).await;
        Ok((at, heard?))
    }

    /// How often notifications were lost.
    pub fn overruns(&self) -> u64 {
        let now = self.all.iter().map(|(_, home)| home.mirror.counters().overruns);
        self.overruns + now.sum::<u64>()
    }

    /// The names of a namespace's links, for messages.
    pub fn names(&self, at: HomeAt) -> String {
        let names: BTreeSet<&str> = self.tables(at).links().map(|link| link.name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// The kernel takes the frames of a port there as it did before. An interface that was moved keeps its settings.
    pub fn end_thread(&self, at: HomeAt, thread: Option<ReceiveThread>) {
        if let Some(Ok(Err(error))) = thread.map(|thread| self.run(at, || thread.end())) {
            tracing::debug!("receive=thread: {error}");
        }
    }

    /// In how many namespaces the kernel may forward frames of interfaces.
    #[must_use]
    pub fn with_entries(&self) -> usize {
        self.sets().filter(|set| set.has_entries()).count()
    }

    fn sets(&self) -> impl Iterator<Item = &PortSet> {
        self.all.iter().filter_map(|(_, home)| home.set())
    }

    fn set_mut(&mut self, at: HomeAt) -> Option<&mut PortSet> {
        self.all[at].interfaces.as_mut().map(|interfaces| &mut interfaces.set)
    }
}
