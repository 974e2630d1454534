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
            (Self::Addresses(_), Self::Addresses(_)) | (Self::Routes, Self::Routes) => true,
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
        match (self, earlier) {
            (Self::Each(command), Self::Each(earlier)) => command.voids(earlier),
            // Nobody waits for the earlier one any more.
            (Self::List(_), Self::List(_)) => true,
            _ => false,
        }
    }

    fn ask_again() -> Option<Self> {
        ServeCommand::ask_again().map(Self::Each)
    }

    fn is_hint(&self) -> bool {
        matches!(self, Self::Each(command) | Self::One(_, command) if command.is_hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListFilter, Listing};

    #[test]
    fn a_worker_that_is_stuck_is_to_make_one_list_at_most() {
        let list = |number| DemuxCommand::List(Box::new(Listing::new(number, ListFilter::default(), 10)));
        assert!(list(2).voids(&list(1)));
        let other = DemuxCommand::Each(ServeCommand::Begin);
        assert!(!list(2).voids(&other) && !other.voids(&list(1)));
    }
}
