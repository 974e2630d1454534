//! OpenFlow's tables on a worker: the version in force, and what control has lent it.

use twinpath_inspect::Reason;
use twinpath_pipeline::Worker;

use crate::message::{Forwarding, LENT_MAX, PacketInBuffer, SwitchCommand, SwitchEvent};

/// This worker's end of the tables.
#[derive(Debug)]
pub(crate) struct Tables {
    worker: Worker,
    pub(crate) forwarding: Forwarding,
    /// OpenFlow's LOCAL.
    local: Option<u16>,
    /// Memory for packet-ins.
    #[allow(clippy::vec_box, reason = "they come and go in mailboxes, which pass pointers on")]
    lent: Vec<Box<PacketInBuffer>>,
    packet_in_rate: u32,
}

impl Tables {
    pub(crate) fn new(worker: Worker) -> Self {
        Self {
            worker,
            forwarding: Forwarding::Tables,
            local: None,
            lent: Vec::with_capacity(LENT_MAX),
            packet_in_rate: 0,
        }
    }

    /// Does a command, and returns what control must hear.
    pub(crate) fn command(&mut self, command: SwitchCommand) -> Option<SwitchEvent> {
        match command {
            SwitchCommand::Tables(snapshot) => {
                let version = snapshot.number();
                return Some(SwitchEvent::TablesAdopted { version, former: self.worker.replace(snapshot) });
            }
            SwitchCommand::Lend(buffer) if self.lent.len() == LENT_MAX => {
                return Some(SwitchEvent::PacketIn(buffer));
            }
            SwitchCommand::Lend(buffer) => self.lent.push(buffer),
            SwitchCommand::PacketOut(mut packet) => {
                packet.refused = Some(Reason::TableMiss);
                return Some(SwitchEvent::PacketOutDone(packet));
            }
            SwitchCommand::Forward(forwarding) => self.forwarding = forwarding,
            SwitchCommand::LocalPort(port) => self.local = port,
            SwitchCommand::PacketInRate(rate) => self.packet_in_rate = rate,
            // It belongs to the learning switch.
            SwitchCommand::Adopt(..) => {}
        }
        None
    }
}
