//! The results of one run.

use twinpath_load::Summary;
use twinpath_socket_load::Transfers;
use twinpath_time::Duration;

/// One run.
pub struct Measured {
    /// One entry per thread.
    pub threads: Vec<ThreadMeasured>,
    /// The path that was used; never `auto`.
    pub path: String,
    /// Heap allocations, where they are counted.
    pub allocations_per_packet: Option<f64>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The results of one thread.
pub struct ThreadMeasured {
    /// Request counts and round-trip times.
    pub summary: Summary,
    /// CPU time of the thread over the measured window.
    pub cpu_time: Duration,
    /// System calls, if over kernel sockets.
    pub transfers: Option<Transfers>,
    /// A description of the first wrong reply.
    pub complaint: Option<String>,
    /// The error that ended it early, after some replies had arrived.
    pub broken: Option<String>,
}

impl Measured {
    /// All threads together.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut whole = Summary::empty();
        self.threads.iter().for_each(|thread| whole.merge(&thread.summary));
        whole
    }

    /// CPU time of all threads.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.threads.iter().map(|thread| thread.cpu_time).sum()
    }

    /// System calls of all threads; `None` on the fast path.
    #[must_use]
    pub fn transfers(&self) -> Option<Transfers> {
        self.threads.iter().try_fold(Transfers::default(), |mut whole, thread| {
            whole.merge(thread.transfers.as_ref()?);
            Some(whole)
        })
    }

    /// The first complaint of any thread.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.complaint.as_deref())
    }

    /// The first early end of any thread.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.broken.as_deref())
    }
}
