//! The metric families of Reliable Datagram Sockets; they follow the others in docs/metrics.md.

use super::Family;
use super::declared::{RDS_PATHS, RDS_SOCKETS};

/// The families.
pub(super) fn all() -> Vec<Family> {
    RDS_PATHS.families().into_iter().chain(RDS_SOCKETS.families()).collect()
}
