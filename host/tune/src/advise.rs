//! Decides the advised value of each setting from the machine's topology and the user's wish, as a pure function.

mod at_boot;
mod room;

use twinpath_worker::idle::Mode;

use super::form::cpu_list;
use super::knowledge;
use super::parameter::Parameter;
use super::setting::{Id, Owner, Place, Setting};
use super::topology::{Cpu, Interface, Topology};

/// The workload that the machine is tuned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How workers idle.
    pub mode: Mode,
    /// The workers' CPUs, in the order of their queues; empty: they are not pinned.
    pub cpus: Vec<usize>,
}

/// The advice for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The line that it belongs to.
    pub id: Id,
    /// The subject: `eth0`, `rx-0`, `CPU 1`; empty for the machine.
    pub subject: String,
    /// The advised value.
    pub wanted: Wanted,
    /// The reason.
    pub why: String,
    /// The possible cost.
    pub cost: String,
}

/// An advised value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these values: the first, unless the setting has another one of them already.
    Value {
        /// The setting.
        setting: Setting,
        /// The values.
        any_of: Vec<String>,
    },
    /// A number of at least this.
    AtLeast {
        /// The setting.
        setting: Setting,
        /// The smallest good value.
        least: u64,
    },
    /// A setting that is only shown.
    Shown {
        /// The setting.
        setting: Setting,
    },
    /// A setting that depends on the workers' CPUs, which are not known.
    WorkersUnknown {
        /// The setting.
        setting: Setting,
    },
    /// Something that cannot be set by this program.
    Advised {
        /// Its present state.
        now: String,
        /// The advised state; none: the present one.
        should_be: Option<String>,
    },
    /// It does not exist here.
    Absent,
}

impl Wanted {
    /// A fact that is shown, without advice; absent if it is not known.
    fn fact(now: impl Into<String>) -> Self {
        let now = now.into();
        if now.is_empty() { Self::Absent } else { Self::Advised { now, should_be: None } }
    }
}

/// The caveat for several workers.
const SPREAD_BY_HASH: &str = "; on the packet path flows are spread over workers by hash, so it is the same CPU only for \
                              a share of them";

/// All advice, in the order of [`Id::ALL`].
#[must_use]
pub fn advise(topology: &Topology, wish: &Wish) -> Vec<Advice> {
    let adviser = Adviser { topology, wish };
    let mut advice = Vec::new();
    if let Some(interface) = &topology.interface {
        adviser.interface(interface, &mut advice);
    }
    adviser.machine(&mut advice);
    advice
}

struct Adviser<'a> {
    topology: &'a Topology,
    wish: &'a Wish,
}

