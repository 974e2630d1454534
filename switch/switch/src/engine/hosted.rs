//! The engine as a host runs it. The loop of a switch's worker is compiled here.

use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{EngineCommand, Hosted, Worker};

use crate::engine::{SwitchCommand, SwitchEngine};

impl Hosted for SwitchEngine {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}

impl EngineCommand for SwitchCommand {
    /// The latest snapshot is the only one to judge by, and so are other values that replace one another. Packet-outs and
    /// the memory for packet-ins are bounded by control ([`PACKET_OUTS_MAX`](crate::engine::PACKET_OUTS_MAX)).
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
