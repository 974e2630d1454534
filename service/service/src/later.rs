//! Requests that are answered later by a thread that may block.

/// The order in which deferred replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of requests: everything written afterwards waits for this reply.
    AsAsked,
    /// In the order of completion, between other replies: for protocols whose replies identify their
    /// request. A reply that completes in the middle of another one waits for its end.
    AsDone,
}

/// Work that may block, and returns the reply.
///
/// The work of a service has [lanes](crate::Service::lanes), such as one for each disk: threads that do not return take no
/// threads of another lane. The room for work that waits is that of all lanes together, so a service with several has to
/// bound what it hands over for each.
pub struct Work {
    lane: u32,
    run: Box<dyn FnOnce() -> Vec<u8> + Send>,
}

impl Work {
    /// Work of a lane.
    #[must_use]
    pub fn new(lane: u32, run: impl FnOnce() -> Vec<u8> + Send + 'static) -> Self {
        Self { lane, run: Box::new(run) }
    }

    /// Its lane.
    #[must_use]
    pub const fn lane(&self) -> u32 {
        self.lane
    }

    /// Does it, and returns the reply.
    #[must_use]
    pub fn run(self) -> Vec<u8> {
        (self.run)()
    }
}

/// A piece of work that a service has handed over.
pub struct Job {
    /// The number of bytes written before it.
    pub at: usize,
    /// When its reply leaves.
    pub order: Order,
    /// The service's number for a datagram, for [`Service::late_reply`](crate::Service::late_reply).
    pub number: u64,
    /// The work itself.
    pub work: Work,
}

/// The work that a service hands over during a call. The caller takes it afterwards.
#[derive(Default)]
pub struct Later {
    pub(crate) jobs: Vec<Job>,
    pub(crate) room: usize,
    pub(crate) refused: bool,
}

impl Later {
    /// Sets how many pieces may be handed over in the next call.
    pub const fn allow(&mut self, room: usize) {
        (self.room, self.refused) = (room, false);
    }

    /// Takes the work that was handed over, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Whether nothing was handed over.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether work was refused for lack of room: the service must be called again when there is room.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }
}
