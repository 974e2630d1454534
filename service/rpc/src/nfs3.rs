//! The server of NFS version 3 (RFC 1813): NULL and GETATTR, on a tree in memory.

use std::ops::RangeInclusive;
use std::sync::Arc;

use nfs3_types::nfs3::{NFS_PROGRAM, NFS3_FHSIZE, PROGRAM, VERSION};

pub use self::tree::{HANDLE_LEN, Node, ROOT, Tree, TreeBuilder, TreeError};
use twinpath_service::{HOLD_MAX, Name};

use crate::program::{Handled, Keepable, Program, Request, Results};
use crate::refusal::Refusal;
use crate::xdr::Reader;

mod tree;

const GETATTR: u32 = NFS_PROGRAM::NFSPROC3_GETATTR as u32;

/// The program.
#[derive(Clone, Debug)]
pub struct Nfs3 {
    tree: Arc<Tree>,
}

impl Nfs3 {
    /// Serves `tree`.
    #[must_use]
    pub const fn new(tree: Arc<Tree>) -> Self {
        Self { tree }
    }
}

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn results_max(&self) -> usize {
        tree::GETATTR_LEN
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        match request.procedure {
            GETATTR => {
                let mut args = Reader::new(request.args);
                let handle = args.opaque(NFS3_FHSIZE as u32)?;
                match self.tree.find(handle) {
                    Ok(node) => results.write(self.tree.attributes(node)),
                    Err(status) => results.write_u32(status as u32),
                }
                Ok(Handled::Now)
            }
            _ => Err(Refusal::ProcedureUnavailable),
        }
    }

    /// Attributes depend on the handle alone. The tree is fixed, so nothing withdraws them.
    fn keep(&self, request: &Request<'_>) -> Option<Keepable> {
        let mut args = Reader::new(request.args);
        let handle = args.opaque(NFS3_FHSIZE as u32).ok()?;
        // With trailing bytes, each call would have a kept reply of its own.
        args.finish().ok()?;
        let is_known = request.procedure == GETATTR && self.tree.find(handle).is_ok();
        is_known.then(|| Keepable { name: Name::of(handle), hold: HOLD_MAX })
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
