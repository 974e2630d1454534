//! The messages between control and a worker.

use twinpath_frame::Frame;
use twinpath_idle::{Goal, Machine};
use twinpath_port::{CarriedPort, LinkState, PortId, PortQueue};

use crate::idle::{Mode, Requests};
use crate::tap::Tap;

/// What control tells a worker.
pub enum Command<C> {
    /// Serve this queue from now on.
    Attach(Box<dyn PortQueue>),
    /// Give back every queue of this interface: each comes as [`Event::Detached`].
    Detach {
        /// Kernel index of the interface.
        ifindex: u32,
    },
    /// Give back this queue: it comes as [`Event::Detached`].
    DetachQueue(PortId),
    /// Have the queue `carrier` carry this port from now on. [`Event::Attached`] or, if it is refused,
    /// [`Event::PortRemoved`] has the port's name.
    AddPort {
        /// The name of the queue.
        carrier: PortId,
        /// The port.
        port: Box<CarriedPort>,
    },
    /// Carry the port of this number no more: its name comes as [`Event::PortRemoved`].
    RemovePort(u16),
    /// The port of this number is one of another worker from now on: frames for it are handed over there. `None`: no
    /// worker has it.
    PortElsewhere {
        /// The number of the port.
        port: u16,
        /// The number of the worker.
        worker: Option<u16>,
    },
    /// The state of this interface is this now: its ports and the engine are told.
    LinkChanged {
        /// Kernel index of the interface.
        ifindex: u32,
        /// Its state.
        link: LinkState,
    },
    /// Serve what is in the rings before anything else: fewer claims are in force than when it came there.
    ServeRings,
    /// Frames that a closed port held: they are the worker's again.
    Frames(Vec<Frame>),
    /// Idle like this from now on.
    SetMode(Mode),
    /// What waking up costs was measured again, and whether a latency request may be held from now on.
    SetMachine(Machine, Requests),
    /// Reach this, in `adaptive`, from now on.
    SetGoal(Goal),
    /// Measure the CPU time of each turn from now on, or no longer ([`WorkerCounters::turn_cpu`]).
    ///
    /// [`WorkerCounters::turn_cpu`]: crate::WorkerCounters::turn_cpu
    TimeTurns(bool),
    /// Show this one copies of frames from now on.
    Tap(Box<Tap>),
    /// Give back the tap of that number: it comes as [`Event::Untapped`].
    Untap(u32),
    /// For the engine.
    Engine(C),
}

/// What a worker tells control.
pub enum Event<E> {
    /// A queue it serves from now on: frames may be steered to it.
    Attached(PortId),
    /// A queue it no longer serves; close it, and send its frames back.
    Detached(Box<dyn PortQueue>),
    /// A port of a queue that carries several: no frame of it is received or sent any more.
    PortRemoved(PortId),
    /// A tap it no longer uses: free it.
    Untapped(Box<Tap>),
    /// From the engine.
    Engine(E),
}