impl Adviser<'_> {
    fn line(&self, id: Id, subject: impl Into<String>, wanted: Wanted) -> Advice {
        let known = knowledge::of(id, self.wish.mode);
        Advice { id, subject: subject.into(), wanted, why: known.why.to_owned(), cost: known.cost.to_owned() }
    }

    fn interface(&self, interface: &Interface, advice: &mut Vec<Advice>) {
        let (owner, name) = (&interface.owner, interface.owner.name.as_str());
        // Many drivers restart when their rings change, and then choose the CPUs of their interrupts again.
        advice.push(self.rings(interface));
        self.interrupts(interface, advice);
        let coalescing = setting(Place::Coalescing, owner);
        // If both were 0 there would be no interrupt at all (include/uapi/linux/ethtool.h, struct
        // ethtool_coalesce), so that is not set. A device that reports both as 0 is not changed.
        let at_once = [1, 0].map(|frames| format!("adaptive-rx off, rx-usecs 0, rx-frames {frames}"));
        let at_once = Wanted::Value { setting: coalescing, any_of: at_once.to_vec() };
        advice.push(self.line(Id::Coalescing, name, at_once));
        for (id, parameter) in [
            (Id::DeferredIrqs, Parameter::DeferHardIrqs),
            (Id::GroFlushTimeout, Parameter::GroFlushTimeout),
            (Id::IrqSuspension, Parameter::IrqSuspendTimeout),
            (Id::ThreadedNapi, Parameter::Threaded),
        ] {
            let napi = setting(Place::Napi { parameter }, owner);
            advice.push(self.line(id, name, value(napi, "0")));
        }
        for queue in 0..interface.rx_queues {
            let mask = setting(Place::Rps { queue: queue as u32 }, owner);
            advice.push(self.line(Id::Rps, format!("rx-{queue}"), value(mask, "none")));
        }
        for queue in 0..interface.tx_queues {
            advice.push(self.line(Id::Xps, format!("tx-{queue}"), self.transmit_cpus(interface, queue)));
        }
        self.room_at(interface, advice);
        advice.extend(self.node(interface));
    }

    /// Advises interrupts on the CPU of a worker that sleeps, and away from one that spins.
    fn interrupts(&self, interface: &Interface, advice: &mut Vec<Advice>) {
        if interface.interrupts.is_empty() {
            advice.push(self.line(Id::IrqAffinity, interface.owner.name.as_str(), Wanted::Absent));
        }
        for interrupt in &interface.interrupts {
            let place = Place::Interrupt { irq: interrupt.irq, name: interrupt.name.clone() };
            let setting = setting(place, &interface.owner);
            let workers = &self.wish.cpus;
            let wanted = match (self.wish.mode, workers.as_slice()) {
                (_, []) => Wanted::WorkersUnknown { setting },
                (Mode::Poll, _) => match self.receiving_cpus(interface).as_slice() {
                    [] => Wanted::Shown { setting },
                    others => value(setting, &cpu_list(others)),
                },
                (Mode::Interrupt | Mode::Adaptive, _) => {
                    value(setting, &workers[interrupt.queue % workers.len()].to_string())
                }
            };
            let mut line =
                self.line(Id::IrqAffinity, format!("{} {}", interrupt.irq, interrupt.name), wanted);
            if self.wish.mode != Mode::Poll && workers.len() > 1 {
                line.cost.push_str(SPREAD_BY_HASH);
            }
            advice.push(line);
        }
    }

    /// Online CPUs without a worker.
    fn other_cpus(&self) -> Vec<usize> {
        let others = self.topology.cpus.iter().map(|cpu| cpu.number);
        others.filter(|cpu| !self.wish.cpus.contains(cpu)).collect()
    }

    /// The best of these CPUs for receiving for a spinning worker: not isolated, not on a worker's core, on
    /// the device's node. Each condition applies only if some CPU meets it.
    fn receiving_cpus(&self, interface: &Interface) -> Vec<usize> {
        let number = |wanted: usize| self.topology.cpus.iter().find(|cpu| cpu.number == wanted);
        let shares_core = |cpu: usize| {
            let siblings = number(cpu).map_or(&[][..], |cpu| &cpu.siblings);
            siblings.iter().any(|sibling| self.wish.cpus.contains(sibling))
        };
        let near =
            |cpu: usize| interface.node.is_none() || number(cpu).and_then(|cpu| cpu.node) == interface.node;
        let mut cpus = self.other_cpus();
        let mut prefer = |good: &dyn Fn(usize) -> bool| {
            let better: Vec<usize> = cpus.iter().copied().filter(|cpu| good(*cpu)).collect();
            if !better.is_empty() {
                cpus = better;
            }
        };
        prefer(&|cpu| !self.topology.isolated.contains(&cpu));
        prefer(&|cpu| !shares_core(cpu));
        prefer(&near);
        cpus
    }

    /// Advises one transmit queue per worker, and the remaining ones for all other CPUs.
    fn transmit_cpus(&self, interface: &Interface, queue: usize) -> Wanted {
        let setting = setting(Place::Xps { queue: queue as u32 }, &interface.owner);
        let workers = self.wish.cpus.as_slice();
        if interface.tx_queues < 2 {
            return Wanted::Absent;
        }
        match workers.get(queue) {
            None if workers.is_empty() => Wanted::WorkersUnknown { setting },
            // At least one queue must remain for the other CPUs.
            _ if workers.len() >= interface.tx_queues => Wanted::Shown { setting },
            Some(cpu) => value(setting, &cpu.to_string()),
            None => value(setting, &cpu_list(&self.other_cpus())),
        }
    }

    fn node(&self, interface: &Interface) -> Option<Advice> {
        let node = interface.node?;
        let away =
            |cpu: &&Cpu| self.wish.cpus.contains(&cpu.number) && cpu.node.is_some_and(|cpu| cpu != node);
        let away: Vec<usize> = self.topology.cpus.iter().filter(away).map(|cpu| cpu.number).collect();
        let near = self.topology.cpus.iter().filter(|cpu| cpu.node == Some(node)).map(|cpu| cpu.number);
        let near = cpu_list(&near.collect::<Vec<_>>());
        let should_be = (!away.is_empty()).then(|| format!("workers on node {node}: CPUs {near}"));
        let now = format!("device on node {node}");
        Some(self.line(Id::NumaNode, interface.owner.name.as_str(), Wanted::Advised { now, should_be }))
    }

    fn machine(&self, advice: &mut Vec<Advice>) {
        for (id, place) in [(Id::BusyPoll, Place::BusyPoll), (Id::BusyRead, Place::BusyRead)] {
            advice.push(self.line(id, "", value(of_machine(place), "0")));
        }
        let workers: Vec<&Cpu> = self
            .topology
            .cpus
            .iter()
            .filter(|cpu| self.wish.cpus.is_empty() || self.wish.cpus.contains(&cpu.number))
            .collect();
        for cpu in &workers {
            advice.push(self.governor(cpu));
        }
        for cpu in &workers {
            let subject = format!("CPU {}", cpu.number);
            advice.push(self.line(Id::IdleStates, subject, self.idle_states(cpu)));
        }
        for cpu in &workers {
            let shown = Wanted::Shown { setting: of_machine(Place::CpuLatency { cpu: cpu.number as u32 }) };
            advice.push(self.line(Id::CpuLatency, format!("CPU {}", cpu.number), shown));
        }
        let halt = of_machine(Place::HaltPolling);
        advice.push(self.line(Id::HaltPolling, "", Wanted::Shown { setting: halt }));
        advice.push(self.isolated());
        if self.topology.interface.is_some() {
            advice.push(self.irqbalance());
        }
        let pages = of_machine(Place::HugePages);
        let any_of = vec!["madvise".to_owned(), "never".to_owned()];
        advice.push(self.line(Id::Thp, "", Wanted::Value { setting: pages, any_of }));
        advice.push(self.memlock());
        self.room(advice);
        self.at_boot(advice);
    }

    fn governor(&self, cpu: &Cpu) -> Advice {
        let setting = of_machine(Place::Governor { cpu: cpu.number as u32 });
        let performance = cpu.governors.iter().any(|governor| governor == "performance");
        let wanted = if performance { value(setting, "performance") } else { Wanted::Shown { setting } };
        self.line(Id::Governor, format!("CPU {}", cpu.number), wanted)
    }

    fn idle_states(&self, cpu: &Cpu) -> Wanted {
        let enabled = || cpu.idle_states.iter().filter(|state| !state.disabled);
        let Some(deepest) = enabled().max_by_key(|state| state.exit_us) else { return Wanted::Absent };
        let disabled = cpu.idle_states.len() - enabled().count();
        let mut now = format!("{} us to leave {:?}", deepest.exit_us, deepest.name);
        if disabled > 0 {
            now.push_str(&format!(", {disabled} disabled"));
        }
        Wanted::Advised { now, should_be: None }
    }

    fn isolated(&self) -> Advice {
        let missing = |from: &[usize]| self.wish.cpus.iter().any(|cpu| !from.contains(cpu));
        let (isolated, tickless) = (&self.topology.isolated, &self.topology.tickless);
        // At least one CPU must remain for everything else.
        let possible = self.wish.mode == Mode::Poll && !self.other_cpus().is_empty();
        let lacking = possible && (missing(isolated) || missing(tickless));
        let list = cpu_list(&self.wish.cpus);
        let should_be = lacking.then(|| format!("isolcpus={list} nohz_full={list}"));
        let now = match tickless.as_slice() {
            [] => cpu_list(isolated),
            _ => format!("{}, without tick {}", cpu_list(isolated), cpu_list(tickless)),
        };
        self.line(Id::IsolatedCpus, "", Wanted::Advised { now, should_be })
    }

    fn irqbalance(&self) -> Advice {
        let interrupts = self.topology.interface.as_ref().map_or(&[][..], |interface| &interface.interrupts);
        let wanted = match self.topology.irqbalance {
            None => Wanted::Advised { now: "not running".to_owned(), should_be: None },
            Some(pid) => {
                let numbers = interrupts.iter().map(|interrupt| format!(" --banirq={}", interrupt.irq));
                let numbers = numbers.collect::<String>();
                let should_be = (!numbers.is_empty()).then(|| format!("stopped, or run with{numbers}"));
                Wanted::Advised { now: format!("running, pid {pid}"), should_be }
            }
        };
        self.line(Id::Irqbalance, "", wanted)
    }

    fn memlock(&self) -> Advice {
        let memlock = &self.topology.memlock;
        let now = match (memlock.limit.as_str(), memlock.exempt) {
            (_, true) => "no limit for this user (CAP_IPC_LOCK)".to_owned(),
            ("", false) => return self.line(Id::Memlock, "", Wanted::Absent),
            ("unlimited", false) => "unlimited".to_owned(),
            (bytes, false) => format!("{bytes} bytes"),
        };
        let enough = memlock.exempt || memlock.limit == "unlimited";
        let should_be = (!enough).then(|| "ulimit -l unlimited, or LimitMEMLOCK=infinity".to_owned());
        self.line(Id::Memlock, "", Wanted::Advised { now, should_be })
    }
}

fn setting(place: Place, owner: &Owner) -> Setting {
    Setting { place, owner: Some(owner.clone()) }
}

fn of_machine(place: Place) -> Setting {
    Setting { place, owner: None }
}

fn value(setting: Setting, value: &str) -> Wanted {
    Wanted::Value { setting, any_of: vec![value.to_owned()] }
}
