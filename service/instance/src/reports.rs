//! The report of an instance: services and their paths with the reasons, the state of the device, and
//! drops.

use std::net::IpAddr;

use twinpath_attach::mirror::table::Link;
use twinpath_attach::path::device;
use twinpath_attach::{Attachment, describe, kernel_ring_bytes};
use twinpath_bpf::Leftover;
use twinpath_claims::Claim;
use twinpath_config::{Path, mark_set};
use twinpath_host::{report_process, rows};
use twinpath_inspect::ControlReason;
use twinpath_observe::report::{
    self as report, ClaimCounts, FastTcpCounts, Report, RequestCounts, ServeCounts, ServiceClaim,
    SessionCounts, TcpCounts,
};
use twinpath_service::ServiceCounters;
use twinpath_wire::Protocol;

use super::Instance;
use crate::plan::{ServicePlan, port_claim};
use crate::serving::{KeptEntries, ServiceHandle, WorkerHandle, own_metrics, own_procedures};

impl Instance {
    /// The configuration keys, including changes by `twinpath set`.
    pub(super) fn report_config(&self) -> Vec<twinpath_config::Setting> {
        let mut settings = self.plan.settings.clone();
        let workers: Vec<_> = self.workers.iter().map(|worker| (worker.mode(), worker.goal())).collect();
        mark_set(&mut settings, (self.plan.idle.mode, self.plan.idle.goal), &workers);
        settings
    }

    /// The whole report, without the configuration and the table of neighbours, which can be thousands.
    pub(super) fn report_without_neighbours(&self) -> Report {
        let path = self.interface.choice.path;
        let attached = self.interface.attachment.as_ref();
        let queues = attached.map_or(0, Attachment::queues);
        let ring_bytes = kernel_ring_bytes(path, self.plan.ring_frames) * u64::from(queues);
        let kept = self.reflexes.entries(twinpath_sys::clock::now());
        let pool_bytes = self.everyone().map(|worker| worker.pool_bytes()).sum::<u64>() + ring_bytes;
        Report {
            instance: report::Instance {
                kind: report::InstanceKind::Serve(self.plan.names()),
                ports: self.plan.services.iter().flat_map(ServicePlan::ports).collect(),
                draining: self.report_drain(),
                configuration: self.reloads.report(),
                standing_by: self.report_standby(),
                ..report_process(self.started, pool_bytes, &self.confined)
            },
            services: self.report_services(&kept),
            rpc: self.report_procedures(),
            interfaces: vec![self.report_interface(&kept)],
            rules: self.report_rules(),
            machine: Some(self.machine.costs.clone()),
            workers: self.workers.iter().map(|worker| worker.report(self.machine.request.clone())).collect(),
            neighbours: Vec::new(),
            config: Vec::new(),
            drops: self.report_drops(),
            ..Report::default()
        }
    }

    fn report_drops(&self) -> Vec<report::Drop> {
        let mirror = self.mirror.counters();
        let control = [
            (ControlReason::NetlinkOverrun, mirror.overruns),
            (ControlReason::NetlinkUndecoded, mirror.undecoded),
            (ControlReason::PathMessageDamaged, mirror.messages_damaged),
            (ControlReason::NeighboursRefused, mirror.neighbours_refused),
            (ControlReason::PeersRefused, mirror.book.peers_refused),
            (ControlReason::CaptureMissed, self.captures.missed()),
            (ControlReason::TakeOverFailed, self.takers.failed.get()),
        ];
        let scrapers = self.scrapers.iter().flat_map(|scrapers| {
            [
                (ControlReason::MetricsClients, scrapers.refused_full.get()),
                (ControlReason::MetricsCutOff, scrapers.cut_off.get()),
            ]
        });
        let of_control = control.into_iter().chain(scrapers).map(|(reason, count)| (reason.name(), count));
        let of_control = rows("control", of_control);
        let queues = self.workers.iter().flat_map(|worker| worker.queues());
        let lost = queues.filter_map(|queue| {
            let count = self.interface.attachment.as_ref()?.lost_frames(queue.id);
            let place = format!("{} queue {}", self.interface.name, queue.id.queue);
            (count > 0).then(|| report::Drop {
                place,
                reason: ControlReason::RingFull.name().to_owned(),
                count,
            })
        });
        let of_workers = self.everyone().flat_map(|worker| worker.drops(&self.interface.name));
        of_workers.chain(lost).chain(of_control).collect()
    }

    /// The services, in the order of the plan, summed over all workers.
    pub(super) fn report_services(&self, kept: &KeptEntries) -> Vec<report::Service> {
        let services = self.plan.services.iter().zip(&self.held);
        services.map(|(plan, held)| self.report_service(plan, held.part, kept)).collect()
    }

