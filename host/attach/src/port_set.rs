//! The kernel interfaces of one network namespace as ports of a switch.
//!
//! A set has one queue per worker, which carries all interfaces of the set. An interface becomes a port in
//! three steps. [`PortSet::attach`] attaches the programs, which can fail. Then every worker adds the
//! interface to its queue, as returned by [`PortSet::ports`]. Then [`PortSet::claim`] directs its frames to
//! the queues; until then the kernel gets them. An interface leaves in the opposite order. All calls are
//! made in the network namespace of the interfaces.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::net::{SocketFlags, SocketType};
use twinpath_bpf::{KeepPlan, KeptEntry, Offload, PortPrograms, QUEUES_MAX, TcAttach, Unserved};
use twinpath_frame::Mapping;
use twinpath_port::{CarriedPort, GsoKinds, PORTS_MAX, PortId};
use twinpath_rings::pending::{self, Pending};
use twinpath_sys::descriptors::{close_late, set_aside};
use twinpath_sys::ethtool;
use twinpath_sys::packet_socket::{self, FanoutGroup, Membership, PacketSocketError};
use twinpath_time::{Duration, Instant};
use twinpath_vnet::carrier::{CarrierConfig, CarrierPort, SOCKETS, SPARES_MAX, capabilities, spare};

use crate::attachment::{AttachError, PlacedQueue};

/// The mark of frames that the workers send; it is removed before they leave.
const MARK: u32 = 0x7477_7377;

/// The parameters of a set.
#[derive(Clone, Copy, Debug)]
pub struct PortSetPlan {
    /// Number of the set in this process; its queues are numbered after those of single ports.
    pub number: u16,
    /// Workers; each gets one queue.
    pub workers: u32,
    /// Slots of each queue's ring.
    pub ring_frames: u32,
    /// Maximum number of interfaces that it carries.
    pub ports_max: usize,
    /// How long a frame may wait for a worker before frames of ports that fail open go to the kernel; zero:
    /// for ever.
    pub fail_open: Duration,
    /// Maximum number of entries by which the kernel may forward frames itself; 0: it forwards none.
    pub offloaded: u32,
    /// How the programs are attached.
    pub tc: TcAttach,
    /// The kinds of super-frames that the kernel takes from a packet socket.
    pub segmentation: GsoKinds,
}

/// The interfaces of one network namespace. Dropping it gives all of them back; the workers must give back the queues.
pub struct PortSet {
    programs: PortPrograms,
    plan: PortSetPlan,
    /// Keeps the interfaces in promiscuous mode.
    listener: OwnedFd,
    promiscuous: BTreeSet<u32>,
    /// Number of spare sockets of each queue.
    spares: usize,
    words: Option<Arc<Mapping>>,
}

impl PortSet {
    /// Opens a queue for each worker. No interface is a port yet. With `keep`, flows that the kernel
    /// forwards continue after the end of the process, and flows left by a former process continue now.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is left then.
    pub fn open(plan: PortSetPlan, keep: Option<&KeepPlan>) -> Result<(Self, Vec<PlacedQueue>), AttachError> {
        // Before the programs are attached: sockets are slow to close, and the programs must be gone before
        // that.
        set_aside(SOCKETS * plan.workers as usize + 1);
        let PortSetPlan { workers, fail_open, offloaded, .. } = plan;
        let mut programs = match keep {
            Some(keep) => PortPrograms::load_keeping(MARK, workers, fail_open, offloaded, keep)?,
            None => PortPrograms::load(MARK, workers, fail_open, offloaded)?,
        };
        let words = programs.pending().and_then(|words| {
            let mapped = Mapping::of_fd(words, QUEUES_MAX as usize * pending::STRIDE, 0);
            mapped.map_err(|error| tracing::warn!("a stuck worker cannot be found: {error}")).ok()
        });
        let words = words.map(Arc::new);
        let (mut placed, group) = (Vec::new(), FanoutGroup::default());
        for worker in 0..plan.workers {
            let config = CarrierConfig {
                id: PortId { port: PORTS_MAX as u16 + plan.number, queue: worker as u16 },
                ring_slots: plan.ring_frames,
                ports_max: plan.ports_max,
                fanout_group: (plan.workers > 1).then_some(&group),
                mark: MARK,
            };
            let queue = CarrierPort::open(&config, |socket| programs.attach_socket_filter(worker, socket))?;
            let word = words.as_ref().and_then(|words| word_of(words, worker, plan.fail_open));
            placed.push(PlacedQueue { worker: worker as usize, queue: Box::new(queue.failing_open(word)) });
        }
        let listener = packet_socket::open(SocketType::RAW, SocketFlags::empty()).map(close_late)?;
        Ok((Self { programs, plan, listener, promiscuous: BTreeSet::new(), spares: 0, words }, placed))
    }

    /// Called when all interfaces of the start are attached: removes what a former process has left on
    /// others. Returns the entries that it has left for the [`Offload`].
    ///
    /// # Errors
    /// [`AttachError::Steer`].
    pub fn has_started(&mut self) -> Result<Vec<KeptEntry>, AttachError> {
        Ok(self.programs.has_started()?)
    }

