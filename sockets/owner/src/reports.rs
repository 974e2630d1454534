//! The report of an owner.

use twinpath_attach::LeasedInterface;
use twinpath_attach::mirror::table::Link;
use twinpath_host::report_process;
use twinpath_inspect::ControlReason;
use twinpath_observe::report::{self as report, Report};

use crate::Owner;
use crate::program::Program;

/// The path of leases in reports.
const PATH: &str = "packet";

impl Owner {
    /// The whole report.
    pub(crate) fn report_all(&self) -> Report {
        Report {
            instance: report::Instance {
                kind: report::InstanceKind::Sockets,
                ports: vec![self.door.path().display().to_string()],
                ..report_process(self.started, 0, &self.confined)
            },
            interfaces: vec![self.report_interface()],
            rules: report::Rules { claims: self.report_claims(), verdicts: self.report_verdicts() },
            programs: self
                .programs
                .iter()
                .map(|program| report_program(program, self.leased.as_ref()))
                .collect(),
            drops: self.report_drops(),
            ..Report::default()
        }
    }

    fn report_interface(&self) -> report::Interface {
        let link = self.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex));
        let limits = self.plan.limits;
        report::Interface {
            name: self.plan.interface.clone(),
            ifindex: self.ifindex.unwrap_or(0),
            kind: link.map(|link| link.kind.clone()).unwrap_or_default(),
            path: PATH.to_owned(),
            link: link.map_or("gone", Link::state).to_owned(),
            mtu: link.map_or(0, |link| link.mtu),
            why: format!(
                "programs connect to {}: {} of at most {}, {} of a user; {} sockets of each, {} of a user",
                self.door.path().display(),
                self.programs.len(),
                limits.programs,
                limits.programs_per_user,
                limits.sockets_per_program,
                limits.sockets_per_user
            ),
            ..report::Interface::default()
        }
    }

    fn report_claims(&self) -> Vec<String> {
        let rings = self.programs.iter().flat_map(|program| &program.rings);
        rings.map(|ring| format!("udp port {} of {}", ring.local.port(), ring.local.ip())).collect()
    }

    fn report_verdicts(&self) -> Vec<report::Count> {
        let counters = self.leased.as_ref().and_then(|interface| interface.counters().ok());
        let given = counters.into_iter().flatten().filter(|(_, count)| *count > 0);
        given.map(|(name, count)| report::Count { name: name.to_owned(), count }).collect()
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let overruns = self.mirror.counters().overruns;
        let counts = [
            (ControlReason::ProgramsRefused, self.refused.programs.get()),
            (ControlReason::LeasesRefused, self.refused.leases.get()),
            (ControlReason::ProgramFault, self.refused.faults.get()),
            (ControlReason::RingUnread, self.unread.get()),
            (ControlReason::NetlinkOverrun, overruns),
        ];
        let happened = counts.into_iter().filter(|(_, count)| *count > 0);
        let drop = |(reason, count): (ControlReason, u64)| report::Drop {
            place: "control".to_owned(),
            reason: reason.name().to_owned(),
            count,
        };
        happened.map(drop).collect()
    }
}

fn report_program(program: &Program, leased: Option<&LeasedInterface>) -> report::Program {
    let put = |(process, interface): (u32, &LeasedInterface)| interface.put_for(process);
    let put_now = program.process.zip(leased).map_or(program.put_before, put);
    report::Program {
        pid: program.pid,
        user: program.user,
        name: program.name.clone(),
        sockets: program.rings.iter().map(|ring| ring.local.to_string()).collect(),
        by_ring: program.put_earlier + put_now.wrapping_sub(program.put_before),
    }
}
