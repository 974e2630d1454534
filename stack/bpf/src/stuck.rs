//! The records by which the programs report stuck workers: a word for each queue, and a ring that wakes the control
//! thread.

use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData, RingBuf};
use twinpath_rings::pending::kept_for;
use twinpath_time::Duration;

use crate::SteerError;
use crate::maps::typed;

/// The words and the ring of one object. Both exist in every object. Without a time after which a worker is stuck,
/// the programs use neither, and no descriptors are given out.
pub(crate) struct StuckRecords {
    words: MapData,
    ring: RingBuf<MapData>,
    fails_open: bool,
}

impl StuckRecords {
    /// Takes the maps out of a loaded object whose programs have the limit `stuck_after_ns`.
    pub(crate) fn take(object: &mut Ebpf, stuck_after_ns: u64) -> Result<Self, SteerError> {
        let Some(Map::Array(words)) = object.take_map("pending") else {
            return Err(SteerError::Missing("pending"));
        };
        Ok(Self { words, ring: typed(object, "stuck")?, fails_open: stuck_after_ns > 0 })
    }

    /// Whether the programs can find a worker stuck.
    pub(crate) const fn fails_open(&self) -> bool {
        self.fails_open
    }

    /// The words, to be mapped.
    pub(crate) fn words(&self) -> Option<BorrowedFd<'_>> {
        self.fails_open.then(|| self.words.fd().as_fd())
    }

    /// A descriptor that is readable from the time at which a worker is found stuck until [`Self::discard`].
    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.fails_open.then(|| self.ring.as_fd())
    }

    /// Discards the records, so that the descriptor is no longer readable.
    pub(crate) fn discard(&mut self) {
        while self.ring.next().is_some() {}
    }
}

/// The age of a word at which the programs regard its worker as stuck, ns; 0: never. A worker that does not sleep
/// may clear its word as late as [`kept_for`] says, so that time is added.
pub(crate) fn stuck_after_ns(fail_open: Duration) -> u64 {
    u64::try_from((fail_open + kept_for(fail_open)).as_nanos()).unwrap_or(0)
}
