//! Requests that are answered later, by a thread that may block.

/// In which order replies leave that are given later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the requests came: everything written after it waits for it.
    AsAsked,
    /// As they are ready, between other replies: for protocols whose replies name their request. One that would come in the middle of a
    /// reply that is still being written waits for the end of that.
    AsDone,
}

/// Work that may block; what it returns is sent.
pub type Work = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// A piece of work that a service has handed over.
pub struct Job {
    /// How many bytes had been written before it.
    pub at: usize,
    /// When its reply leaves.
    pub order: Order,
    /// What the service knows a datagram by, for [`Service::late_reply`](crate::Service::late_reply).
    pub number: u64,
    /// What is to be done.
    pub work: Work,
}

/// What a service hands over during a call: for whoever calls it.
#[derive(Default)]
pub struct Later {
    pub(crate) jobs: Vec<Job>,
    pub(crate) room: usize,
    pub(crate) refused: bool,
}

impl Later {
    /// Lets so many more be handed over in the next call.
    pub const fn allow(&mut self, room: usize) {
        (self.room, self.refused) = (room, false);
    }

    /// Takes what was handed over, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Whether nothing was handed over.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether the service had to be told that there is no room: it is to be called again when there is.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }
}
