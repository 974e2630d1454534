//! The report of a switch.

use std::collections::{BTreeSet, HashMap};

use crate::engine::SwitchEngine;
use twinpath_config::PortMode;
use twinpath_host::{KnownQueue, WorkerHandle, report_process, rows};
use twinpath_inspect::{ControlReason, Counter, SwitchCounters, SwitchCounts};
use twinpath_observe::report::{self as report, Report};
use twinpath_port::PortId;
use twinpath_sys::clock;

use super::port::Port;
use super::{PATH, Switching};
use crate::offload::PortForwarded;
use crate::openflow_control::OpenFlow;

/// A queue of a port, and the worker that serves it.
type WorkersQueue<'a> = (&'a WorkerHandle<SwitchEngine>, &'a KnownQueue);

/// Maximum number of addresses that are listed: some 10 MiB of an answer.
const MACS_MAX: usize = 100_000;

impl Switching {
    /// The configuration keys, with what `twinpath set` has changed since.
    fn report_config(&self) -> Vec<twinpath_config::Setting> {
        let mut settings = self.settings.clone();
        let workers: Vec<_> = self.workers.iter().map(|worker| (worker.mode(), worker.goal())).collect();
        twinpath_config::mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
    }

    /// Everything `show` can tell.
    pub(super) fn report_all(&mut self) -> Report {
        self.look_at_stuck();
        let pool_bytes = self.workers.iter().map(|worker| worker.pool_bytes()).sum::<u64>();
        let queues = self.queues();
        let loops: HashMap<u16, u16> =
            self.shared.loops(clock::now()).map(|found| (found.blocked, found.other)).collect();
        let none = Vec::new();
        let of = |port: &Port| queues.get(&port.number).unwrap_or(&none).as_slice();
        Report {
            instance: report::Instance {
                kind: report::InstanceKind::Switch,
                ports: vec![self.plan.name.clone()],
                configuration: self.source.is_some().then(|| report::Configuration {
                    read_s: clock::now().since(self.read_at).as_secs_f64(),
                    ..self.reloads.clone()
                }),
                ..report_process(self.started, pool_bytes, &self.confined)
            },
            interfaces: self.ports.iter().map(|port| self.report_interface(port, of(port))).collect(),
            machine: Some(self.machine.costs.clone()),
            workers: self.workers.iter().map(|worker| self.report_worker(worker)).collect(),
            drops: self.report_drops(),
            config: self.report_config(),
            switch: Some(self.report_switch()),
            controllers: self.openflow.as_ref().map(OpenFlow::controllers).unwrap_or_default(),
            ports: self
                .ports
                .iter()
                .filter(|port| !port.removed)
                .map(|port| self.report_port(port, of(port), &loops))
                .collect(),
            ..Report::default()
        }
    }

    fn report_worker(&self, worker: &WorkerHandle<SwitchEngine>) -> report::Worker {
        report::Worker {
            times_stuck: worker.queues().iter().map(|queue| queue.counters.times_stuck.get()).sum(),
            ..worker.report(self.machine.request.clone())
        }
    }

