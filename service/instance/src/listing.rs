//! Lists connections for a client: each worker finds its own, some in each turn.

use std::collections::HashMap;
use std::net::IpAddr;

use twinpath_config::Path;
use twinpath_host::machine::Answer;
use twinpath_observe::command::{CONNECTIONS_MAX, WhichConnections};
use twinpath_observe::report::{Connection, ConnectionPath, Connections};
use twinpath_serve::{DemuxCommand, ListFilter, Listed, ListedPath, Listing, WhyKernel};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Command;

use super::Instance;

/// How long workers are waited for. 100,000 connections take a worker some hundred turns.
const PATIENCE: Duration = Duration::from_secs(2);

/// The path of new connections at each of our addresses, with the reason. To find it takes a look at all addresses.
type Paths = HashMap<IpAddr, (Path, String)>;

/// What is left to be answered.
#[derive(Default)]
pub(super) struct Listings {
    next: u32,
    open: Option<Open>,
}

/// A list that workers are asked for.
struct Open {
    number: u32,
    answer: Answer,
    limit: usize,
    found: Connections,
    until: Instant,
}

impl Listings {
    /// When workers are no longer waited for.
    pub(super) fn due(&self) -> Instant {
        self.open.as_ref().map_or(Instant::NEVER, |open| open.until)
    }
}

impl Instance {
    /// Asks all workers for connections.
    pub(super) fn list(&mut self, which: &WhichConnections, answer: Answer) {
        let refusal = if self.listings.open.is_some() {
            Some("connections are being listed for another client: ask again".to_owned())
        } else if !(1..=CONNECTIONS_MAX).contains(&which.limit) {
            Some(format!("a list has 1 to {CONNECTIONS_MAX} connections"))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // The client may have closed its connection.
            drop(answer.send(Err(refusal)));
            return;
        }
        let filter = ListFilter {
            peer: which.peer.map(|peer| peer.0),
            port: which.port,
            is_fast: which.path.map(|path| path == ConnectionPath::Fast),
        };
        let (number, limit) = (self.listings.next, which.limit as usize);
        self.listings.next = number.wrapping_add(1);
        for worker in self.everyone_mut() {
            let listing = Box::new(Listing::new(number, filter, limit));
            worker.tell(Command::Engine(DemuxCommand::List(listing)));
        }
        let silent_workers = (0..self.everyone().count()).collect();
        let found = Connections { silent_workers, ..Connections::default() };
        let until = clock::now() + PATIENCE;
        self.listings.open = Some(Open { number, answer, limit, found, until });
    }

    /// Worker `at` has found its connections.
    pub(super) fn listed(&mut self, at: usize, listing: &Listing) {
        let Some(mut open) = self.listings.open.take_if(|open| open.number == listing.number) else { return };
        let room = open.limit.saturating_sub(open.found.connections.len());
        open.found.has_more |= listing.has_more || listing.found.len() > room;
        let mut paths = Paths::default();
        let found = listing.found.iter().take(room);
        open.found.connections.extend(found.map(|found| self.report(at, found, &mut paths)));
        open.found.silent_workers.retain(|silent| *silent != at);
        if open.found.silent_workers.is_empty() {
            open.answer();
        } else {
            self.listings.open = Some(open);
        }
    }

    /// Some workers have not answered in time.
    pub(super) fn listing_late(&mut self) {
        if let Some(open) = self.listings.open.take() {
            open.answer();
        }
    }

    fn report(&self, worker: usize, listed: &Listed, paths: &mut Paths) -> Connection {
        let of_part = self.everyone().nth(worker).and_then(|handle| handle.service(listed.part));
        Connection {
            service: of_part.map(|service| service.name.clone()).unwrap_or_default(),
            worker,
            local: listed.local,
            peer: listed.remote,
            path: match listed.path {
                ListedPath::Fast => ConnectionPath::Fast,
                ListedPath::Kernel(_) => ConnectionPath::Kernel,
            },
            why: self.why(listed, paths),
            state: name_of(listed.state).to_owned(),
            rtt_us: listed.rtt_us,
            snd_cwnd: listed.cwnd,
            snd_mss: listed.mss,
            unacked: listed.unacked,
            total_retrans: listed.retransmitted,
            bytes_acked: listed.bytes_acked,
            bytes_received: listed.bytes_received,
        }
    }

    /// Why a connection is on its path.
    fn why(&self, listed: &Listed, paths: &mut Paths) -> String {
        let why = match listed.path {
            ListedPath::Fast => return "its SYN came by the fast path".to_owned(),
            ListedPath::Kernel(WhyKernel::Moved) => {
                return "it was on the fast path, which ended".to_owned();
            }
            ListedPath::Kernel(why) => why,
        };
        // What holds for all connections of the service.
        let plan = self.plan.services.iter().zip(&self.held).find(|(_, held)| held.part == listed.part);
        if plan.is_some_and(|(plan, _)| !plan.fast_tcp) {
            return "service.tcp_path leaves TCP to the kernel".to_owned();
        }
        let address = listed.local.ip();
        if let (Path::Kernel, why) =
            paths.entry(address).or_insert_with(|| self.path_of_connections(Some(address)))
        {
            return why.clone();
        }
        match why {
            WhyKernel::NoPath => "there was no fast path when it began".to_owned(),
            WhyKernel::NoRoom => "the fast path had no room when it began".to_owned(),
            _ => "its SYN was left to the kernel: it had data, an MD5 or AO option or a wrong checksum, came by another way, or its \
                  next hop is none of the fast path"
                .to_owned(),
        }
    }
}

impl Open {
    fn answer(self) {
        let found = serde_json::to_value(&self.found).map_err(|error| error.to_string());
        // The client may have closed its connection.
        drop(self.answer.send(found));
    }
}

/// The name of a state, in the order of their numbers (include/net/tcp_states.h).
fn name_of(state: u8) -> &'static str {
    const NAMES: [&str; 12] = [
        "unknown",
        "established",
        "syn-sent",
        "syn-received",
        "fin-wait-1",
        "fin-wait-2",
        "time-wait",
        "closed",
        "close-wait",
        "last-ack",
        "listen",
        "closing",
    ];
    NAMES.get(usize::from(state)).copied().unwrap_or("unknown")
}
