//! Requests that are answered later by a thread that may block.

use std::ops::Range;

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
    /// The part of the service's input that it still has to get.
    part: Option<Range<usize>>,
    /// What it has got, from the second value on.
    input: (Vec<u8>, usize),
    run: Box<Run>,
}

/// From its input to the reply.
type Run = dyn FnOnce(&[u8]) -> Vec<u8> + Send;

impl Work {
    /// Work of a lane.
    #[must_use]
    pub fn new(lane: u32, run: impl FnOnce() -> Vec<u8> + Send + 'static) -> Self {
        Self { lane, part: None, input: (Vec::new(), 0), run: Box::new(move |_| run()) }
    }

    /// Work of a lane that gets this part of the input of the call that hands it over.
    pub(crate) fn of_input(
        lane: u32,
        part: Range<usize>,
        run: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Self {
        Self { lane, part: Some(part), input: (Vec::new(), 0), run: Box::new(run) }
    }

    /// Its lane.
    #[must_use]
    pub const fn lane(&self) -> u32 {
        self.lane
    }

    /// Does it, and returns the reply.
    #[must_use]
    pub fn run(self) -> Vec<u8> {
        debug_assert_eq!(self.part, None, "it has got its input");
        let (bytes, from) = self.input;
        (self.run)(&bytes[from..])
    }

    /// The part of the input that it still has to get.
    pub(crate) fn part(&self) -> Option<Range<usize>> {
        self.part.clone()
    }

    /// Gives it its part of the input: these bytes, from that place on.
    pub(crate) fn give(&mut self, input: (Vec<u8>, usize)) {
        (self.part, self.input) = (None, input);
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

    /// Gives work its parts of the input of the call that has handed it over, as copies: for those that call a service
    /// themselves. A connection does it for its service.
    pub fn give(&mut self, input: &[u8]) {
        for Job { work, .. } in &mut self.jobs {
            if let Some(part) = work.part() {
                work.give((input.get(part).unwrap_or_default().to_vec(), 0));
            }
        }
    }

    /// Takes the work that was handed over, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Takes the last piece out if it wants the end of the first `used` bytes of the input, and says which part.
    pub(crate) fn take_last(&mut self, used: usize) -> Option<(Job, Range<usize>)> {
        let part = self.jobs.last()?.work.part().filter(|part| part.end == used)?;
        self.jobs.pop().map(|job| (job, part))
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