    /// The procedures of the services, in the same order.
    fn report_procedures(&self) -> Vec<report::Procedure> {
        let services = self.plan.services.iter().zip(&self.held);
        services
            .flat_map(|(plan, held)| {
                let counted = self.handles(held.part).filter_map(|handle| handle.service.as_deref());
                own_procedures(&plan.name, counted)
            })
            .collect()
    }

    fn handles(&self, part: usize) -> impl Iterator<Item = &ServiceHandle> {
        self.everyone().filter_map(move |worker| worker.service(part))
    }

    fn report_service(&self, plan: &ServicePlan, part: usize, kept: &KeptEntries) -> report::Service {
        let handles = || self.handles(part);
        let counted = || handles().filter_map(|handle| handle.service.as_deref());
        let fast = TcpCounts::sum(handles().map(|handle| &handle.serve.fast_connections));
        let engines = FastTcpCounts::sum(handles().map(|handle| &handle.serve.fast_tcp));
        report::Service {
            name: plan.name.clone(),
            claims: self.report_claims(plan, part),
            reflex_replies: self.reflexes.of_service(self.interface.attachment.as_ref(), plan),
            no_reflex: plan.no_reflex.clone(),
            unanswered_ports: self.unanswered_ports(plan, part),
            kept: self.reflexes.report_kept(kept, plan),
            serve: ServeCounts {
                deferred_threads: handles().map(ServiceHandle::slow_threads).sum(),
                ..ServeCounts::sum(handles().map(|handle| &*handle.serve))
            },
            tcp: TcpCounts::sum(
                handles().flat_map(|handle| [&handle.serve.tcp, &handle.serve.fast_connections]),
            ),
            fast_tcp: FastTcpCounts {
                fast_connections: fast.connections.saturating_sub(engines.fast_in_kernel),
                fast_accepted: fast.accepted,
                ..engines
            },
            sessions: SessionCounts::sum(counted()),
            requests: counted().map(ServiceCounters::requests).reduce(RequestCounts::with),
            own: own_metrics(counted()),
        }
    }

    /// A sentence that names the source ports whose datagrams are not answered.
    fn unanswered_ports(&self, plan: &ServicePlan, part: usize) -> String {
        let has_datagrams = plan.udp.is_some() || !plan.flows.is_empty();
        let handle = self.handles(part).next().filter(|_| has_datagrams);
        handle.map_or_else(String::new, |handle| handle.unanswered_ports(plan.any_source_port))
    }

    /// Which claims of the service are on the fast path, and why others are not, in the order of the
    /// entries of `Served`; TCP comes last.
    fn report_claims(&self, plan: &ServicePlan, part: usize) -> Vec<ServiceClaim> {
        let served = plan.served();
        let flows = served
            .flows()
            .iter()
            .map(|flow| (describe(&Claim::flow(*flow)), self.path_at(Some(flow.destination.ip()))));
        let ports = served.ports().iter().map(|port| {
            let now = if port.protocol == Protocol::Tcp {
                self.path_of_connections(port.address)
            } else if plan.flows.is_empty() {
                self.path_at(port.address)
            } else {
                (
                    Path::Kernel,
                    "only the flows named are claimed; all others of the port are the kernel's".to_owned(),
                )
            };
            (describe(&port_claim(*port, &plan.sources)), now)
        });
        let frames =
            served.ethertype().map(|ethertype| (describe(&Claim::ethertype(ethertype)), self.path_now()));
        let claims = flows.chain(ports).chain(frames).enumerate().map(|(entry, (claim, (path, why)))| {
            let counted = self.handles(part).filter_map(|handle| handle.serve.claims.get(entry));
            ServiceClaim {
                claim,
                path: path.name().to_owned(),
                why,
                counts: ClaimCounts {
                    reflex_replies: self.reflexes.of_claim(self.interface.attachment.as_ref(), plan, entry),
                    ..ClaimCounts::sum(counted)
                },
            }
        });
        let tcp = plan.tcp.filter(|_| !plan.fast_tcp).map(|port| ServiceClaim {
            claim: format!("tcp port {port}"),
            path: Path::Kernel.name().to_owned(),
            why: "service.tcp_path leaves TCP to the kernel".to_owned(),
            ..ServiceClaim::default()
        });
        claims.chain(tcp).collect()
    }

    /// The present path of new TCP connections to a port at one of our addresses, or in general, and the reason.
    pub(super) fn path_of_connections(&self, address: Option<IpAddr>) -> (Path, String) {
        if let Some(why) = self.connections.why_not() {
            return (Path::Kernel, why.to_owned());
        }
        let attachment = self.interface.attachment.as_ref();
        match attachment.and_then(|attachment| attachment.no_connections()) {
            Some(why) => (Path::Kernel, why.to_owned()),
            None => self.path_at(address),
        }
    }

