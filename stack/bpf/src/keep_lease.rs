//! The lease of flows that survive their process (`bpf/keep.h`): its length, and when it began.

use std::path::Path;
use std::sync::atomic::Ordering;

use aya::maps::{Array, Map, MapData};
use aya::programs::RawTracePoint;
use aya::programs::raw_trace_point::RawTracePointLink;
use aya::{Ebpf, EbpfLoader};
use twinpath_time::{Duration, Instant};

use crate::SteerError;
pub(crate) use crate::layouts::LeaseWords;
use crate::mapped::Mapped;
use crate::offload::Sizes;
use crate::program::{loaded, program};

/// The name of the map, and of its pin.
pub(crate) const LEASE: &str = "lease";

const AT_END: &str = "twinpath_process_ends";

/// The version of all maps that the next process takes over. It changes whenever the layout or the meaning of one
/// changes.
const LAYOUT: u64 = 2;

impl LeaseWords {
    /// The words of a pinned map; `None`: there is none.
    pub(crate) fn pinned(path: &Path) -> Option<Self> {
        let map = MapData::from_pin(path).ok()?;
        Array::<_, Self>::try_from(Map::Array(map)).ok()?.get(&0, 0).ok()
    }

    /// When the lease ends; `None`: it has not begun.
    pub(crate) fn ends(&self) -> Option<Instant> {
        (self.ended_ns > 0).then(|| Instant::from_nanos(self.ended_ns.saturating_add(self.keep_ns)))
    }

    /// Whether programs with maps of these sizes can use the maps.
    pub(crate) fn fits(&self, sizes: Sizes) -> bool {
        let own = Self::of(Duration::ZERO, sizes);
        (self.layout, self.entries_max, self.cpus) == (own.layout, own.entries_max, own.cpus)
    }

    fn of(keep: Duration, sizes: Sizes) -> Self {
        Self {
            keep_ns: u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX / 2),
            layout: LAYOUT,
            entries_max: sizes.capacity.into(),
            cpus: sizes.cpus.into(),
            ..Self::default()
        }
    }
}

/// The process, as seen by the program that the kernel runs when a thread exits.
pub(crate) struct OwnPid {
    process: u32,
    device: u64,
    inode: u64,
}

impl OwnPid {
    /// The calling process.
    ///
    /// # Errors
    /// [`SteerError::Lease`] if its PID namespace cannot be read.
    pub(crate) fn get() -> Result<Self, SteerError> {
        let namespace = rustix::fs::stat("/proc/self/ns/pid").map_err(|error| SteerError::Lease {
            step: "looking at our PID namespace",
            error: error.into(),
        })?;
        Ok(Self { process: std::process::id(), device: namespace.st_dev, inode: namespace.st_ino })
    }

    /// Makes the object load for this process.
    pub(crate) fn apply<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader.override_global("process", &self.process, true);
        loader.override_global("pid_device", &self.device, true);
        loader.override_global("pid_inode", &self.inode, true);
    }
}

/// A lease that begins when the process ends.
pub(crate) struct Lease {
    words: Mapped,
    keep_ns: u64,
    /// Held, not read: the program runs while it is open.
    _at_end: RawTracePointLink,
}

impl Lease {
    /// Sets how long flows survive this process, and makes the kernel record when it ends.
    pub(crate) fn begin(object: &mut Ebpf, keep: Duration, sizes: Sizes) -> Result<Self, SteerError> {
        let words = Mapped::take(object, LEASE, size_of::<LeaseWords>())?;
        let own = LeaseWords::of(keep, sizes);
        // The programs of a former process still use its time. A shorter one waits until they have been replaced.
        let former_ns = words.word(1).map_or(0, |word| word.load(Ordering::Acquire));
        let keep_ns = own.keep_ns.max(former_ns);
        for (at, value) in [keep_ns, own.layout, own.entries_max, own.cpus].into_iter().enumerate() {
            words.store(at + 1, value);
        }
        let watcher: &mut RawTracePoint = program(object, AT_END)?;
        loaded(AT_END, || watcher.load())?;
        let attached = watcher.attach("sched_process_exit").and_then(|id| watcher.take_link(id));
        let refused =
            |error| SteerError::Lease { step: "having the kernel note our end (CAP_PERFMON)", error };
        let at_end = attached.map_err(|error| refused(std::io::Error::other(error)))?;
        Ok(Self { words, keep_ns: own.keep_ns, _at_end: at_end })
    }

    /// All programs belong to this process now: its own time applies.
    pub(crate) fn takes_over(&self) {
        self.words.store(1, self.keep_ns);
    }

    /// For the ports, the process ends now.
    pub(crate) fn ends_now(&self, now: Instant) {
        self.words.store(0, now.as_nanos());
    }
}
