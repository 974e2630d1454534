//! What a transport hands back from one run.

use twinpath_load::Summary;
use twinpath_socket_load::Transfers;
use twinpath_time::Duration;

/// One run.
pub(crate) struct Measured {
    pub(crate) threads: Vec<ThreadMeasured>,
    /// The path that was used; never `auto`.
    pub(crate) path: String,
    pub(crate) allocations_per_packet: Option<f64>,
    /// For the reader.
    pub(crate) notes: Vec<String>,
}

/// One thread of it.
pub(crate) struct ThreadMeasured {
    pub(crate) summary: Summary,
    /// CPU time of the thread over the measured window.
    pub(crate) cpu_time: Duration,
    /// On kernel sockets.
    pub(crate) transfers: Option<Transfers>,
    /// What the first reply was that was not right, in words.
    pub(crate) complaint: Option<String>,
    /// What ended it early, some replies having come.
    pub(crate) broken: Option<String>,
}

impl Measured {
    /// All threads together.
    pub(crate) fn summary(&self) -> Summary {
        let mut whole = Summary::empty();
        self.threads.iter().for_each(|thread| whole.merge(&thread.summary));
        whole
    }

    /// Likewise.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.threads.iter().map(|thread| thread.cpu_time).sum()
    }

    /// Likewise; `None` where there are no system calls to count.
    pub(crate) fn transfers(&self) -> Option<Transfers> {
        self.threads.iter().try_fold(Transfers::default(), |mut whole, thread| {
            whole.merge(thread.transfers.as_ref()?);
            Some(whole)
        })
    }

    /// The first of its kind.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.complaint.as_deref())
    }

    /// Likewise.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.threads.iter().find_map(|thread| thread.broken.as_deref())
    }
}
