//! Flows that the kernel forwards: those whose frames workers show, if it can.

use std::collections::HashMap;

use crate::engine::Sample;
use twinpath_bpf::{KeptEntry, Offload};
use twinpath_forwarding::openflow::pipeline::{FlowId, Ingress, Inserted, Pipeline, Trace, WhyNot};
use twinpath_openflow_wire::Match;
use twinpath_time::Instant;

use crate::offload::{
    Hooks, KernelPort, Lifetime, NotOffloaded, Offloaded, OffloadedHomes, PortForwarded, Review,
};

/// The entries of all network namespaces, by their places.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    homes: OffloadedHomes,
    /// Flows that do not last for ever.
    lifetimes: HashMap<FlowId, Lifetime>,
    /// Why the last frame that matched a flow was left to workers.
    why_not: HashMap<FlowId, WhyNot>,
    /// What has become of entries of a former process.
    reviewed: Review,
}

impl Kernel {
    /// With the entries that a former process has left.
    pub(crate) fn add(&mut self, home: usize, offload: Offload, left: Vec<KeptEntry>) {
        let mut offloaded = Offloaded::new(offload);
        offloaded.adopt(left);
        self.homes.add(home, offloaded);
    }

    /// A namespace has no ports any more. What was counted there stays with the flows.
    pub(crate) fn remove(&mut self, home: usize, pipeline: &mut Pipeline) {
        self.homes.remove(home, pipeline);
    }

    /// Says in which namespace each port is.
    pub(crate) fn set_ports(&mut self, ports: &[(u32, Option<(usize, KernelPort)>)]) {
        self.homes.set_ports(ports);
    }

    pub(crate) fn flow_added(
        &mut self,
        table: u8,
        priority: u16,
        fields: &Match,
        id: FlowId,
        lifetime: Lifetime,
    ) {
        self.homes.each(|offloaded| offloaded.flow_added(table, priority, fields));
        self.set_lifetime(id, lifetime);
    }

    pub(crate) fn flow_changed(&mut self, id: FlowId, lifetime: Lifetime) {
        self.homes.each(|offloaded| offloaded.flow_changed(id));
        self.set_lifetime(id, lifetime);
    }

    fn set_lifetime(&mut self, id: FlowId, lifetime: Lifetime) {
        self.why_not.remove(&id);
        if lifetime == Lifetime::default() {
            self.lifetimes.remove(&id);
        } else {
            self.lifetimes.insert(id, lifetime);
        }
    }

    /// Which bucket of a group is live may depend on other groups, so what goes through any of them is void.
    pub(crate) fn groups_changed(&mut self) {
        self.homes.each(Offloaded::groups_changed);
    }

    /// Which ports frames may leave by has changed, and these ports are not what they were.
    pub(crate) fn ports_changed(&mut self, changed: impl Iterator<Item = u32>) {
        self.homes.each(Offloaded::clear_own);
        for port in changed {
            self.homes.each(|offloaded| offloaded.clear_port(port));
        }
    }

    /// Flows with this match were added, or changed what they do. What the flows of a former process did with their frames is
    /// confirmed by them, or ends.
    pub(crate) fn review(&mut self, now: Instant, pipeline: &mut Pipeline, fields: &Match) {
        let mut outcome = Ok(());
        for offloaded in self.homes.iter_mut() {
            let review = offloaded.review(now, pipeline, fields, |trace| lifetime(&self.lifetimes, trace));
            outcome = outcome.and(review.map(|review| {
                self.reviewed.confirmed += review.confirmed;
                self.reviewed.made_void += review.made_void;
            }));
        }
        self.homes.note(outcome);
    }

    /// A controller has deleted all flows with this match, so also those of a former process.
    pub(crate) fn flows_deleted(&mut self, pipeline: &mut Pipeline, fields: &Match, output: Option<u32>) {
        if self.kept() == 0 {
            return;
        }
        let mut made_void = 0;
        self.homes.each(|offloaded| offloaded.deleted(fields, output).map(|count| made_void += count));
        self.reviewed.made_void += made_void;
        self.settle(pipeline);
    }

    /// Entries of a former process that no flow has confirmed yet.
    pub(crate) fn kept(&self) -> usize {
        self.homes.iter().map(Offloaded::kept).sum()
    }

    /// When those are void.
    pub(crate) fn kept_until(&self) -> Instant {
        self.homes.iter().filter_map(Offloaded::kept_until).max().unwrap_or(Instant::NEVER)
    }

