//! What a transport hands back from one run.

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
    /// For the reader.
    pub notes: Vec<String>,
}

/// One thread of it.
pub struct ThreadMeasured {
    /// Requests and their times.
    pub summary: Summary,
    /// CPU time of the thread over the measured window.
    pub cpu_time: Duration,
    /// On kernel sockets.
    pub transfers: Option<Transfers>,
    /// What the first reply was that was not right, in words.
    pub complaint: Option<String>,
    /// What ended it early, some replies having come.
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

    /// Likewise.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.threads.iter().map(|thread| thread.cpu_time).sum()
    }

    /// Likewise; `None` where there are no system calls to count.
    #[must_use]
    pub fn transfers(&self) -> Option<Transfers> {
        self.threads.iter().try_fold(Transfers::default(), |mut whole, thread| {
            whole.merge(thread.transfers.as_ref()?);
            Some(whole)
        })
    }

    /// The first of its kind.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.complaint.as_deref())
    }

    /// Likewise.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.broken.as_deref())
    }
}
