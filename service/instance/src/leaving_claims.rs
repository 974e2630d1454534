//! Claims of services that a reload has removed, and that have connections on the fast path yet.

use twinpath_bpf::Caught;
use twinpath_claims::Claim;
use twinpath_lifecycle::Event;

use super::Instance;

/// The claims that stay until the removed services have left: those of connections, in `former` or kept already, for
/// which nothing in `now` claims the same. A claim on connections that is there now, perhaps with other sources, serves
/// theirs as well: the kernel's program looks at known tuples first, and the programs take no two claims on one port.
fn kept(leaving: Vec<Claim>, former: Vec<Claim>, now: &[Claim]) -> Vec<Claim> {
    let mut kept: Vec<Claim> = Vec::new();
    for claim in leaving.into_iter().chain(former).filter(|claim| claim.connections) {
        let is_same = |other: &Claim| other.kind == claim.kind && other.vlan == claim.vlan;
        if !now.iter().chain(&kept).any(is_same) {
            kept.push(claim);
        }
    }
    kept
}

/// Whether what is claimed may have connections on the fast path.
fn has_connections(claims: &[Claim]) -> bool {
    claims.iter().any(|claim| claim.connections)
}

/// What stays of services that are removed, and at the end of all.
pub(super) struct Leaving<C = Caught> {
    /// The claims of removed services with connections on the fast path.
    claims: Vec<Claim>,
    /// While listeners are closed whose connections on the fast path go on.
    caught: Option<C>,
}

impl<C> Default for Leaving<C> {
    fn default() -> Self {
        Self { claims: Vec::new(), caught: None }
    }
}

impl<C> Leaving<C> {
    /// Every removed service has left. Without a claim as well, if their ports have come back meanwhile. A drain still has its
    /// listeners closed. Returns whether there were claims.
    fn end(&mut self, is_draining: bool) -> bool {
        if !is_draining {
            self.caught = None;
        }
        !std::mem::take(&mut self.claims).is_empty()
    }
}

impl Instance {
    /// Removed services have connections until they have left: what is claimed for these stays claimed. Called when the
    /// plan is the new one, with the claims of the former one.
    pub(super) fn keep_leaving_claims(&mut self, former: Vec<Claim>) {
        let leaving = std::mem::take(&mut self.leaving.claims);
        self.leaving.claims = kept(leaving, former, &self.plan.claims());
        let leaving = std::mem::take(&mut self.leaving.claims);
        self.catch(&leaving);
        self.leaving.claims = leaving;
    }

    /// The listeners of what is claimed so are about to close: from now on, the kernel answers nothing of connections on the fast
    /// path. Counters do not say whether there are some: one may begin until the listener is closed.
    pub(super) fn catch(&mut self, closing: &[Claim]) {
        if self.leaving.caught.is_none() && has_connections(closing) {
            self.leaving.caught = self.connections.catch();
        }
    }

    /// The claims on the interface: those of the plan, and those of connections of removed services.
    pub(super) fn claims(&self) -> Vec<Claim> {
        self.claims_beside_leaving(self.plan.claims())
    }

    /// The claims of a plan, and those of connections of removed services.
    pub(super) fn claims_beside_leaving(&self, mut claims: Vec<Claim>) -> Vec<Claim> {
        // A reload that was refused has brought services back that were to leave.
        claims.extend(kept(self.leaving.claims.clone(), Vec::new(), &claims));
        let has_connections = self.connections.flows().is_some();
        claims.retain(|claim| has_connections || !claim.connections);
        claims
    }

    /// Every removed service has left: nothing is claimed for them any more.
    pub(super) fn drop_leaving_claims(&mut self) {
        // During a reload, what is to leave has not left the lifecycle's services yet.
        if self.lifecycle.has_leaving()
            || self.reloads.is_changing()
            || !self.leaving.end(self.lifecycle.is_draining())
        {
            return;
        }
        let claims = self.claims();
        let Some(attachment) = &mut self.interface.attachment else { return };
        if claims.is_empty() {
            self.events.push_back(Event::NothingClaimed);
        } else if let Err(error) = attachment.claim(claims) {
            tracing::error!("what removed services had is still claimed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use twinpath_wire::Protocol;

    use super::*;

    fn of(port: u16, sources: &[&str]) -> Claim {
        let sources = sources.iter().map(|prefix| prefix.parse().unwrap()).collect();
        Claim { sources, ..Claim::connections(port) }
    }

    /// The first connection may begin after the decision, before its listener closes.
    #[test]
    fn listeners_with_a_fast_path_close_behind_a_catcher_also_without_connections() {
        assert!(has_connections(&[Claim::port(Protocol::Udp, 7), of(7, &[])]));
        assert!(!has_connections(&[Claim::port(Protocol::Udp, 7)]));
    }

    #[test]
    fn the_catcher_goes_with_the_last_removed_service_also_where_its_port_has_come_back() {
        let leaving = |claims: &[Claim]| Leaving { claims: claims.to_vec(), caught: Some(()) };
        let end =
            |mut leaving: Leaving<()>, is_draining| (leaving.end(is_draining), leaving.caught.is_some());
        assert_eq!(end(leaving(&[]), false), (false, false));
        assert_eq!(end(leaving(&[of(7, &[])]), false), (true, false));
        assert_eq!(end(leaving(&[of(7, &[])]), true), (true, true));
    }

    #[test]
    fn a_service_whose_sources_change_keeps_no_second_claim_on_its_port() {
        let former = vec![of(7, &[]), Claim::port(Protocol::Udp, 7), of(9, &[])];
        let now = [of(7, &["192.0.2.0/24"]), Claim::port(Protocol::Udp, 7)];
        let leaving = kept(Vec::new(), former, &now);
        assert_eq!(leaving, [of(9, &[])], "of connections alone, and of no port that is claimed now");
        // The port comes and goes again, before the first connections to it have ended.
        let again = kept(leaving.clone(), vec![of(9, &["192.0.2.0/24"])], &now);
        assert_eq!(again, leaving);
        assert_eq!(kept(leaving, Vec::new(), &[of(9, &["192.0.2.0/24"])]), []);
    }
}
