//! Attaches an interface: at the start, and again after it has come back, after its queues have changed, or once
//! claims are permitted again. `service/lifecycle/src/fast_path.rs` says when.

use twinpath_attach::path::choose::WhyNot;
use twinpath_attach::path::facts;
use twinpath_attach::{learn_facts, tidy};
use twinpath_config::{Path, PathAsked};
use twinpath_lifecycle::{Event, Outcome, Phase};
use twinpath_serve::{ServeCommand, ServeCounters};
use twinpath_sys::clock;

use super::{Instance, InstanceError, needs_fast_path};
use crate::hold::hold_frames;

impl Instance {
    /// The number of queues that workers have yet to return.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().map(|worker| worker.leaving()).sum()
    }

    /// Chooses a path anew, and holds the EtherTypes.
    pub(super) fn choose_anew(&mut self) -> Outcome {
        let link = self.interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex)).cloned();
        let Some(link) = link else { return Outcome::Nothing };
        self.failed_paths.clear();
        tidy(&link);
        self.interface.facts =
            learn_facts(&self.mirror, &link, self.plan.ethertype().is_none(), self.plan.attach);
        match self.choose_path(&[]) {
            Ok(choice) => self.interface.choice = choice,
            Err(refusal) => {
                tracing::error!("{refusal}; {}", self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = refusal.to_string();
            }
        }
        if self.interface.choice.path == Path::Kernel {
            return Outcome::Nothing;
        }
        if let Err(held) = self.hold_frames_again(link.ifindex) {
            tracing::error!("{held}");
            self.interface.choice.path = Path::Kernel;
            self.interface.choice.why = held.to_string();
            return Outcome::Failed;
        }
        Outcome::Done
    }

    /// Attaches the interface to the chosen path.
    pub(super) async fn attach_to_path(&mut self) -> Outcome {
        if self.interface.choice.path == Path::Kernel {
            return Outcome::Nothing;
        }
        if self.is_held_back() {
            return Outcome::Withheld;
        }
        let is_start = matches!(self.lifecycle.phase(), Phase::Starting(_));
        match self.attach().await {
            Ok(()) if self.interface.attachment.is_none() => Outcome::Nothing,
            Ok(()) => {
                self.interface.may_keep = false;
                if matches!(self.lifecycle.phase(), Phase::Serving(_) | Phase::Draining(_)) {
                    tracing::info!(
                        "interface {} is back on {}",
                        self.interface.name,
                        self.interface.choice.path
                    );
                }
                Outcome::Done
            }
            Err(error) if matches!(self.lifecycle.phase(), Phase::Reloading(_)) => self.claims_refused(error),
            Err(source) => {
                let (path, interface) = (self.interface.choice.path, self.interface.name.clone());
                let error = InstanceError::Attach { path, interface, source };
                let is_last = self.plan.path != PathAsked::Auto;
                if is_last && !is_start { self.no_path(&error) } else { self.failed(error) }
            }
        }
    }

    /// Moves the connections of a former attachment to the kernel if there is no path for them now. Returns the outcome.
    pub(super) fn without_path(&mut self, outcome: Outcome) -> Outcome {
        // ChoosePath is done, too, and attaches nothing yet.
        let has_none = self.connections.flows().is_none()
            || self.interface.attachment.as_ref().is_some_and(|it| it.no_connections().is_some());
        if outcome != Outcome::Done || has_none {
            self.move_connections();
        }
        outcome
    }

    /// Lets sockets of the kernel go on with the connections on the fast path, and leaves their tuples to the kernel. It
    /// resets what cannot go on, while the ports are there yet. A peer whose reset is lost gets one from the kernel's
    /// listeners. Otherwise it would wait for as long as TCP does: listeners drop what a worker has, and the worker has
    /// no port.
    pub(super) fn move_connections(&mut self) {
        let left = self.on_fast_path();
        if left > 0 {
            tracing::info!(
                "{left} connections of the fast path move to the kernel: {} has none now",
                self.interface.name
            );
        }
        let link = self.interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex));
        let leave = if link.is_some() { ServeCommand::Leave } else { ServeCommand::LeaveGone };
        self.interface.may_keep |= link.is_none();
        for worker in &mut self.workers {
            worker.tell_services(leave.clone());
        }
    }

    /// How many connections there are on the fast path, and could move.
    fn on_fast_path(&self) -> u64 {
        let services = self.workers.iter().flat_map(|worker| &worker.services);
        services.map(|service| could_move(&service.serve)).sum()
    }

    /// Whether connections are about to move that no queue waits for, as there is none any more.
    pub(super) fn is_moving(&mut self) -> bool {
        let goes_on = self.on_fast_path() > 0;
        self.moves_awaited = self.moves_awaited.filter(|until| goes_on && clock::now() < *until);
        self.moves_awaited.is_some()
    }

    /// Attaching has failed: goes on with the next best path.
    pub(super) fn next_path(&mut self) -> Outcome {
        let is_start = matches!(self.lifecycle.phase(), Phase::Starting(_));
        let Some(InstanceError::Attach { path, source, .. }) = self.error.take() else {
            return Outcome::Failed;
        };
        self.failed_paths.push(WhyNot { path, reason: format!("attaching failed: {source}") });
        let chosen = self.choose_path(&self.failed_paths).map_err(InstanceError::from);
        let chosen = chosen.and_then(|choice| {
            let next = choice.path;
            tracing::warn!("cannot attach {path} to {}: {source}; going on with {next}", self.interface.name);
            self.interface.choice = choice;
            needs_fast_path(&self.plan, &self.interface.choice)
        });
        match chosen {
            Ok(()) if self.interface.choice.path == Path::Kernel && !is_start => {
                tracing::error!("{}", self.rest());
                Outcome::Nothing
            }
            Ok(()) => Outcome::Done,
            Err(error) if is_start => self.failed(error),
            Err(error) => self.no_path(&error),
        }
    }

    /// The instance goes on without a fast path.
    fn no_path(&mut self, why: &InstanceError) -> Outcome {
        tracing::error!("{why}; {}", self.rest());
        self.interface.choice.path = Path::Kernel;
        self.interface.choice.why = why.to_string();
        Outcome::Failed
    }

    /// Claims the EtherTypes again, because the interface that has come back may have another index.
    fn hold_frames_again(&mut self, ifindex: u32) -> Result<(), InstanceError> {
        // The former claim is dropped first, because an EtherType can be claimed only once.
        self.interface.frame_claims.clear();
        self.interface.frame_claims = hold_frames(&self.plan.services, &self.plan.interface, ifindex)?;
        Ok(())
    }

    /// On the XDP path every queue has a socket, so a change of their number needs another attachment. Until
    /// then the kernel serves a queue without a socket.
    pub(super) async fn look_at_queues(&mut self) {
        if !std::mem::take(&mut self.interface.queues_due) {
            return;
        }
        let link = self.interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex)).cloned();
        let Some(link) = link else { return };
        let attachment = self.interface.attachment.as_ref();
        let Some(attachment) = attachment.filter(|attachment| attachment.path().is_xdp()) else { return };
        let Some((rx_queues, _)) = facts::queues(&link.name) else { return };
        if rx_queues == attachment.queues() {
            return;
        }
        tracing::info!("{} has {rx_queues} receive queues now: attaching anew", link.name);
        self.events.push_back(Event::QueuesChanged);
    }
}

/// How many connections of a service are on the fast path, without those that wait for an address, perhaps for ever.
fn could_move(serve: &ServeCounters) -> u64 {
    let stay = serve.fast_tcp.fast_in_kernel.get() + serve.fast_tcp.fast_kept.get();
    serve.fast_connections.connections.get().saturating_sub(stay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_wait_for_an_address_do_not_count_as_moving() {
        let serve = ServeCounters::for_entries(1);
        serve.fast_connections.connections.set(5);
        serve.fast_tcp.fast_in_kernel.set(2);
        assert_eq!(could_move(&serve), 3);
        serve.fast_tcp.fast_kept.set(3);
        assert_eq!(could_move(&serve), 0);
    }
}
