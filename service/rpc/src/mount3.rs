//! The server of MOUNT version 3 (RFC 1813, appendix I), from which a client gets the handle of a directory. It keeps
//! no list of clients.

use std::ops::RangeInclusive;
use std::sync::Arc;

use nfs3_types::mount::{MNTPATHLEN, MOUNT_PROGRAM, PROGRAM, VERSION, mountstat3};
use nfs3_types::rpc::auth_flavor;

use crate::nfs3::{HANDLE_LEN, Tree};
use crate::program::{Handled, Program, Request, Results};
use crate::refusal::Refusal;
use crate::xdr::Reader;

const MNT: u32 = MOUNT_PROGRAM::MOUNTPROC3_MNT as u32;
const DUMP: u32 = MOUNT_PROGRAM::MOUNTPROC3_DUMP as u32;
const UMNT: u32 = MOUNT_PROGRAM::MOUNTPROC3_UMNT as u32;
const UMNTALL: u32 = MOUNT_PROGRAM::MOUNTPROC3_UMNTALL as u32;
const EXPORT: u32 = MOUNT_PROGRAM::MOUNTPROC3_EXPORT as u32;

/// The flavours accepted for files of the tree, in order of preference.
const FLAVOURS: [u32; 2] = [auth_flavor::AUTH_UNIX as u32, auth_flavor::AUTH_NULL as u32];
/// The word that ends a list (RFC 4506, 4.19).
const NO_MORE: u32 = 0;
/// The word in front of an entry of a list.
const ONE_MORE: u32 = 1;

/// The program.
#[derive(Clone, Debug)]
pub struct Mount3 {
    tree: Arc<Tree>,
}

impl Mount3 {
    /// Exports every directory of `tree`, the root as `/`.
    #[must_use]
    pub const fn new(tree: Arc<Tree>) -> Self {
        Self { tree }
    }

    /// MNT (RFC 1813, appendix I, 5.2.1).
    fn mount(&self, path: &[u8], results: &mut Results<'_>) {
        let node = std::str::from_utf8(path).ok().and_then(|path| self.tree.path(path));
        match node {
            None => results.write_u32(mountstat3::MNT3ERR_NOENT as u32),
            Some(node) if !self.tree.is_directory(node) => {
                results.write_u32(mountstat3::MNT3ERR_NOTDIR as u32)
            }
            Some(node) => {
                results.write_u32(mountstat3::MNT3_OK as u32);
                results.write_opaque(&self.tree.handle(node));
                results.write_u32(FLAVOURS.len() as u32);
                FLAVOURS.iter().for_each(|flavour| results.write_u32(*flavour));
            }
        }
    }
}

impl Program for Mount3 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn results_max(&self) -> usize {
        // Status, handle with its length, flavours with their count.
        4 + (4 + HANDLE_LEN) + (4 + 4 * FLAVOURS.len())
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        let mut args = Reader::new(request.args);
        match request.procedure {
            MNT => {
                let path = args.opaque(MNTPATHLEN as u32)?;
                self.mount(path, results);
            }
            // No mounts are recorded, so there is nothing to remove.
            UMNT => drop(args.opaque(MNTPATHLEN as u32)?),
            UMNTALL => {}
            DUMP => results.write_u32(NO_MORE),
            EXPORT => {
                // One entry: its path without groups, so everybody may mount it.
                results.write_u32(ONE_MORE);
                results.write_opaque(b"/");
                results.write_u32(NO_MORE);
                results.write_u32(NO_MORE);
            }
            _ => return Err(Refusal::ProcedureUnavailable),
        }
        Ok(Handled::Now)
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }
}
