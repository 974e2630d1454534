//! The network namespaces that ports are in, each with a mirror of its links.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::io::unix::AsyncFd;
use twinpath_attach::{AttachError, PlacedQueue, PortSet, PortSetPlan};
use twinpath_host::readable_copy;
use twinpath_mirror::table::{Link, Tables};
use twinpath_mirror::{Event, Mirror, MirrorError, MirrorLimits};
use twinpath_path::XdpAnnouncements;
use twinpath_path::forwarding::takes_redirected;
use twinpath_port::{CarriedPort, PORTS_MAX, PortId};
use twinpath_port_vxlan::{OpenError, UdpPorts, VxlanConfig, VxlanPort};
use twinpath_steer_bpf::{Keep, KeepError, KeepPlan, KeptEntry, Offload, Unserved};
use twinpath_sys::netns::{NetnsError, Visit};
use twinpath_sys::{Namespace, clock};
use twinpath_time::{Duration, Instant};

use super::SwitchError;

/// A namespace.
struct Home {
    /// As it is named for its ports; `None`: our own.
    name: Option<String>,
    namespace: Namespace,
    mirror: Mirror,
    /// Its interfaces that are ports, once there has been one.
    ports: Option<PortSet>,
    /// The queues that carry them, one for each worker, until the workers get them.
    queues: Vec<PlacedQueue>,
    /// Readable when a worker was found stuck.
    stuck: Option<AsyncFd<OwnedFd>>,
    /// What drivers can do with XDP, once one forwards frames.
    xdp: Option<XdpAnnouncements>,
    /// The UDP ports of its VXLAN ports.
    udp_ports: UdpPorts,
}

