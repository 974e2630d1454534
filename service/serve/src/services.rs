//! The services of the program `twinpath`: echo, discard, chargen, reflect, and ONC RPC with programs that it is given. The generic code of the engine
//! is compiled for them here, with full optimisation.

use std::sync::Arc;

use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, Tree};
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{Duplicates, Program, RpcService, Server, TableError};
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

/// Answers calls of these programs, but for those whose replies are kept in `duplicates`.
///
/// # Errors
/// The programs conflict with each other.
pub fn rpc(
    programs: Vec<Box<dyn Program>>,
    duplicates: &Arc<Duplicates>,
    records: RecordLimits,
) -> Result<Box<dyn Prototype>, TableError> {
    Ok(Box::new(RpcService::new(Server::sharing(programs, duplicates)?, records)))
}

/// The ONC RPC programs that are served: NFSv3 and MOUNT on a small fixed tree.
#[must_use]
pub fn programs() -> Vec<Box<dyn Program>> {
    let tree = Arc::new(Tree::small());
    vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))]
}

#[cfg(test)]
mod tests {
    use twinpath_rpc::DuplicateLimits;
    use twinpath_time::Duration;

    use super::*;

    #[test]
    fn rpc_tells_calls_from_replies_and_so_has_no_limit_of_replies_to_one_source() {
        let duplicates = DuplicateLimits { calls: 16, age: Duration::from_secs(1) };
        let duplicates = Arc::new(Duplicates::new(duplicates, 7));
        let rpc = rpc(programs(), &duplicates, RecordLimits { record_bytes: 4096, fragments: 4 }).unwrap();
        assert!(echo().may_loop());
        assert!(!rpc.may_loop());
        assert!(!discard().may_loop(), "nor has discard: it answers questions only");
    }
}
