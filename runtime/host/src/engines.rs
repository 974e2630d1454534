//! The engines that a host can run. The generic code of their workers is compiled here, once for all callers.

#[cfg(feature = "bridge")]
use twinpath_bridge::BridgeEngine;
use twinpath_serve::{Demux, DemuxCommand, ServeCommand};
use twinpath_stack::egress::Update;
#[cfg(feature = "switch")]
use twinpath_switch_engine::{SwitchCommand, SwitchEngine};
use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{Engine, Worker};

use crate::outbox::EngineCommand;

/// An engine that a host can run.
pub trait Hosted: Engine<Command: EngineCommand> + Sized {
    /// Starts a worker on a thread placed as `placement` says, and waits until it has started.
    ///
    /// # Errors
    ///
    /// [`PlaceError`]
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError>;
}

impl Hosted for Demux {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}

#[cfg(feature = "bridge")]
impl Hosted for BridgeEngine {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}

#[cfg(feature = "switch")]
impl Hosted for SwitchEngine {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}

impl EngineCommand for ServeCommand {
    fn voids(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Addresses(_), Self::Addresses(_)) => true,
            (Self::Egress(update), Self::Egress(earlier)) => update.voids(earlier),
            _ => false,
        }
    }

    fn ask_again() -> Option<Self> {
        Some(Self::Egress(Update::Clear))
    }
}

impl EngineCommand for DemuxCommand {
    fn voids(&self, earlier: &Self) -> bool {
        matches!((self, earlier), (Self::Each(command), Self::Each(earlier)) if command.voids(earlier))
    }

    fn ask_again() -> Option<Self> {
        ServeCommand::ask_again().map(Self::Each)
    }
}

#[cfg(feature = "switch")]
impl EngineCommand for SwitchCommand {
    /// The latest snapshot is the only one to judge by, and so are other values that replace one another. Packet-outs and
    /// the memory for packet-ins are bounded by control ([`twinpath_switch_engine::PACKET_OUTS_MAX`]).
    fn voids(&self, earlier: &Self) -> bool {
        matches!(
            (self, earlier),
            (Self::Adopt(..), Self::Adopt(..))
                | (Self::Tables(_), Self::Tables(_))
                | (Self::Forward(_), Self::Forward(_))
                | (Self::LocalPort(_), Self::LocalPort(_))
                | (Self::PacketInRate(_), Self::PacketInRate(_))
        )
    }

    fn ask_again() -> Option<Self> {
        None
    }
}

#[cfg(feature = "bridge")]
impl EngineCommand for () {
    fn voids(&self, &(): &()) -> bool {
        true
    }

    fn ask_again() -> Option<Self> {
        None
    }
}