/// Why an interface could not be made a port.
#[derive(Debug, thiserror::Error)]
pub(super) enum HoldError {
    #[error("{0}")]
    Attach(#[from] AttachError),
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    #[error("cannot hold a descriptor a second time: {0}; raise the limit of open files (ulimit -n)")]
    Descriptor(#[from] std::io::Error),
    #[error("{0}")]
    Keep(#[from] KeepError),
}

/// What was heard of a namespace.
pub(super) enum Heard {
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

    async fn next(&mut self) -> Result<Heard, MirrorError> {
        let stuck = async {
            match &self.stuck {
                Some(fd) => match fd.readable().await {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        let xdp = async {
            match &mut self.xdp {
                Some(announcements) => announcements.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.mirror.next() => Ok(Heard::Kernel(event?)),
            () = stuck => Ok(Heard::Stuck),
            () = xdp => Ok(Heard::Xdp),
        }
    }
}

/// An interface that is a port now.
pub(super) struct Held {
    /// The queues that are to carry it, if they have just been made: the workers get them first.
    pub(super) queues: Vec<PlacedQueue>,
    /// For each worker the name of the queue that is to carry it, and what it is there.
    pub(super) ports: Vec<(PortId, CarriedPort)>,
}

/// All of them; the first is our own.
pub(super) struct Homes {
    all: Vec<Home>,
    /// What outlives the process, and for how long flows go on, if they do.
    keep: Option<(Keep, Duration)>,
}

/// Entries by which the kernel may forward frames in a namespace.
pub(super) struct HomeOffload {
    pub(super) home: HomeAt,
    pub(super) offload: Offload,
    /// Those that a former process has left.
    pub(super) left: Vec<KeptEntry>,
}

/// The place of a namespace among those known.
pub(super) type HomeAt = usize;

impl Homes {
    pub(super) async fn own(keep: Option<(Keep, Duration)>) -> Result<Self, SwitchError> {
        let (namespace, mirror) = (Namespace::own()?, Mirror::open(MirrorLimits::default()).await?);
        let own = Home {
            name: None,
            namespace,
            mirror,
            ports: None,
            queues: Vec::new(),
            stuck: None,
            xdp: None,
            udp_ports: UdpPorts::default(),
        };
        Ok(Self { all: vec![own], keep })
    }

    /// The place of a namespace, which is opened if it is not known.
    pub(super) async fn at(&mut self, name: Option<&str>) -> Result<HomeAt, SwitchError> {
        let Some(name) = name else { return Ok(0) };
        let namespace = match Namespace::named(name) {
            Ok(namespace) => namespace,
            // The process by which it was found may be gone, or closed to a confined one.
            Err(error) => {
                let known = self.all.iter().position(|home| home.name.as_deref() == Some(name));
                return known.ok_or_else(|| error.into());
            }
        };
        // It may be known by another name, or be our own.
        if let Some(at) = self.all.iter().position(|home| home.namespace.is_same(&namespace)) {
            return Ok(at);
        }
        let mirror = {
            // Nothing else runs on this thread until its sockets are there: they stay in the namespace.
            let _visit = namespace.visit()?;
            Mirror::open(MirrorLimits::default()).await?
        };
        self.all.push(Home {
            name: Some(name.to_owned()),
            namespace,
            mirror,
            ports: None,
            queues: Vec::new(),
            stuck: None,
            xdp: None,
            udp_ports: UdpPorts::default(),
        });
        Ok(self.all.len() - 1)
    }

    /// The links of a namespace.
    pub(super) fn tables(&self, at: HomeAt) -> &Tables {
        self.all[at].mirror.tables()
    }

    /// A link of a namespace as last heard.
    pub(super) fn link(&self, at: HomeAt, ifindex: u32) -> Option<&Link> {
        self.tables(at).link(ifindex)
    }

    /// Makes an interface ready to be a port of that number. `plan` is for the set that it belongs to, if that is yet to be made.
    pub(super) fn hold(
        &mut self,
        at: HomeAt,
        plan: PortSetPlan,
        (number, ifindex): (u16, u32),
    ) -> Result<Held, HoldError> {
        let _visit = self.all[at].visit()?;
        let Home { ports, queues, stuck, .. } = &mut self.all[at];
        let set = match ports {
            Some(set) => set,
            None => {
                let keep = self.keep.as_ref().map(|(keep, duration)| {
                    Ok::<_, KeepError>(KeepPlan { folder: keep.home()?, keep: *duration, now: clock::now() })
                });
                let keep = keep.transpose()?;
                let (set, placed) = PortSet::open(PortSetPlan { number: at as u16, ..plan }, keep.as_ref())?;
                *queues = placed;
                *stuck = set.stuck().map(readable_copy).transpose()?;
                ports.insert(set)
            }
        };
        set.attach(ifindex)?;
        let ports = (0..plan.workers).map(|worker| (Self::carrier(at, worker), set.port(number, ifindex)));
        Ok(Held { queues: std::mem::take(queues), ports: ports.collect() })
    }

    /// Has the workers get the frames of an interface that is held.
    pub(super) fn claim(&mut self, at: HomeAt, ifindex: u32, unserved: Unserved) -> Result<(), AttachError> {
        self.all[at].ports.as_mut().map_or(Ok(()), |set| set.claim(ifindex, unserved))
    }

    /// Whether the kernel may forward frames of a namespace's interfaces, which the first of them has decided.
    pub(super) fn has_entries(&self, at: HomeAt) -> bool {
        self.all[at].ports.as_ref().is_some_and(PortSet::has_entries)
    }

    /// Has the driver of an interface that is a port forward the frames that it can.
    pub(super) fn attach_xdp(&mut self, at: HomeAt, ifindex: u32) -> Result<(), HoldError> {
        let _visit = self.all[at].visit()?;
        let Home { ports: Some(set), xdp, .. } = &mut self.all[at] else { return Ok(()) };
        set.attach_xdp(ifindex)?;
        xdp.get_or_insert_with(XdpAnnouncements::open);
        Ok(())
    }

    /// Whether an interface takes frames that drivers forward to it; not if none does.
    pub(super) fn takes_xdp(&self, at: HomeAt, ifindex: u32) -> bool {
        if self.all[at].xdp.is_none() {
            return false;
        }
        self.run(at, || takes_redirected(ifindex)).ok().flatten().unwrap_or(false)
    }

    /// The entries by which the kernel may forward frames in each namespace, once. All ports are held that are to be at first.
    pub(super) fn take_offloads(&mut self) -> Vec<HomeOffload> {
        let homes = self.all.iter_mut().enumerate();
        let sets = homes.filter_map(|(at, home)| Some((at, home.ports.as_mut()?)));
        let take = |(home, set): (HomeAt, &mut PortSet)| {
            let left = set.has_started();
            let left = left.map_err(|error| tracing::error!("flows of the former process end: {error}"));
            Some(HomeOffload { home, offload: set.take_offload()?, left: left.unwrap_or_default() })
        };
        sets.filter_map(take).collect()
    }

    /// Removes what a former process has left of namespaces that have no ports now.
    pub(super) fn keep_no_others(&self) {
        let Some((keep, _)) = &self.keep else { return };
        let homes = self.all.iter().filter_map(|home| Some(home.ports.as_ref()?.folder()?.to_owned()));
        if let Err(error) = keep.retain(&homes.collect::<Vec<_>>()) {
            tracing::warn!(
                "something of the former process is left, and does nothing once its time is over: {error}"
            );
        }
    }

    /// The folder of what outlives the process.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.as_ref().map(|(keep, _)| keep.folder())
    }

    /// Undoes [`Self::hold`].
    pub(super) fn take_back(&mut self, at: HomeAt, ifindex: u32, held: Held) -> Result<(), AttachError> {
        self.all[at].queues.extend(held.queues);
        self.let_go(at, ifindex)
    }

    /// Runs something in a namespace.
    pub(super) fn run<T>(&self, at: HomeAt, what: impl FnOnce() -> T) -> Result<T, NetnsError> {
        let _visit = self.all[at].visit()?;
        Ok(what())
    }

    /// Opens a VXLAN port with its sockets in a namespace.
    pub(super) fn open_vxlan(
        &mut self,
        at: HomeAt,
        config: &VxlanConfig,
    ) -> Result<Result<VxlanPort, OpenError>, NetnsError> {
        let _visit = self.all[at].visit()?;
        Ok(VxlanPort::open(config, &mut self.all[at].udp_ports))
    }

    /// Gives an interface back to the kernel; it may be gone.
    pub(super) fn let_go(&mut self, at: HomeAt, ifindex: u32) -> Result<(), AttachError> {
        self.all[at].ports.as_mut().map_or(Ok(()), |set| set.detach(ifindex))
    }

    /// Gives all interfaces back, or leaves them to the programs by which flows go on.
    pub(super) fn let_all_go(&mut self) {
        if self.keep.is_some() {
            let sets = self.all.iter().filter_map(|home| home.ports.as_ref());
            return sets.for_each(|set| set.leave(clock::now()));
        }
        for set in self.all.iter_mut().filter_map(|home| home.ports.as_mut()) {
            if let Err(error) = set.detach_all() {
                tracing::warn!("the kernel has interfaces only when the process has ended: {error}");
            }
        }
    }

    /// The name of a worker's queue for a namespace's interfaces.
    const fn carrier(at: HomeAt, worker: u32) -> PortId {
        PortId { port: (PORTS_MAX + at) as u16, queue: worker as u16 }
    }

    /// The interfaces that a queue carries, for messages; `None`: it is the queue of one port.
    pub(super) fn carried_by(&self, queue: PortId) -> Option<String> {
        let home = self.all.get(usize::from(queue.port).checked_sub(PORTS_MAX)?)?;
        let of = home.name.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        Some(format!("interfaces{of}"))
    }

    /// Acknowledges that the programs of a namespace have found a worker stuck.
    pub(super) fn read_stuck(&mut self, at: HomeAt) {
        self.all[at].ports.iter_mut().for_each(PortSet::read_stuck);
    }

    /// Since when frames wait for a worker, if the programs of any namespace have found it stuck.
    pub(super) fn stuck_since(&self, worker: usize) -> Option<Instant> {
        let sets = self.all.iter().filter_map(|home| home.ports.as_ref());
        sets.filter_map(|set| set.stuck_since(worker as u32)).min()
    }

    /// Waits for news of any of them. Cancelling it loses nothing.
    pub(super) async fn next(&mut self) -> Result<(HomeAt, Heard), MirrorError> {
        let each = self.all.iter_mut().enumerate();
        let each = each.map(|(at, home)| Box::pin(async move { (at, home.next().await) }));
        let ((at, heard), ..) = futures_util::future::select_all(each).await;
        Ok((at, heard?))
    }

    /// How often notifications were lost.
    pub(super) fn overruns(&self) -> u64 {
        self.all.iter().map(|home| home.mirror.counters().overruns).sum()
    }

    /// The names of a namespace's links, for messages.
    pub(super) fn names(&self, at: HomeAt) -> String {
        let names: BTreeSet<&str> = self.tables(at).links().map(|link| link.name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}
