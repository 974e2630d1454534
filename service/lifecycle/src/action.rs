//! What an instance is told to do.

use crate::event::{Step, TakerId};

/// Why programs are detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// The interface is gone.
    InterfaceGone,
    /// Another instance is taking over.
    TakenOver,
    /// Claimed flows would bypass checks that the kernel is configured to do.
    Withheld,
    /// The number of receive queues has changed.
    QueuesChanged,
    /// A reload needs other programs.
    OtherPrograms,
    /// A reload has left nothing to claim.
    NothingClaimed,
    /// The instance ends.
    Ending,
}

impl Detached {
    /// Whether the instance attaches again as soon as its queues are back. Connections on the fast path can wait for
    /// that; for anything else they cannot.
    #[must_use]
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::QueuesChanged | Self::OtherPrograms)
    }
}

/// Why another instance does not get the sockets, or why nothing is reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This instance is a standby itself.
    StandingBy,
    /// Another instance is taking over.
    BeingTakenOver,
    /// Another instance has taken over.
    TakenOver,
    /// This instance is stopping.
    Stopping,
    /// [`STANDBYS_MAX`](crate::STANDBYS_MAX) instances stand by for it.
    TooManyStandbys,
}

/// Why a new instance does not take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakerFailure {
    /// It has gone.
    Gone,
    /// It has been silent for too long.
    Late,
    /// It says a step that is not the next one.
    OutOfStep(Step),
    /// It says something that is no step.
    NoStep,
    /// Another one has asked for the sockets after it.
    Replaced,
    /// The sockets are no longer those that it got.
    Outdated,
}

/// An action. Those marked `*` have an outcome: such an action is always the last one of its batch, and nothing else
/// happens until its [`Outcome`](crate::Outcome) is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `*` Holds the ports: with sockets of the other instance, if there is one, else with new ones.
    HoldPorts,
    /// `*` Tells the former instance that a step is reached, and waits for its answer. It is done as well if the
    /// former instance has ended.
    Say(Step),
    /// `*` Looks whether the former instance has given this one up meanwhile.
    Confirm,
    /// `*` Chooses the path and starts the workers. With `waits`, they leave alone what waits in the sockets.
    StartWorkers {
        /// Whether they wait for [`Action::Begin`] or [`Action::ServeSockets`].
        waits: bool,
    },
    /// `*` Attaching has failed: chooses the next best path.
    NextPath,
    /// `*` Waits until frames are steered to every queue that is attached, or for some time.
    AwaitSteering,
    /// `*` Lets the workers serve what waits in the sockets, and waits until all do.
    Begin,
    /// Registers the services with rpcbind.
    Register,
    /// Begins to watch the first instance.
    WatchFirst,
    /// Begins to watch whether the workers take what waits in their sockets.
    WatchSockets,

    /// `*` Chooses a path anew, and holds what only a fast path serves.
    ChoosePath,
    /// `*` Attaches the programs of the chosen path, and gives the queues to the workers.
    Attach,
    /// Detaches the programs, and asks the workers for the queues.
    Detach(Detached),
    /// Gives up EtherTypes, which belong to an interface.
    ReleaseFrames,

    /// `*` Sends the sockets to a new instance, and listens to it. Tells the standbys: if this instance ends, that one
    /// goes on, and they must not serve beside it.
    GiveSockets(TakerId),
    /// Sends a refusal in place of the sockets.
    RefuseSockets(Refusal),
    /// Answers the last step of a new instance: it can go on.
    Agree(TakerId),
    /// Tells a new instance that it does not take over.
    GiveUp(TakerId, TakerFailure),
    /// Leaves the registrations with rpcbind to the instance that has taken over.
    LeaveRegistrations,

    /// Sends the sockets to a standby. Tells all standbys of each other and of a new instance that has the sockets: if
    /// this instance ends, only one of them may serve.
    GiveStandby,
    /// Sends a refusal in place of them.
    RefuseStandby(Refusal),
    /// Tells the standbys that no new instance has the sockets any more.
    NoTaker,
    /// Tells the standbys that the sockets may have changed, and closes the connections to them: they ask again.
    DismissStandbys,
    /// Closes the connections to the standbys, because this instance ends.
    CloseStandbys,
    /// Lets the workers of a standby serve what waits in the sockets, or step back.
    ServeSockets(bool),

    /// Lets the stand-in serve the sockets of stuck workers, or step back.
    StandIn(bool),

    /// `*` Lets the workers close their listeners, and end each connection once it is answered. With `handed_over`,
    /// what waits in the sockets is left to another instance.
    Drain {
        /// Whether it is.
        handed_over: bool,
    },
    /// Closes the connections that are left.
    Cut,
    /// Closes the connections that are left of the removed service that is this part.
    CutService(usize),

    /// Does not reload.
    RefuseReload(Refusal),
    /// `*` Reads the configuration again and compares it.
    ReadConfiguration,
    /// `*` Binds new ports and makes new services.
    Stage,
    /// `*` Gives the new services to the workers, where they do not serve yet.
    Prepare,
    /// Makes the new plan the one in force.
    Adopt,
    /// Makes the former plan the one in force again.
    Restore,
    /// `*` Changes the claims of the attached programs to those of the plan.
    ChangeClaims,
    /// `*` Lets new services begin and removed ones leave.
    Switch,
    /// `*` Takes new services back from the workers.
    Undo,
    /// Replaces the stand-in by one with the services of the plan.
    RenewStandIn,
    /// Updates the registrations with rpcbind.
    Reregister,
    /// Reports how the reload ended.
    FinishReload {
        /// Whether the configuration is in force.
        done: bool,
    },

    /// Tells those who follow a drain that it has ended.
    TellEnd,
    /// Withdraws the registrations with rpcbind.
    Unregister,
    /// Ends the workers.
    StopWorkers {
        /// Whether to wait for them: not for those that have not closed their connections in time either.
        patient: bool,
    },
    /// Closes control's descriptors of the sockets.
    LetGo,
    /// Closes the connections to other instances.
    Disconnect,
}

impl Action {
    /// Whether it has an outcome.
    #[must_use]
    pub const fn has_outcome(self) -> bool {
        matches!(
            self,
            Self::HoldPorts
                | Self::Say(_)
                | Self::Confirm
                | Self::StartWorkers { .. }
                | Self::NextPath
                | Self::AwaitSteering
                | Self::Begin
                | Self::ChoosePath
                | Self::Attach
                | Self::GiveSockets(_)
                | Self::Drain { .. }
                | Self::ReadConfiguration
                | Self::Stage
                | Self::Prepare
                | Self::ChangeClaims
                | Self::Switch
                | Self::Undo
        )
    }
}
