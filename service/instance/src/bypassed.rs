//! Withholds the claims while the kernel is configured to check packets (IPsec, filters) that claimed flows
//! would bypass.

use twinpath_attach::path::bypassed::{self, Bypassed, Claimed};
use twinpath_claims::{Claim, ClaimKind};
use twinpath_config::Path;
use twinpath_lifecycle::Event;

use super::Instance;

impl Instance {
    /// The reason why nothing may be claimed now, if there is one.
    fn bypassed(&self) -> Option<Bypassed> {
        let port_of = |claim: &Claim| match claim.kind {
            ClaimKind::Port { port, .. } => Some(port),
            ClaimKind::Flow(flow) => Some(flow.destination.port()),
            ClaimKind::EtherType(_) => None,
        };
        bypassed::look(&Claimed {
            ifindex: self.interface.ifindex?,
            interface: self.interface.name.clone(),
            addresses: self.claimed_addresses(),
            ports: self.plan.claims().iter().filter_map(port_of).collect(),
        })
    }

    /// Whether the claims are to be withheld now; says why in the log and the report.
    pub(super) fn is_held_back(&mut self) -> bool {
        let bypassed = self.bypassed();
        let is_held_back = bypassed.is_some();
        if let Some(bypassed) = bypassed {
            tracing::warn!("nothing is claimed on {}: {bypassed}", self.interface.name);
            self.interface.choice.path = Path::Kernel;
            self.interface.choice.why = bypassed.to_string();
        }
        is_held_back
    }

    /// The kernel's configuration of such checks may have changed: withholds the claims, or restores them.
    pub(super) fn look_at_bypassed(&mut self) {
        if self.interface.ifindex.is_none() {
            return;
        }
        if self.lifecycle.is_withheld() {
            if self.bypassed().is_none() {
                tracing::info!("nothing speaks against claims on {} any more", self.interface.name);
                self.events.push_back(Event::Bypassed(false));
            }
        } else if self.interface.attachment.is_some() && self.is_held_back() {
            self.events.push_back(Event::Bypassed(true));
        }
    }
}
