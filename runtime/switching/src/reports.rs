//! The report of a switch.

use twinpath_host::{report_process, rows};
use twinpath_inspect::Counter;
use twinpath_report::{self as report, Report};
use twinpath_switch::SwitchCounters;

use super::port::{On, Port, State};
use super::{PATH, Switching};

impl Switching {
    /// The configuration keys, with what `twinpath set` has changed since.
    fn report_config(&self) -> Vec<report::Setting> {
        let mut settings = self.plan.settings.clone();
        let workers: Vec<_> = self.workers.iter().map(|worker| (worker.mode(), worker.goal())).collect();
        twinpath_config::mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
    }

    /// Everything `show` can tell.
    pub(super) fn report_all(&mut self) -> Report {
        self.ports.iter_mut().for_each(Port::count_lost);
        let pool_bytes = self.workers.iter().map(|worker| worker.pool_bytes()).sum::<u64>();
        Report {
            instance: report::Instance {
                service: "switch".to_owned(),
                ports: vec![self.plan.name.clone()],
                ..report_process(self.started, pool_bytes, &self.confined)
            },
            interfaces: self.ports.iter().map(|port| self.report_interface(port)).collect(),
            machine: Some(self.machine.costs.clone()),
            workers: self.workers.iter().map(|worker| worker.report(self.machine.request.clone())).collect(),
            drops: self.report_drops(),
            config: self.report_config(),
            ..Report::default()
        }
    }

    fn report_interface(&self, port: &Port) -> report::Interface {
        let link = self.homes.link(port.home, port.ifindex).filter(|_| port.is_attached());
        let queues = self.workers.iter().flat_map(|worker| {
            let own = worker.queues().iter().filter(|queue| queue.id.port == port.number);
            own.map(|queue| queue.report(worker.number(), PATH, worker.mode(), port.lost))
        });
        report::Interface {
            name: port.name.to_string(),
            ifindex: if port.is_attached() { port.ifindex } else { 0 },
            kind: link.map_or_else(|| port.name.kind().to_owned(), |link| link.kind.clone()),
            path: PATH.to_owned(),
            link: port.link(link.map(|link| link.state())).to_owned(),
            mtu: link.map_or(0, |link| link.mtu),
            why: port.why(&self.plan.name),
            queues: queues.collect(),
            ..report::Interface::default()
        }
    }

    /// What workers have counted of the switch, summed up.
    pub(super) fn counted(&self, count: fn(&SwitchCounters) -> &Counter) -> u64 {
        self.counted.iter().map(|counters| count(counters).get()).sum()
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let name_of = |number: u16| {
            let port = self.ports.iter().find(|port| port.number == number);
            port.map_or_else(|| format!("port {number}"), |port| port.name.to_string())
        };
        let mut drops: Vec<_> = self.workers.iter().flat_map(|worker| worker.drops()).collect();
        for worker in &self.workers {
            drops.extend(worker.drops_of_queues(|id| name_of(id.port)));
        }
        for port in &self.ports {
            drops.extend(rows(&port.name.to_string(), [("ring_full", port.lost)].into_iter()));
        }
        let not_learned = [
            ("mac_limit", self.counted(|counted| &counted.mac_limit)),
            ("mac_table_full", self.counted(|counted| &counted.table_full)),
        ];
        drops.extend(rows("not learned", not_learned.into_iter()));
        drops.extend(rows("control", [("netlink_overrun", self.homes.overruns())].into_iter()));
        drops
    }
}

impl Port {
    /// Its state in a word; `link` is that of its interface.
    pub(super) fn link(&self, link: Option<&'static str>) -> &'static str {
        match (&self.state, &self.on, link) {
            (State::Attached, On::Memory(_), _) => "up",
            (State::Attached, _, Some(state)) => state,
            // A TAP interface of ours that was moved to another namespace.
            (State::Attached, ..) => "elsewhere",
            (State::Gone, On::Memory(_), _) => "waiting",
            (State::Gone, ..) => "gone",
            (State::Refused(_), ..) => "refused",
        }
    }

    /// A sentence about what it is on.
    fn why(&self, switch: &str) -> String {
        match (&self.state, &self.on) {
            (State::Refused(why), _) => why.clone(),
            (State::Gone, On::Interface(_)) => {
                "the interface is not there; the port is in use when it comes".to_owned()
            }
            (_, On::Interface(_)) => format!("a port of {switch}, withheld from the kernel's stack"),
            (_, On::Local(_)) => format!("this host's own interface on {switch}"),
            (_, On::Memory(memory)) => match memory.application() {
                Some(pid) => format!("process {pid} has it; it connected to {}", memory.path().display()),
                None => format!("an application connects to {}", memory.path().display()),
            },
        }
    }
}