    /// The folder of the objects that outlive the process.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.programs.folder()
    }

    /// The process ends: flows that are to continue do so from now on, for their time limit.
    pub fn leave(&self, now: Instant) {
        self.programs.leave(now);
    }

    /// The entries by which the kernel may forward frames itself; can be taken once.
    pub const fn take_offload(&mut self) -> Option<Offload> {
        self.programs.take_offload()
    }

    /// Whether the programs can have entries.
    #[must_use]
    pub const fn has_entries(&self) -> bool {
        self.plan.offloaded > 0
    }

    /// An attached interface as the workers add it to their queues: one port for each worker, because each
    /// counts separately. The first interface alone needs no frames kept away from others; further ones
    /// come with spare sockets.
    ///
    /// # Errors
    /// [`AttachError::Packet`]; the interface stays attached.
    pub fn ports(&mut self, number: u16, ifindex: u32) -> Result<Vec<CarriedPort>, AttachError> {
        let wanted = match self.promiscuous.len() {
            0 | 1 => 0,
            interfaces => interfaces.min(SPARES_MAX),
        };
        let more = wanted.saturating_sub(self.spares);
        let (capabilities, bypass_qdisc) = (capabilities(self.plan.segmentation), has_no_queue(ifindex));
        let port = |_worker| {
            let spares = (0..more).map(|_| Ok(Arc::new(spare(MARK)?)));
            Ok(CarriedPort {
                port: number,
                ifindex,
                capabilities,
                bypass_qdisc,
                spares: spares.collect::<Result<_, PacketSocketError>>()?,
                counters: Arc::default(),
            })
        };
        let ports = (0..self.plan.workers).map(port).collect::<Result<_, PacketSocketError>>()?;
        self.spares += more;
        Ok(ports)
    }

    /// Makes an interface ready to be a port. The workers add it next.
    ///
    /// # Errors
    /// [`AttachError`]; then the interface is the kernel's as before.
    pub fn attach(&mut self, ifindex: u32) -> Result<(), AttachError> {
        self.programs.prepare(ifindex, self.plan.tc)?;
        // Without this, a device would not accept frames for the hosts behind the other ports.
        let listens = packet_socket::add_membership(&self.listener, ifindex, Membership::Promiscuous);
        if let Err(error) = listens {
            self.programs.release(ifindex)?;
            return Err(error.into());
        }
        self.promiscuous.insert(ifindex);
        Ok(())
    }

    /// Directs the frames of an attached interface to the workers; `unserved` says what the kernel does
    /// with frames that no worker gets.
    ///
    /// # Errors
    /// [`AttachError::Steer`].
    pub fn claim(&mut self, ifindex: u32, unserved: Unserved) -> Result<(), AttachError> {
        Ok(self.programs.claim(ifindex, unserved)?)
    }

    /// Has the driver of an attached interface forward the frames that it can
    /// ([`PortPrograms::attach_xdp`] says which interfaces that is for).
    ///
    /// # Errors
    /// [`AttachError::Steer`]; the interface stays a port without that.
    pub fn attach_xdp(&mut self, ifindex: u32) -> Result<(), AttachError> {
        Ok(self.programs.attach_xdp(ifindex)?)
    }

    /// Gives an interface back to the kernel; it may be gone. Workers remove it from their queues after this.
    ///
    /// # Errors
    /// [`AttachError::Steer`]; it is given back anyway.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), AttachError> {
        if self.promiscuous.remove(&ifindex) {
            // An interface that is gone has no memberships.
            let _ = packet_socket::drop_membership(&self.listener, ifindex, Membership::Promiscuous);
        }
        Ok(self.programs.release(ifindex)?)
    }

    /// Gives all interfaces back together. The programs are detached when the set is dropped, which takes
    /// longer.
    ///
    /// # Errors
    /// [`AttachError::Steer`]; the remaining ones are given back when the set is dropped.
    pub fn detach_all(&mut self) -> Result<(), AttachError> {
        Ok(self.programs.release_all()?)
    }

    /// Readable once the programs have found a worker stuck, until [`Self::read_stuck`]; `None` if they never do.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.programs.stuck()
    }

    /// Acknowledges that event.
    pub fn read_stuck(&mut self) {
        self.programs.read_stuck();
    }

    /// If a worker is stuck: since when a frame has been waiting for it.
    #[must_use]
    pub fn stuck_since(&self, worker: u32) -> Option<Instant> {
        word_of(self.words.as_ref()?, worker, self.plan.fail_open)?.stuck_since()
    }
}

/// Whether an interface passes each frame on immediately, so that no queueing discipline is needed.
fn has_no_queue(ifindex: u32) -> bool {
    let driver = packet_socket::interface_name(ifindex).and_then(|name| ethtool::driver(&name));
    driver.is_ok_and(|driver| driver.name == "veth")
}

fn word_of(words: &Arc<Mapping>, worker: u32, fail_open: Duration) -> Option<Pending> {
    Pending::new(Arc::clone(words), worker, fail_open)
}

impl From<PacketSocketError> for AttachError {
    fn from(error: PacketSocketError) -> Self {
        Self::Packet(error.into())
    }
}
