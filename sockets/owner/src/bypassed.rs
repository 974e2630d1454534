//! Ends what programs have been given, when the kernel begins to check their datagrams in a way that rings would
//! bypass.

use twinpath_attach::path::bypassed::{self, Claimed};

use crate::Owner;
use crate::program::Program;

impl Owner {
    /// The kernel's configuration of such checks may have changed. A program is no longer served if a check is for one
    /// of its ports. From then on the kernel serves its sockets; those that it binds later may have rings again.
    pub(crate) fn look_at_bypassed(&mut self) {
        let Some(ifindex) = self.ifindex else { return };
        let addresses: Vec<_> = self.mirror.tables().addresses(ifindex).map(|(address, _)| address).collect();
        let look = |programs: &[Program]| {
            let rings = programs.iter().flat_map(|program| &program.rings);
            bypassed::look_for_sockets(&Claimed {
                ifindex,
                interface: self.plan.interface.clone(),
                addresses: addresses.clone(),
                ports: rings.map(|ring| ring.local.port()).collect(),
            })
        };
        // Most changes are for none of them.
        if look(&self.programs).is_none() {
            return;
        }
        let found: Vec<_> = self.programs.iter().map(|program| look(std::slice::from_ref(program))).collect();
        for (at, why) in found.into_iter().enumerate().rev() {
            if let Some(why) = why {
                tracing::warn!("{} is served no more: {why}", self.programs[at].name);
                self.dismiss(at, &why.to_string());
            }
        }
    }
}
