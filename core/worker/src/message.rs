//! The messages between control and a worker.

use twinpath_frame::Frame;
use twinpath_idle::{Goal, Machine};
use twinpath_port::{CarriedPort, LinkState, PortId, PortQueue};

use crate::idle::{Mode, Requests};
use crate::tap::Tap;

/// A command from control to a worker.
pub enum Command<C> {
    /// Serve this queue from now on.
    Attach(Box<dyn PortQueue>),
    /// Return every queue of this interface: each comes as [`Event::Detached`].
    Detach {
        /// Kernel index of the interface.
        ifindex: u32,
    },
    /// Return this queue: it comes as [`Event::Detached`].
    DetachQueue(PortId),
    /// Carry this port on the queue `carrier` from now on. The answer is [`Event::Attached`] or, if it is refused,
    /// [`Event::PortRemoved`] with the port's name.
    AddPort {
        /// The name of the queue.
        carrier: PortId,
        /// The port.
        port: Box<CarriedPort>,
    },
    /// Stop carrying the port with this number: its name comes as [`Event::PortRemoved`].
    RemovePort(u16),
    /// The port with this number belongs to another worker from now on: frames for it are handed over there.
    /// `None`: no worker has it.
    PortElsewhere {
        /// The number of the port.
        port: u16,
        /// The number of the worker.
        worker: Option<u16>,
    },
    /// The state of this interface has changed: its ports and the engine are told.
    LinkChanged {
        /// Kernel index of the interface.
        ifindex: u32,
        /// Its state.
        link: LinkState,
    },
    /// Serve the frames in the rings before anything else: fewer claims are in force than when they came.
    ServeRings,
    /// Frames that a closed port held, returned to the worker.
    Frames(Vec<Frame>),
    /// Use this idle mode from now on.
    SetMode(Mode),
    /// Waking up has been measured again: its costs, and whether a latency request may be held from now on.
    SetMachine(Machine, Requests),
    /// Pursue this goal, in `adaptive`, from now on.
    SetGoal(Goal),
    /// Start or stop measuring the CPU time of each turn ([`WorkerCounters::turn_cpu`]).
    ///
    /// [`WorkerCounters::turn_cpu`]: crate::WorkerCounters::turn_cpu
    TimeTurns(bool),
    /// Copy frames to this tap from now on.
    Tap(Box<Tap>),
    /// Return the tap with this number: it comes as [`Event::Untapped`].
    Untap(u32),
    /// For the engine.
    Engine(C),
}

/// A message from a worker to control.
pub enum Event<E> {
    /// A queue that it serves from now on: frames may be steered to it.
    Attached(PortId),
    /// A queue that it no longer serves; close it, and return its frames.
    Detached(Box<dyn PortQueue>),
    /// A port of a queue that carries several: its frames are no longer received or sent.
    PortRemoved(PortId),
    /// A tap that it no longer uses: free it.
    Untapped(Box<Tap>),
    /// From the engine.
    Engine(E),
}
