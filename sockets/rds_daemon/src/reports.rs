//! What is shown.

use std::collections::BTreeMap;
use std::net::IpAddr;

use twinpath_inspect::Counter;
use twinpath_observe::report;
use twinpath_rds::{Rds, Reason};

use crate::program::Program;

/// Congested ports that are named.
const PORTS_SHOWN: usize = 16;

/// The thread's part of the report.
#[derive(Debug)]
pub(crate) struct HubReport {
    pub(crate) rds: report::Rds,
    pub(crate) drops: Vec<report::Drop>,
}

/// What was refused or dropped here, not by the engine.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Sockets beyond a limit.
    pub(crate) sockets: Counter,
    /// Messages of programs that cannot be.
    pub(crate) faults: Counter,
    /// Messages whose peer cannot be.
    pub(crate) unreachable: Counter,
    /// Connections to addresses of other interfaces.
    pub(crate) elsewhere: Counter,
}

pub(crate) fn report(
    rds: &Rds,
    addresses: &[IpAddr],
    programs: &BTreeMap<u64, Program>,
    refused: &Refused,
) -> HubReport {
    let paths = rds.peers().flat_map(|peer| {
        let of = |(number, path): (usize, &twinpath_rds::PathView)| report::RdsPath {
            local: peer.pair.local.to_string(),
            peer: peer.pair.remote.to_string(),
            path: number as u16,
            link: path.link.to_owned(),
            generation: path.position.peer_generation,
            congested: if number == 0 {
                peer.congested.ports().take(PORTS_SHOWN).collect()
            } else {
                Vec::new()
            },
            next_out: path.position.next_out,
            next_in: path.position.next_in,
            queued: path.queued as u64,
            queued_bytes: path.queued_bytes as u64,
            reconnects: path.reconnects,
        };
        peer.paths.iter().enumerate().map(of).collect::<Vec<_>>()
    });
    let shown = report::Rds {
        generation: rds.generation(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        paths: paths.collect(),
        sockets: programs.values().map(report_socket).collect(),
    };
    let of_engine = Reason::ALL.into_iter().map(|reason| (reason.name(), rds.drops().of(reason)));
    let of_programs = [
        ("sockets_refused", refused.sockets.get()),
        ("program_fault", refused.faults.get()),
        ("unreachable", refused.unreachable.get()),
        ("other_address", refused.elsewhere.get()),
    ];
    let happened = of_engine.chain(of_programs).filter(|(_, count)| *count > 0);
    let drop = |(reason, count): (&str, u64)| report::Drop {
        place: "rds".to_owned(),
        reason: reason.to_owned(),
        count,
    };
    HubReport { rds: shown, drops: happened.map(drop).collect() }
}

fn report_socket(program: &Program) -> report::RdsSocket {
    report::RdsSocket {
        local: program.local.map_or_else(
            || "-".to_owned(),
            |(address, port)| std::net::SocketAddr::new(address, port).to_string(),
        ),
        pid: program.pid.unwrap_or(0),
        user: program.user,
        congested: program.is_congested(),
        sent: program.sent,
        received: program.received,
        unacknowledged: program.unacknowledged as u64,
        waiting: program.backlog_bytes() as u64,
    }
}
