//! TCP on the fast path, as control sees it: the tables that the kernel's programs share with the workers, and the
//! filter of the kernel's listeners.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinpath_attach::mirror::table::Tables;
use twinpath_bpf::{Caught, SteerError, TcpFlows};
use twinpath_config::Path;
use twinpath_serve::fast_tcp::{Opening, TcpClaims};
use twinpath_sys::tcp_repair;

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
    /// Makes them, if a service of the plan asks for them and the path has them, on an interface with this index.
    pub(crate) fn make(plan: &Plan, path: Path, workers: u32, (tables, ifindex): (&Tables, u32)) -> Self {
        if !plan.services.iter().any(|service| service.fast_tcp) {
            let why = "the instance began without TCP on the fast path: start it again".to_owned();
            return Self { flows: None, why_not: Some(why) };
        }
        if path != Path::Packet {
            return Self { flows: None, why_not: Some("only the packet path has connections".to_owned()) };
        }
        if tables.gathers_big_packets(ifindex) {
            // Workers take none, so that each would be lost, and sent again. The kernel serves its own.
            let why =
                "packets of more than 64 KiB may arrive at the interface (gro_max_size, gro_ipv4_max_size)";
            return Self { flows: None, why_not: Some(why.to_owned()) };
        }
        if tables.vrf_of(ifindex).is_some() {
            // The kernel's socket that goes on with one would have to be in the VRF.
            let why = "no connection can move to the kernel from an interface in a VRF".to_owned();
            return Self { flows: None, why_not: Some(why) };
        }
        match TcpFlows::load(workers) {
            Ok(flows) => {
                if let Err(error) = tcp_repair::probe() {
                    tracing::warn!(
                        "connections on the fast path cannot move to the kernel, so they are reset when the fast path \
                         ends: TCP_REPAIR: {error}"
                    );
                }
                Self { flows: Some(Arc::new(flows)), why_not: None }
            }
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
        if let Err(error) = held.into_iter().try_for_each(|(plan, held)| self.guard_one(plan, held)) {
            tracing::warn!("the kernel serves all TCP connections: {error}");
            *self = Self { flows: None, why_not: Some(error.to_string()) };
        }
    }

    /// The plan of a service that a reload adds. If the kernel refuses the filter at its listeners, it has no connections
    /// on the fast path; those of other services stay as they are.
    pub(crate) fn guarded(&self, plan: &ServicePlan, held: &Held) -> ServicePlan {
        let refused = self.guard_one(plan, held);
        if let Err(error) = &refused {
            tracing::warn!("the kernel serves all TCP connections of {}: {error}", plan.name);
        }
        ServicePlan { fast_tcp: plan.fast_tcp && refused.is_ok(), ..plan.clone() }
    }

    /// Has the kernel answer no segment of these connections while it is held, although listeners are closed. If the kernel
    /// refuses that, it answers those that it gets by a reset, as before.
    pub(crate) fn catch(&self) -> Option<Caught> {
        let caught = Caught::new(self.flows.as_ref()?);
        let refused = |error: &SteerError| {
            tracing::warn!(
                "what the kernel gets of connections on the fast path, it answers by a reset: {error}"
            );
        };
        caught.inspect_err(refused).ok()
    }

    fn guard_one(&self, plan: &ServicePlan, held: &Held) -> Result<(), SteerError> {
        let Some(flows) = self.flows.as_ref().filter(|_| plan.fast_tcp) else { return Ok(()) };
        let mut listeners = held.sockets().filter(|(name, _)| name.socket == Use::Tcp);
        listeners.try_for_each(|(_, listener)| flows.guard(listener))
    }
}

/// The end of a worker, in the words of its engine.
struct OfWorker(twinpath_bpf::TcpClaims);

impl TcpClaims for OfWorker {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn next_syns(&mut self, take: &mut dyn FnMut(Opening<'_>)) {
        self.0.next_syns(&mut |handed| {
            take(match handed {
                twinpath_bpf::Opening::Syn(frame) => Opening::Syn(frame),
                twinpath_bpf::Opening::Leaked(frame) => Opening::Leaked(frame),
            });
        });
    }

    fn room(&self) -> u32 {
        self.0.room()
    }

    fn set_room(&mut self, room: u32) {
        self.0.set_room(room);
    }

    fn set_full(&mut self, ports: &[u16]) {
        self.0.set_full(ports);
    }

    // The map refuses no call for an entry that it has, and an entry that it lacks is not claimed in any case.

    fn release(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.release(local, remote);
    }

    fn decline(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.decline(local, remote);
    }

    fn end(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.end(local, remote);
    }

    fn half_open(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.half_open(local, remote);
    }

    fn reclaim(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.0.insert(local, remote);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::path::Path as FilePath;

    use twinpath_config::Config;
    use twinpath_sys::tcp_listener::Group;
    use twinpath_test_rig::root_or_skip;

    use super::*;
    use crate::hold::KernelSockets;

    fn held(listener: OwnedFd) -> Held {
        let group = Group { listeners: vec![listener], guard: None };
        Held::of(0, &KernelSockets { udp: [].into(), listeners: vec![(None, 7, group)] }).unwrap()
    }

    #[test]
    fn a_refused_filter_takes_connections_from_the_new_service_alone() {
        if !root_or_skip() {
            return;
        }
        let text = "[service]\nkind = \"echo\"\ntcp = 7\ntcp_path = \"fast\"\n[interface]\nname = \"lo\"\n";
        let config = Config::parse(text, FilePath::new("twinpath.toml")).unwrap();
        let plan = Plan::of(&config).unwrap();
        let connections = Connections::make(&plan, Path::Packet, 1, (&Tables::default(), 1));
        assert!(connections.flows().is_some(), "{:?}", connections.why_not());
        let service = &plan.services[0];
        // The kernel refuses a filter for what is no socket.
        let refused = connections.guarded(service, &held(File::open("/dev/null").unwrap().into()));
        assert_eq!(refused, ServicePlan { fast_tcp: false, ..service.clone() });
        assert!(connections.flows().is_some());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(&connections.guarded(service, &held(listener.into())), service);
    }
}
