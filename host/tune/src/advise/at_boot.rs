//! Advice about how the machine was started. This program only shows it; the operator changes it.

use twinpath_worker::idle::Mode;

use super::{Advice, Adviser, Wanted};
use crate::form::cpu_list;
use crate::setting::Id;

/// The parameter with which an idle CPU spins.
const IDLE_POLL: &str = "idle=poll";

impl Adviser<'_> {
    pub(super) fn at_boot(&self, advice: &mut Vec<Advice>) {
        let boot = &self.topology.boot;
        advice.push(self.line(Id::Preemption, "", Wanted::fact(boot.preemption.as_str())));
        let threaded = match boot.threaded_irqs {
            Some(by @ "threadirqs") => Wanted::Advised {
                now: format!("yes, by {by}"),
                should_be: Some(format!("started without {by}")),
            },
            Some(by) => Wanted::fact(format!("yes, by {by}")),
            None => Wanted::fact("no"),
        };
        advice.push(self.line(Id::ThreadedIrqs, "", threaded));
        let parameters = boot.idle_parameters.join(" ");
        let spins = self.wish.mode != Mode::Poll && boot.idle_parameters.iter().any(|set| set == IDLE_POLL);
        let idle = match parameters.is_empty() {
            true => Wanted::fact("none set"),
            false => Wanted::Advised {
                now: parameters,
                should_be: spins.then(|| format!("started without {IDLE_POLL}")),
            },
        };
        advice.push(self.line(Id::IdleAtBoot, "", idle));
        advice.push(self.line(Id::Smt, "", self.smt()));
        let mitigations = match &boot.mitigations {
            None => Wanted::Absent,
            Some(names) if names.is_empty() => Wanted::fact("none in use"),
            Some(names) => Wanted::fact(format!("in use for {}", names.join(", "))),
        };
        advice.push(self.line(Id::Mitigations, "", mitigations));
    }

    /// Advises that a worker that spins has its core for itself.
    fn smt(&self) -> Wanted {
        let Some(active) = self.topology.boot.smt else { return Wanted::Absent };
        let workers = &self.wish.cpus;
        let on_core = self.topology.cpus.iter().filter(|cpu| workers.contains(&cpu.number));
        let mut siblings: Vec<usize> = on_core.flat_map(|cpu| cpu.siblings.iter().copied()).collect();
        siblings.retain(|cpu| !workers.contains(cpu));
        let list = cpu_list(&siblings);
        let now = match (active, siblings.is_empty()) {
            (false, _) => "off".to_owned(),
            (true, true) => "on".to_owned(),
            (true, false) => format!("on: CPU {list} on a worker's core"),
        };
        let shares = active && self.wish.mode == Mode::Poll && !siblings.is_empty();
        Wanted::Advised { now, should_be: shares.then(|| format!("CPU {list} left idle, or offline")) }
    }
}