    /// The queues of each port, by its number, with the workers that serve them.
    fn queues(&self) -> HashMap<u16, Vec<WorkersQueue<'_>>> {
        let mut queues: HashMap<u16, Vec<_>> = HashMap::new();
        for worker in &self.workers {
            worker
                .queues()
                .iter()
                .for_each(|queue| queues.entry(queue.id.port).or_default().push((worker, queue)));
        }
        queues
    }

    fn report_interface(&self, port: &Port, queues: &[WorkersQueue<'_>]) -> report::Interface {
        let link = self.homes.link(port.home, port.ifindex).filter(|_| port.is_attached());
        let queues =
            queues.iter().map(|(worker, queue)| queue.report(worker.number(), PATH, worker.mode(), 0));
        report::Interface {
            name: port.name.to_string(),
            ifindex: if port.is_attached() { port.ifindex } else { 0 },
            kind: link.map_or_else(|| port.name.kind().word().to_owned(), |link| link.kind.clone()),
            path: PATH.to_owned(),
            link: port.link(link.map(|link| link.state())).to_owned(),
            mtu: match port.on.mtu() {
                Some(mtu) if port.is_attached() => mtu,
                _ => link.map_or(0, |link| link.mtu),
            },
            why: port.why(&self.plan.name),
            queues: queues.collect(),
            crossed: Some(self.forwarded(port)).filter(|it| *it != PortForwarded::default()).map(|it| {
                report::Crossed {
                    frames_in: it.packets_in,
                    frames_out: it.packets_out,
                    bytes_in: it.bytes_in,
                    bytes_out: it.bytes_out,
                }
            }),
            ..report::Interface::default()
        }
    }

    fn report_switch(&self) -> report::Switch {
        let config = self.snapshots.current.config();
        report::Switch {
            name: self.plan.name.clone(),
            vlans: config.vlans,
            ageing_s: config.ageing.as_secs(),
            addresses: self.ports.iter().map(|port| self.learned_on(port)).sum(),
            mac_entries_max: self.shared.table.places() as u64,
            counts: SwitchCounts::sum(self.counted.iter().map(|counters| &**counters)),
            kernel_entries: self.learned.as_ref().map_or(0, |learned| learned.entries() as u64),
            openflow: self.openflow.as_ref().map(OpenFlow::summary),
        }
    }

    fn learned_on(&self, port: &Port) -> u64 {
        if port.is_attached() { self.shared.table.learned_on(port.number).into() } else { 0 }
    }

    /// What the kernel has forwarded from and to a port.
    fn forwarded(&self, port: &Port) -> PortForwarded {
        let by_flows = self.openflow.as_ref().map(|it| it.forwarded(port.number));
        let by_addresses = || self.learned.as_ref().map(|it| it.forwarded(port.number));
        by_flows.or_else(by_addresses).unwrap_or_default()
    }

    fn report_port(
        &self,
        port: &Port,
        queues: &[WorkersQueue<'_>],
        loops: &HashMap<u16, u16>,
    ) -> report::SwitchPort {
        let link = self.homes.link(port.home, port.ifindex).map(|link| link.state());
        let counts = queues.iter().fold(port.before, |counts, (_, queue)| counts.with(&queue.counters));
        let forwarded = self.forwarded(port);
        let dropped = queues.iter().flat_map(|(_, queue)| queue.counters.drops.happened());
        let dropped = dropped.map(|(_, count)| count).sum::<u64>();
        let config = &port.config;
        let vlans = match config.mode {
            PortMode::Access => config.vlan.to_string(),
            PortMode::Trunk if config.vlans.is_empty() => "all".to_owned(),
            PortMode::Trunk => config.vlans.to_string(),
            PortMode::Monitor => "none".to_owned(),
        };
        let other = loops.get(&port.number).filter(|_| port.is_attached());
        report::SwitchPort {
            name: port.name.to_string(),
            number: port.number.into(),
            kind: port.name.kind().word().to_owned(),
            state: port.link(link).to_owned(),
            why: port.why(&self.plan.name),
            mode: config.mode.name().to_owned(),
            vlans,
            native: config.native,
            addresses: self.learned_on(port),
            mirror_to: config.mirror_to.as_ref().map(ToString::to_string),
            blocked_for: other.map(|other| self.name_of(*other)),
            frames_in: counts.frames_in + forwarded.packets_in,
            frames_out: counts.frames_out + forwarded.packets_out,
            bytes_in: counts.bytes_in + forwarded.bytes_in,
            bytes_out: counts.bytes_out + forwarded.bytes_out,
            kernel_in: forwarded.packets_in,
            kernel_out: forwarded.packets_out,
            dropped,
        }
    }

    /// The addresses that the switch knows, by VLAN and address.
    pub(super) fn report_macs(&self) -> Vec<report::Mac> {
        let (mut macs, now) = (Vec::new(), clock::now());
        let (table, ageing) = (&self.shared.table, self.snapshots.current.ageing());
        table.visit(0..table.parts(), now, ageing, |entry| {
            if macs.len() < MACS_MAX {
                macs.push(entry);
            }
        });
        macs.sort_unstable_by_key(|entry| (entry.vlan, entry.mac.0));
        let numbers: BTreeSet<u16> = macs.iter().map(|entry| entry.port).collect();
        let names: HashMap<u16, String> =
            numbers.into_iter().map(|number| (number, self.name_of(number))).collect();
        let of = |entry: twinpath_forwarding::learning::Entry| report::Mac {
            mac: entry.mac.to_string(),
            vlan: entry.vlan,
            port: names.get(&entry.port).cloned().unwrap_or_default(),
            age_s: entry.age.map(|age| age.as_secs()),
        };
        macs.into_iter().map(of).collect()
    }

    /// The name of the port with that number.
    pub(super) fn name_of(&self, number: u16) -> String {
        let port = self.ports.iter().find(|port| port.number == number);
        port.map_or_else(|| format!("port {number}"), |port| port.name.to_string())
    }

    /// What workers have counted of the switch, summed up.
    pub(super) fn counted(&self, count: fn(&SwitchCounters) -> &Counter) -> u64 {
        self.counted.iter().map(|counters| count(counters).get()).sum()
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let mut drops: Vec<_> = self.workers.iter().flat_map(|worker| worker.drops()).collect();
        for worker in &self.workers {
            let name_of = |id: PortId| self.homes.carried_by(id).unwrap_or_else(|| self.name_of(id.port));
            drops.extend(worker.drops_of_queues(name_of));
        }
        let mut add = |place: &str, counts: &[(ControlReason, u64)]| {
            drops.extend(rows(place, counts.iter().map(|(reason, count)| (reason.name(), *count))));
        };
        add(
            &self.plan.name,
            &[
                (ControlReason::MacLimit, self.counted(|counted| &counted.mac_limit)),
                (ControlReason::MacTableFull, self.counted(|counted| &counted.table_full)),
            ],
        );
        add(
            "control",
            &[
                (ControlReason::NetlinkOverrun, self.homes.overruns()),
                (ControlReason::CaptureMissed, self.captures.missed()),
            ],
        );
        for (place, counts) in self.openflow.iter().flat_map(OpenFlow::drops) {
            drops.extend(rows(place, counts.into_iter()));
        }
        drops
    }
}
