//! Formats the report of Reliable Datagram Sockets.

use twinpath_observe::report::{RdsPath, RdsSocket, Report};

use super::grid::{cells, headers, table};

/// Paths to peers, then the sockets of programs.
pub(super) fn rds(report: &Report) -> String {
    let Some(rds) = &report.rds else {
        return "no Reliable Datagram Sockets: `twinpath rds` serves them".to_owned();
    };
    let addresses = if rds.addresses.is_empty() { "no address".to_owned() } else { rds.addresses.join(", ") };
    let head = format!("life {}, at {addresses}", rds.generation);
    let columns = ["peer", "at", "path", "link"].into_iter().chain(headers::<RdsPath>());
    let mut paths = table(&columns.chain(["peer's life", "congested"]).collect::<Vec<_>>(), 4);
    for path in &rds.paths {
        let which = [path.peer.clone(), path.local.clone(), path.path.to_string(), path.link.clone()];
        let generation = path.generation.map_or_else(|| "-".to_owned(), |generation| generation.to_string());
        let congested = path.congested.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        paths.add_row(which.into_iter().chain(cells(path)).chain([generation, congested]));
    }
    let columns = ["socket", "pid", "user"].into_iter().chain(headers::<RdsSocket>());
    let mut sockets = table(&columns.chain(["congested"]).collect::<Vec<_>>(), 3);
    for socket in &rds.sockets {
        let which = [socket.local.clone(), socket.pid.to_string(), socket.user.to_string()];
        let congested = if socket.congested { "yes" } else { "" };
        sockets.add_row(which.into_iter().chain(cells(socket)).chain([congested.to_owned()]));
    }
    let paths = if rds.paths.is_empty() { "no peers".to_owned() } else { paths.to_string() };
    let sockets =
        if rds.sockets.is_empty() { "no sockets of programs".to_owned() } else { sockets.to_string() };
    format!("{head}\n{paths}\n{sockets}")
}
