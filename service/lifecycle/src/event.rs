//! What the phases of an instance depend on.

use serde::{Deserialize, Serialize};
use twinpath_time::Duration;

/// The number of a new instance that has asked for the sockets. Each gets another one.
pub type TakerId = u32;

/// A message of a new instance that has got the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// It asks the former instance to detach its programs, because it is about to attach its own.
    Aside,
    /// It serves.
    Serving,
}

/// A change of the first instance, as its standby sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It leaves its sockets readable and none of its threads runs, or it is about to end.
    Stuck,
    /// It serves again.
    Back,
    /// It has ended, and nobody has its sockets but its standbys.
    Gone,
    /// It has ended, and another instance serves in its place: one that takes over, or a standby that comes first.
    Succeeded,
    /// It serves other sockets now, or cannot be asked.
    Changed,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The start is to begin.
    Start,
    /// The last action, which has an outcome, has been carried out. No other event may come in between.
    Outcome(Outcome),
    /// [`Lifecycle::deadline`](crate::Lifecycle::deadline) has passed.
    Deadline,
    /// The interface was removed, or moved to another namespace. Its programs have gone with it.
    InterfaceGone,
    /// An interface of the same name has appeared.
    InterfaceBack,
    /// The workers have returned every queue of the former attachment, and these are closed.
    QueuesReturned,
    /// The interface has another number of receive queues than are attached.
    QueuesChanged,
    /// Whether the kernel is configured to check packets in a way that claimed flows would bypass.
    Bypassed(bool),
    /// Whether some worker is stuck.
    Stuck(bool),
    /// One worker has closed its listeners, in a drain.
    ListenersClosed,
    /// One service of one worker has nothing left to answer, in a drain.
    ServiceDrained,
    /// Connections that are closed at the end of a drain have become fewer.
    CutGoesOn,
    /// A service that a reload removed has nothing left to answer on one worker. The service is named by its part
    /// of the workers.
    Left(usize),
    /// The last service with a claim has left, after a reload: nothing is to be claimed.
    NothingClaimed,
    /// Another instance asks for the sockets, to take over.
    SocketsAsked,
    /// A new instance says that it has reached a step, and is still connected.
    Heard(TakerId, Step),
    /// A new instance says something that is no step.
    Misheard(TakerId),
    /// The connection to a new instance has closed, and its process has ended or had time to.
    TakerGone(TakerId),
    /// Another instance asks for the sockets, to stand by for this one, for which `others` stand by already.
    StandbyAsked {
        /// How many do.
        others: usize,
    },
    /// The first instance, which this one stands by for, has changed.
    First(First),
    /// The configuration is to be read again.
    ReloadAsked,
    /// The instance is to drain, within this time if one is given.
    DrainAsked(Option<Duration>),
    /// The instance is to stop, within this time if one is given. A second request ends it at once, unless that
    /// gives a time.
    StopAsked(Option<Duration>),
    /// The control loop cannot go on.
    Broken,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It could not be done, and has changed nothing.
    Failed,
    /// There was nothing to do: the path is the kernel's, nothing is claimed, or the configuration is the same.
    Nothing,
    /// Nothing was claimed, because claimed flows would bypass checks that the kernel is configured to do.
    Withheld,
    /// The claims cannot be changed in the attached programs: others must be attached.
    OtherPrograms,
    /// The other instance has not answered in time.
    Silence,
    /// The workers drain.
    Draining {
        /// Services, counted once per worker, that may have something left to answer.
        services: usize,
        /// Workers that may still accept connections.
        listening: usize,
    },
    /// Services leave the workers.
    Leaving {
        /// Their parts of the workers.
        parts: Vec<usize>,
        /// The number of workers that each leaves.
        workers: usize,
    },
}
