//! The part of a switch that is for OpenFlow: what [`OpenFlow`] has to know of ports and workers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::SwitchEvent;
use twinpath_config::{PortKind, Switch};

use super::Switching;
use super::port::Port;
use crate::controllers::Bound;
use crate::homes::HomeOffload;
use crate::offload::KernelPort;
use crate::openflow_control::{OpenFlow, PortCounts, PortFacts, Workers};

/// Bytes of an Ethernet header.
const ETHERNET_LEN: u32 = 14;

/// Why a switch without controllers cannot get any while it runs, and the other way round.
const WITHOUT_TABLES: &str = "switch.controller: whether a switch has OpenFlow tables is decided when it starts: restart it to give it its \
                              first controller or listener, or to take away the last";

impl Switching {
    /// Does something with its OpenFlow and the workers, if it has tables.
    pub(super) fn with_openflow(&mut self, what: impl FnOnce(&mut OpenFlow, &mut Workers)) {
        if let Some(openflow) = &mut self.openflow {
            what(openflow, &mut self.workers);
        }
    }

    /// What a worker says of OpenFlow.
    pub(super) fn openflow_event(&mut self, worker: usize, event: SwitchEvent) {
        self.with_openflow(|openflow, workers| match event {
            SwitchEvent::TablesAdopted { version, former } => {
                openflow.adopted(worker, version, former, workers);
            }
            SwitchEvent::PacketIn(buffer) => openflow.packet_in(&mut workers[worker], buffer),
            SwitchEvent::Sample(sample) => openflow.sampled(&mut workers[worker], sample),
            SwitchEvent::PacketOutDone(packet) => openflow.packet_out_is_back(worker, &packet),
            SwitchEvent::Adopted(..) | SwitchEvent::Notice(_) => {}
        });
    }

    /// After other events: ports may have changed, and so the tables; workers may have room for packet-outs again.
    pub(super) fn finish_openflow(&mut self) {
        if self.openflow.is_none() {
            return;
        }
        let offloads = if self.ports_changed { self.homes.take_offloads() } else { Vec::new() };
        let goes_on = offloads.iter().any(|home| !home.left.is_empty());
        for HomeOffload { home, offload, left } in offloads {
            self.with_openflow(|openflow, workers| openflow.add_kernel(home, offload, left, workers));
        }
        if std::mem::take(&mut self.ports_changed) {
            let facts = self.port_facts();
            self.with_openflow(|openflow, workers| openflow.set_ports(facts, workers));
        }
        if let Some(openflow) = self.openflow.as_ref().filter(|_| goes_on) {
            tracing::info!(
                "goes on with {} entries of the former process's flows in the kernel",
                openflow.kept()
            );
        }
        self.with_openflow(OpenFlow::finish);
        self.configure_links();
    }

    /// Sets the interfaces of ports down that controllers have set down, and up again, so that the other end of the link sees it:
    /// hardware and Open vSwitch do so.
    fn configure_links(&mut self) {
        let configured = self.openflow.as_mut().map(OpenFlow::take_configured).unwrap_or_default();
        for (number, down) in configured {
            let is_it = |port: &&mut Port| u32::from(port.number) == number;
            let Some(port) = self.ports.iter_mut().find(is_it) else { continue };
            let link = self.homes.link(port.home, port.ifindex);
            if link.is_none_or(|link| port.is_down(link).is_none_or(|is_down| is_down == down)) {
                continue;
            }
            match self.homes.set_up(port.home, port.ifindex, !down) {
                Ok(()) => {
                    port.on.carried_mut().into_iter().for_each(|carried| carried.asked_down = Some(down));
                }
                Err(error) => {
                    let to = if down { "down" } else { "up" };
                    tracing::warn!("{}: its interface is not set {to}: {error}", port.name);
                    // Controllers are told how it is.
                    self.ports_changed = true;
                }
            }
        }
    }

    /// What controllers are told of the ports, and where these count.
    fn port_facts(&self) -> Vec<PortFacts> {
        let mut queues: HashMap<u16, Vec<_>> = HashMap::new();
        for queue in self.workers.iter().flat_map(|worker| worker.queues()) {
            queues.entry(queue.id.port).or_default().push(Arc::clone(&queue.counters));
        }
        let ports = self.ports.iter().filter(|port| !port.removed);
        ports
            .map(|port| {
                let link = self.homes.link(port.home, port.ifindex).filter(|_| port.is_attached());
                PortFacts {
                    number: port.number,
                    is_local: port.name.kind() == PortKind::Local,
                    name: port.name.to_string(),
                    address: link.and_then(|link| link.mac).map(|mac| mac.0),
                    is_down: link.and_then(|link| port.is_down(link)),
                    is_up: port.link(link.map(|link| link.state())) == "up",
                    kernel: self.kernel_port(port),
                    settings: port.on.carried().and_then(|carried| carried.settings),
                    counts: PortCounts {
                        before: port.before,
                        queues: queues.remove(&port.number).unwrap_or_default(),
                    },
                }
            })
            .collect()
    }

    /// A port as the kernel may forward its frames; not if somebody is to have copies of them.
    pub(super) fn kernel_port(&self, port: &Port) -> Option<(usize, KernelPort)> {
        let (carried, link) = (port.carried()?, self.homes.link(port.home, port.ifindex)?);
        // What is sent to a port whose link is down, workers count (port_down).
        let is_plain =
            link.state() == "up" && carried.joins_with.is_none() && port.config.mirror_to.is_none();
        let frame_len_max = link.mtu + ETHERNET_LEN;
        is_plain.then(|| {
            let kernel = KernelPort {
                ifindex: port.ifindex,
                peer: carried.peer,
                frame_len_max,
                has_xdp: carried.xdp == Some(Ok(())),
                takes_xdp: self.homes.takes_xdp(port.home, port.ifindex),
            };
            (port.home, kernel)
        })
    }

    /// What can fail of another configuration: binds the addresses that are new. Mistakes are added to the list.
    pub(super) async fn listeners_for(&self, wanted: &Switch, mistakes: &mut Vec<String>) -> Vec<Bound> {
        match &self.openflow {
            Some(openflow) if wanted.has_tables() => {
                openflow.bind_new(self.plan.switch(), wanted, mistakes).await
            }
            None if !wanted.has_tables() => Vec::new(),
            _ => {
                mistakes.push(WITHOUT_TABLES.to_owned());
                Vec::new()
            }
        }
    }
}
