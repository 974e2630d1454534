//! The services of the program `twinpath`: echo, discard, chargen, reflect, and ONC RPC with programs that it is given. The generic code of the engine
//! is compiled for them here, with full optimisation.

use std::sync::Arc;

use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, Tree};
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{DuplicateLimits, Program, RpcService, Server, TableError};
use twinpath_service::{Chargen, Discard, Echo, Reflect};

use crate::Prototype;

/// Sends back what has come.
#[must_use]
pub fn echo() -> Box<dyn Prototype> {
    Box::new(Echo)
}

/// Takes everything, and answers questions only.
#[must_use]
pub fn discard() -> Box<dyn Prototype> {
    Box::new(Discard::default())
}

/// Sends characters.
#[must_use]
pub fn chargen() -> Box<dyn Prototype> {
    Box::new(Chargen)
}

/// Sends frames back.
#[must_use]
pub fn reflect() -> Box<dyn Prototype> {
    Box::new(Reflect)
}

/// Answers calls of these programs. `seed` is random and secret.
///
/// # Errors
/// The programs conflict with each other.
pub fn rpc(
    programs: Vec<Box<dyn Program>>,
    duplicates: DuplicateLimits,
    records: RecordLimits,
    seed: u64,
) -> Result<Box<dyn Prototype>, TableError> {
    Ok(Box::new(RpcService::new(Server::new(programs, duplicates, seed)?, records)))
}

/// The ONC RPC programs that are served: NFSv3 and MOUNT on a small fixed tree.
#[must_use]
pub fn programs() -> Vec<Box<dyn Program>> {
    let tree = Arc::new(Tree::small());
    vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))]
}

#[cfg(test)]
mod tests {
    use twinpath_time::Duration;

    use super::*;

    #[test]
    fn rpc_tells_calls_from_replies_and_so_has_no_limit_of_replies_to_one_source() {
        let duplicates = DuplicateLimits { calls: 16, age: Duration::from_secs(1) };
        let rpc = rpc(programs(), duplicates, RecordLimits { record_bytes: 4096, fragments: 4 }, 7).unwrap();
        assert!(echo().may_loop());
        assert!(!rpc.may_loop());
        assert!(!discard().may_loop(), "nor has discard: it answers questions only");
    }
}