    /// Takes them out if that time has passed.
    pub(crate) fn expire_kept(&mut self, now: Instant, pipeline: &mut Pipeline) {
        let is_decided = self.kept() == 0 && self.reviewed != Review::default();
        if now < self.kept_until() && !is_decided {
            return;
        }
        let mut given_up = 0;
        self.homes.each(|offloaded| offloaded.give_up_kept().map(|count| given_up += count));
        self.settle(pipeline);
        let Review { confirmed, made_void } = std::mem::take(&mut self.reviewed);
        tracing::info!(
            "the flows of the former process end: {confirmed} of its entries in the kernel were confirmed by flows, {made_void} were \
             contradicted, {given_up} are void as there was no flow for their frames"
        );
    }

    /// While suspended, workers forward all frames: something has to see all of them, or they do not go by flows.
    pub(crate) fn suspend(&mut self, is_suspended: bool) {
        self.homes.suspend(is_suspended);
    }

    /// Before a version of the tables is said to be taken: what was counted by entries that are void.
    pub(crate) fn settle(&mut self, pipeline: &mut Pipeline) {
        self.homes.settle(pipeline);
    }

    /// Adds to the flows what the kernel has counted for them.
    pub(crate) fn record(&mut self, now: Instant, pipeline: &mut Pipeline) {
        self.homes.record(now, pipeline);
    }

    /// The same for one flow, at once.
    pub(crate) fn record_flow(&mut self, pipeline: &mut Pipeline, flow: FlowId) {
        self.homes.iter_mut().for_each(|offloaded| offloaded.record_flow(pipeline, flow));
    }

    /// A worker has forwarded a frame like this one: from now on the kernel does, if it can. Returns whether it got something
    /// new to forward by that.
    pub(crate) fn sampled(&mut self, now: Instant, pipeline: &Pipeline, sample: &Sample) -> bool {
        if self.homes.is_suspended() || sample.head().is_empty() {
            return false;
        }
        let in_port = sample.in_port;
        let ingress = Ingress { in_port, in_phy_port: in_port, tunnel_id: sample.tunnel_id.into() };
        let trace = pipeline.trace(sample.head(), sample.vlan, &ingress);
        let lifetime = lifetime(&self.lifetimes, &trace);
        let home = self.homes.iter_mut().find(|offloaded| offloaded.has_port(in_port));
        let offered = match (trace.verdict(), home) {
            (Ok(_), None) => Err(NotOffloaded::WhyNot(WhyNot::Port)),
            (Err(why_not), _) => Err(why_not.into()),
            (Ok(_), Some(offloaded)) => offloaded.offer(now, &trace, lifetime),
        };
        match offered {
            Ok(inserted) => {
                for flow in trace.path().flows() {
                    self.why_not.remove(&flow);
                }
                return matches!(inserted, Inserted::Now(_));
            }
            Err(NotOffloaded::WhyNot(why_not)) => {
                // The flow whose instructions are the reason.
                if let Some(flow) = trace.path().flows().last() {
                    self.why_not.insert(flow, why_not);
                }
            }
            Err(NotOffloaded::Kernel(error)) => self.homes.note(Err(error)),
        }
        false
    }

    /// Where frames of a flow are forwarded by the kernel now; if nowhere, why, as far as that is known.
    pub(crate) fn place(&self, flow: FlowId) -> Result<Hooks, Option<WhyNot>> {
        let homes = self.homes.iter();
        let hooks = homes.fold(Hooks::default(), |hooks, offloaded| hooks.and(offloaded.hooks(flow)));
        if hooks == Hooks::default() { Err(self.why_not.get(&flow).copied()) } else { Ok(hooks) }
    }

    /// What the kernel has forwarded from and to a port.
    pub(crate) fn forwarded(&self, port: u32) -> PortForwarded {
        self.homes.forwarded(port)
    }
}

/// How long an entry is good for: no longer than any flow that the frames match.
fn lifetime(lifetimes: &HashMap<FlowId, Lifetime>, trace: &Trace) -> Lifetime {
    let lifetimes = trace.path().flows().filter_map(|flow| lifetimes.get(&flow));
    lifetimes.fold(Lifetime::default(), |own, other| Lifetime {
        deadline: own.deadline.into_iter().chain(other.deadline).min(),
        idle: own.idle.into_iter().chain(other.idle).min(),
        unmoved: own.unmoved,
    })
}
