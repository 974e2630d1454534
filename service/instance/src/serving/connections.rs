//! TCP on the fast path, as control sees it: the tables that the kernel's programs share with the workers, and the
//! filter of the kernel's listeners.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinpath_bpf::{SteerError, TcpFlows};
use twinpath_config::Path;
use twinpath_serve::fast_tcp::TcpClaims;

use crate::hold::{Held, Use};
use crate::plan::{Plan, ServicePlan};

/// The tables of an instance whose services have connections on the fast path. They are made once, before anything is
/// attached: connections outlive an attachment.
#[derive(Clone, Default)]
pub(crate) struct Connections {
    flows: Option<Arc<TcpFlows>>,
    /// Why there are none, although a service asks for them.
    why_not: Option<String>,
}

impl Connections {
    /// Makes them, if a service of the plan asks for them and the path has them.
    pub(crate) fn make(plan: &Plan, path: Path, workers: u32) -> Self {
        if !plan.services.iter().any(|service| service.fast_tcp) {
            let why = "the instance began without TCP on the fast path: start it again".to_owned();
            return Self { flows: None, why_not: Some(why) };
        }
        if path != Path::Packet {
            return Self { flows: None, why_not: Some("only the packet path has connections".to_owned()) };
        }
        match TcpFlows::load(workers) {
            Ok(flows) => Self { flows: Some(Arc::new(flows)), why_not: None },
            Err(error) => {
                tracing::warn!("the kernel serves all TCP connections: {error}");
                Self { flows: None, why_not: Some(error.to_string()) }
            }
        }
    }

    /// What the programs are given.
    pub(crate) fn flows(&self) -> Option<Arc<TcpFlows>> {
        self.flows.clone()
    }

    /// Why there are none.
    pub(crate) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The end of one worker.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn of_worker(&self, worker: usize) -> Result<Option<Box<dyn TcpClaims>>, SteerError> {
        let Some(flows) = &self.flows else { return Ok(None) };
        Ok(Some(Box::new(OfWorker(flows.claims(worker as u32)?))))
    }

    /// Has the kernel's listeners drop what is claimed, before anything is: they would answer that with a reset. If the
    /// kernel refuses the filter, nothing is claimed from here on.
    pub(crate) fn guard<'a>(&mut self, held: impl Iterator<Item = (&'a ServicePlan, &'a Held)>) {
        let Some(flows) = &self.flows else { return };
        let held = held.filter(|(plan, _)| plan.fast_tcp).map(|(_, held)| held);
        let sockets = held.flat_map(Held::sockets).filter(|(name, _)| name.socket == Use::Tcp);
        if let Err(error) = sockets.map(|(_, listener)| listener).try_for_each(|it| flows.guard(it)) {
            tracing::warn!("the kernel serves all TCP connections: {error}");
            *self = Self { flows: None, why_not: Some(error.to_string()) };
        }
    }
}

/// The end of a worker, in the words of its engine.
struct OfWorker(twinpath_bpf::TcpClaims);

impl TcpClaims for OfWorker {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn next_syns(&mut self, take: &mut dyn FnMut(&[u8])) {
        self.0.next_syns(take);
    }

    fn room(&self) -> u32 {
        self.0.room()
    }

    fn set_room(&mut self, room: u32) {
        self.0.set_room(room);
    }

    // The map refuses neither call for an entry that it has, and an entry that it lacks is not claimed in any case.

    fn release(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.release(local, remote);
    }

    fn decline(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.decline(local, remote);
    }
}
