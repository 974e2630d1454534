//! The hand-over of frames to the other workers of an instance, for ports that only one of them has.
//!
//! From each worker to each other one there is a bounded ring of frames, and a second ring through which the frames
//! return to their pool. A worker lends each other one at most [`LENT_MAX`] frames, and the rings have room for
//! this many, so returning a frame never fails. A sleeping worker is signalled once, by the first other one that
//! hands something over and ends its turn.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_port::PORTS_MAX;
use twinpath_rings::handoff::{Consumer, Producer, ring};
use twinpath_rings::waiting::Waiting;
use twinpath_sys::EventFd;

/// Maximum number of frames of its pool that a worker lends to another one. A chain counts with all of its frames.
pub const LENT_MAX: u32 = 1024;

/// The signal that wakes one worker.
#[derive(Debug)]
struct Bell {
    waiting: Waiting,
    ready: EventFd,
}

/// The ends of the rings between this worker and one other.
#[derive(Debug)]
struct Link {
    /// Frames for ports of the other worker.
    out: Producer<Frame>,
    /// Frames lent to it that came back.
    returned: Consumer<Frame>,
    /// Frames lent to it that have not come back.
    lent: u32,
    /// Frames for ports of this worker.
    inbox: Consumer<Frame>,
    /// Frames returned to its pool.
    home: Producer<Frame>,
    /// The pool of the other worker; known from its first frame on.
    pool: Option<u32>,
    /// The other worker.
    bell: Arc<Bell>,
    /// Something was handed over since the last flush.
    is_touched: bool,
}

/// A worker's ends of the rings to and from all others of its instance.
#[derive(Debug)]
pub struct Peers {
    /// By number of the worker; its own entry is empty.
    links: Vec<Option<Link>>,
    bell: Arc<Bell>,
    /// The worker that has a port, plus one, by number of the port; 0: none.
    of_port: Box<[u16]>,
}

/// Makes the rings between `workers` workers; returns the ends of each, in order of their numbers.
///
/// # Errors
/// What `eventfd(2)` returns.
pub fn mesh(workers: u16) -> Result<Vec<Peers>, Errno> {
    let workers = usize::from(workers);
    let mut all = Vec::with_capacity(workers);
    for _ in 0..workers {
        let bell = Arc::new(Bell { waiting: Waiting::default(), ready: EventFd::new()? });
        let links = (0..workers).map(|_| None).collect();
        all.push(Peers { links, bell, of_port: vec![0; PORTS_MAX].into_boxed_slice() });
    }
    for first in 0..workers {
        for second in first + 1..workers {
            let ((out, inbox), (home, returned)) = (ring(LENT_MAX), ring(LENT_MAX));
            let ((out_back, inbox_back), (home_back, returned_back)) = (ring(LENT_MAX), ring(LENT_MAX));
            let link = |out, returned, inbox, home, bell| {
                Some(Link { out, returned, lent: 0, inbox, home, pool: None, bell, is_touched: false })
            };
            let bells = [first, second].map(|worker: usize| Arc::clone(&all[worker].bell));
            let [first_bell, second_bell] = bells;
            all[first].links[second] = link(out, returned, inbox_back, home_back, second_bell);
            all[second].links[first] = link(out_back, returned_back, inbox, home, first_bell);
        }
    }
    Ok(all)
}

impl Peers {
    /// Maximum number of frames of other workers that it may hold.
    pub(crate) fn foreign_max(&self) -> usize {
        self.links.len().saturating_sub(1) * LENT_MAX as usize
    }

    /// Sets the worker that has the port; `None`: no other worker has it.
    pub(crate) fn set_port(&mut self, port: u16, worker: Option<u16>) {
        if let Some(entry) = self.of_port.get_mut(usize::from(port)) {
            *entry = worker.map_or(0, |worker| worker.saturating_add(1));
        }
    }

    /// Hands a frame over to the worker that has the port.
    ///
    /// # Errors
    /// Returns it with the reason to drop it: no other worker has the port, or that worker has too many frames.
    pub(crate) fn hand_over(
        &mut self,
        port: u16,
        mut frame: Frame,
        pool: &Pool,
    ) -> Result<(), (Frame, Reason)> {
        let worker = self.of_port.get(usize::from(port)).and_then(|entry| usize::from(*entry).checked_sub(1));
        let link = worker.and_then(|worker| self.links.get_mut(worker)?.as_mut());
        // A frame of a third worker's pool could not return to it.
        let Some(link) = link.filter(|link| !link.out.is_closed() && pool.is_own(&frame)) else {
            return Err((frame, Reason::PortDown));
        };
        let frames = frame.chain().count() as u32;
        if link.lent.saturating_add(frames) > LENT_MAX {
            return Err((frame, Reason::HandoffFull));
        }
        frame.meta_mut().port = port;
        // The ring has room for all lent frames.
        link.out.push(frame).map_err(|frame| (frame, Reason::HandoffFull))?;
        (link.lent, link.is_touched) = (link.lent + frames, true);
        Ok(())
    }

    /// Takes back what others have returned.
    #[inline]
    pub(crate) fn collect(&mut self, pool: &mut Pool) {
        for link in self.links.iter_mut().flatten() {
            while let Some(frame) = link.returned.pop() {
                link.lent = link.lent.saturating_sub(1);
                pool.release(frame);
            }
        }
    }

    /// The next frame handed over by worker `nth`, from 0 to [`Self::workers`].
    #[inline]
    pub(crate) fn take(&mut self, nth: usize) -> Option<Frame> {
        let link = self.links.get_mut(nth)?.as_mut()?;
        let frame = link.inbox.pop()?;
        link.pool = Some(frame.pool());
        Some(frame)
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.links.len()
    }

    /// Whether another worker has handed something over.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        self.links.iter().flatten().any(|link| link.inbox.look())
    }

    /// Returns the other workers' frames that were released here, and signals workers that sleep while something
    /// waits for them. Returns how many were signalled.
    #[inline]
    pub(crate) fn flush(&mut self, pool: &mut Pool) -> u64 {
        for frame in pool.foreign() {
            self.give_back(frame);
        }
        let mut signals = 0;
        for link in self.links.iter_mut().flatten() {
            if std::mem::take(&mut link.is_touched) && link.bell.waiting.must_signal() {
                link.bell.ready.signal();
                signals += 1;
            }
        }
        signals
    }

    fn give_back(&mut self, frame: Frame) {
        let link = self.links.iter_mut().flatten().find(|link| link.pool == Some(frame.pool()));
        // If that worker has ended, its frame is lost with its pool, and counted as lost when it is dropped.
        if let Some(link) = link {
            let _ = link.home.push(frame);
        }
    }

    /// The worker ends: nothing more is handed over to it.
    pub(crate) fn close(&self) {
        self.links.iter().flatten().for_each(|link| link.inbox.close());
    }

    /// After all workers have ended: returns the frames in the rings, and takes back the worker's own.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        for worker in 0..self.workers() {
            while let Some(frame) = self.take(worker) {
                pool.release(frame);
            }
        }
        self.flush(pool);
        self.collect(pool);
    }

    /// The worker is about to sleep and must be signalled from now on. It looks once more afterwards.
    pub(crate) fn arm(&self) {
        self.bell.waiting.arm();
    }

    /// The worker is awake.
    pub(crate) fn disarm(&self) {
        self.bell.waiting.disarm();
    }

    /// Silences the fd.
    pub(crate) fn drain(&self) {
        self.bell.ready.drain();
    }
}

impl AsFd for Peers {
    /// Readable when the worker has been signalled since the last [`Self::drain`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.ready.as_fd()
    }
}
