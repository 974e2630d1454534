//! The ports as controllers see them.

use std::collections::BTreeMap;

use crate::engine::SwitchCommand;
use twinpath_openflow_wire::{PORT_NAME_LEN, Port as Described, number, port_config, port_state};
use twinpath_sys::clock;
use twinpath_sys::ethtool::LinkSettings;
use twinpath_worker::Command;

use crate::offload::{KernelPort, PortForwarded};
use crate::openflow_control::control::Workers;
use crate::openflow_control::counts::PortCounts;
use crate::openflow_control::{OpenFlow, identity, speeds};

/// What is known of a port.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Its number in workers, which is that of OpenFlow, too, unless it is the host's own interface.
    pub number: u16,
    /// Whether it is the host's own interface: OpenFlow's LOCAL.
    pub is_local: bool,
    /// Its name, as configured.
    pub name: String,
    /// Its address, if it has one.
    pub address: Option<[u8; 6]>,
    /// Whether frames can pass.
    pub is_up: bool,
    /// Whether it is set down, by an operator or a controller; `None`: it is no interface, and only controllers set it down.
    pub is_down: Option<bool>,
    /// How it is connected, if it is an interface that says so.
    pub settings: Option<LinkSettings>,
    /// Where it counts.
    pub counts: PortCounts,
    /// The place of its network namespace, and what it is there, if the kernel may forward its frames.
    pub kernel: Option<(usize, KernelPort)>,
}

/// A name as OpenFlow has it: at most 15 bytes.
fn short(name: &str) -> String {
    let end = (0..PORT_NAME_LEN).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end.min(name.len())).unwrap_or(name).to_owned()
}

impl OpenFlow {
    /// What the kernel has forwarded from and to a port, as recorded so far.
    #[must_use]
    pub fn forwarded(&self, number: u16) -> PortForwarded {
        self.controllers.switch_ref().datapath_ref().kernel.forwarded(number.into())
    }

    /// Replaces what is known of the ports. Controllers hear of what has changed, and the tables follow.
    pub fn set_ports(&mut self, facts: Vec<PortFacts>, workers: &mut Workers) {
        let (mut ports, mut counts) = (Vec::with_capacity(facts.len()), BTreeMap::new());
        let kernel: Vec<_> = facts.iter().map(|port| (port.number.into(), port.kernel)).collect();
        self.tables().kernel.set_ports(&kernel);
        let local = facts.iter().find(|port| port.is_local).map(|port| port.number);
        for port in facts {
            let port_no = if port.is_local { number::port::LOCAL } else { port.number.into() };
            let is_down = port.is_down.unwrap_or_else(|| {
                let config = self.controllers.switch_ref().port_config(port_no);
                config.is_some_and(|config| config & port_config::PORT_DOWN != 0)
            });
            let mut described = Described {
                port_no,
                config: if is_down { port_config::PORT_DOWN } else { 0 },
                hw_addr: port.address.unwrap_or_else(|| identity::port_address(self.datapath_id, port_no)),
                name: short(&port.name),
                state: if port.is_up { port_state::LIVE } else { port_state::LINK_DOWN },
                ..Described::default()
            };
            if let Some(settings) = &port.settings {
                speeds::describe(&mut described, settings);
            }
            ports.push(described);
            counts.insert(port_no, port.counts);
        }
        self.tables().ports = counts;
        self.controllers.switch().set_ports(clock::now(), ports);
        if std::mem::replace(&mut self.local, local) != local {
            for worker in workers {
                worker.tell(Command::Engine(SwitchCommand::LocalPort(local)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_what_openflow_has_room_for() {
        assert_eq!(short("veth1"), "veth1");
        assert_eq!(short("veth1@/run/netns/blue"), "veth1@/run/netn");
        assert_eq!(short("interface-name-\u{e9}"), "interface-name-");
        assert_eq!(short("interface-nam\u{e9}\u{e9}"), "interface-nam\u{e9}");
    }
}
