//! Compiles the loop of a serving worker: the engine as a host runs it.

use twinpath_udp::egress::Update;
use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{EngineCommand, Hosted, Worker};

use crate::{Demux, DemuxCommand, ServeCommand};

impl Hosted for Demux {
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

    /// A segment that is still too long causes another message.
    fn is_hint(&self) -> bool {
        matches!(self, Self::TooBig(_))
    }
}

impl EngineCommand for DemuxCommand {
    fn voids(&self, earlier: &Self) -> bool {
        matches!((self, earlier), (Self::Each(command), Self::Each(earlier)) if command.voids(earlier))
    }

    fn ask_again() -> Option<Self> {
        ServeCommand::ask_again().map(Self::Each)
    }

    fn is_hint(&self) -> bool {
        matches!(self, Self::Each(command) | Self::One(_, command) if command.is_hint())
    }
}