    /// The present path of a claim at one of our addresses, or in general (`None`), and the reason.
    fn path_at(&self, address: Option<IpAddr>) -> (Path, String) {
        let now = self.path_now();
        let Some(address) = address.filter(|_| now.0 != Path::Kernel) else { return now };
        let name = &self.interface.name;
        if self.claimed_addresses().contains(&address) {
            now
        } else if self.addresses().contains(&address) {
            let why = format!(
                "{address} is another interface's, and {name} has no address of its family, or more than there is room for"
            );
            (Path::Kernel, why)
        } else {
            let why = format!(
                "{address} is no address of {name} or of another interface here now: nothing of it is claimed until it is"
            );
            (Path::Kernel, why)
        }
    }

    /// The present path of the interface's claims, and the reason.
    fn path_now(&self) -> (Path, String) {
        let interface = &self.interface;
        match &interface.attachment {
            Some(attachment) if attachment.waiting() == 0 => {
                (attachment.path(), format!("claimed on {}: {}", interface.name, interface.choice.why))
            }
            Some(attachment) => {
                let (waiting, queues) = (attachment.waiting(), attachment.queues());
                let why =
                    format!("{waiting} of {queues} queues wait for their worker; the kernel serves them");
                (if waiting == queues as usize { Path::Kernel } else { attachment.path() }, why)
            }
            None if self.leaving() > 0 => {
                (Path::Kernel, format!("{} is being attached anew", interface.name))
            }
            None if interface.choice.path != Path::Kernel => (
                Path::Kernel,
                format!("{} has no link-layer address, or is not attached yet", interface.name),
            ),
            None => (Path::Kernel, interface.choice.why.clone()),
        }
    }

    /// The interface: its path, the reason, and its queues.
    pub(super) fn report_interface(&self, kept: &KeptEntries) -> report::Interface {
        let interface = &self.interface;
        let link = interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex));
        let lost = |id| interface.attachment.as_ref().map_or(0, |attachment| attachment.lost_frames(id));
        let queue = |(number, worker): (usize, &WorkerHandle)| {
            let (path, mode) = (interface.choice.path.name(), worker.mode());
            let queues = worker.queues().iter();
            queues.map(|queue| queue.report(number, path, mode, lost(queue.id))).collect::<Vec<_>>()
        };
        let tc = interface.attachment.as_ref().and_then(Attachment::tc);
        report::Interface {
            name: interface.name.clone(),
            ifindex: interface.ifindex.unwrap_or(0),
            kind: interface.facts.kind.clone(),
            path: interface.choice.path.name().to_owned(),
            attach: tc.map_or_else(String::new, |tc| tc.name().to_owned()),
            left_behind: interface.ifindex.map_or_else(Vec::new, left_behind),
            link: link.map_or("gone", Link::state).to_owned(),
            mtu: link.map_or(0, |link| link.mtu),
            why: interface.choice.why.clone(),
            why_not: interface.choice.report_why_not(),
            device: self.report_device(),
            queues: self.workers.iter().enumerate().flat_map(queue).collect(),
            reflexes: interface.attachment.as_ref().map(|attachment| self.reflexes.report(kept, attachment)),
            crossed: None,
            fallback: interface.fallback.reports.clone(),
        }
    }

    /// The claims in force, and how often each verdict was given.
    pub(super) fn report_rules(&self) -> report::Rules {
        let Some(attachment) = &self.interface.attachment else { return report::Rules::default() };
        let verdicts = attachment.verdicts().unwrap_or_default().into_iter().filter(|(_, count)| *count > 0);
        report::Rules {
            claims: attachment.target().describe(),
            verdicts: verdicts.map(|(name, count)| report::Count { name: name.to_owned(), count }).collect(),
        }
    }

    /// The driver and state of the device.
    pub(super) fn report_device(&self) -> report::Device {
        let interface = &self.interface;
        let link = interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex));
        let carrier = link.is_some_and(|link| link.running);
        device::with_facts(interface.device.clone(), &interface.facts, carrier)
    }

    /// Reads the state of the device again, if it may have changed.
    pub(super) async fn look_at_device(&mut self) {
        if std::mem::take(&mut self.interface.device_due) && self.interface.ifindex.is_some() {
            self.interface.device = device::look(&self.interface.name);
        }
    }
}

/// Programs of killed instances that are still on the interface. `twinpath tidy`, or the next start,
/// removes them.
fn left_behind(ifindex: u32) -> Vec<report::LeftBehind> {
    let leftovers = twinpath_bpf::leftovers(Some(ifindex)).unwrap_or_default();
    leftovers.into_iter().map(|Leftover { program, pid, .. }| report::LeftBehind { program, pid }).collect()
}
