//! The handler pool: threads for a service's work that may block, on the worker's CPU. The number of
//! threads varies with demand between a minimum and a maximum. The worker's end, [`HandlerPool`], never
//! waits: it submits to a bounded queue, and is woken by each reply.
//!
//! Work has lanes. Each lane has as many threads as the maximum at most, and its tasks beyond that wait beside the queue.
//! There may be as many threads as all lanes need together, so a lane whose threads do not return takes none of another one.
//! What waits is bounded for all lanes together: a service with several bounds what waits in each.
//!
//! A thread that takes a task while no other thread waits for one starts a further thread first. A thread ends when another
//! one has been waiting for as long as a thread may be idle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use twinpath_service::Work;
use twinpath_sys::{EventFd, affinity, clock};
use twinpath_time::Instant;
use twinpath_worker::thread::{PoolLimits, panics};

/// The connection or peer that a task was submitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The connection with this number.
    Connection(u32),
    /// The sender of a datagram.
    Peer,
}

struct Task {
    requester: Requester,
    ticket: u64,
    work: Work,
}

/// The reply to a task.
pub struct Done {
    /// The connection or peer that submitted it.
    pub requester: Requester,
    /// The ticket that [`HandlerPool::submit`] returned.
    pub ticket: u64,
    /// The reply, or the message and location of the panic that ended the work.
    pub reply: Result<Vec<u8>, String>,
}

/// The queue from which threads take their tasks.
struct Queue {
    tasks: Receiver<Task>,
    /// When the last waiting thread took a task.
    needed: Instant,
}

/// The tasks of one lane.
#[derive(Default)]
struct Lane {
    /// Threads that work on one.
    busy: u32,
    /// Those that were taken from the queue while it had its maximum of threads.
    waiting: VecDeque<Task>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Locked for moments.
    lanes: Mutex<Vec<Lane>>,
    /// Maximum number of threads, of all lanes.
    threads_max: u32,
    done: Mutex<Sender<Done>>,
    ready: Arc<EventFd>,
    limits: PoolLimits,
    cpu: Option<usize>,
    threads: Arc<AtomicU32>,
    /// Threads that wait for a task.
    waiting: AtomicU32,
}

/// A worker's handle of its handler pool.
pub struct HandlerPool {
    limits: PoolLimits,
    lanes: u32,
    tasks: SyncSender<Task>,
    done: Receiver<Done>,
    ready: Arc<EventFd>,
    threads: Arc<AtomicU32>,
    next_ticket: u64,
    in_flight: u32,
    /// Tasks in flight that were submitted for datagrams.
    datagrams: u32,
}

impl HandlerPool {
    /// Starts the minimum number of threads, on CPU `cpu` if there is one.
    ///
    /// # Errors
    ///
    /// What `eventfd(2)` returns; `AGAIN` if a thread can't be started.
    pub fn new(limits: PoolLimits, cpu: Option<usize>) -> Result<Self, Errno> {
        Self::for_lanes(limits, cpu, 1)
    }

    /// The same for work of several lanes. Each has the limits for itself, but for the minimum of threads.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub fn for_lanes(limits: PoolLimits, cpu: Option<usize>, lanes: u32) -> Result<Self, Errno> {
        let lanes = lanes.max(1);
        let ready = Arc::new(EventFd::new()?);
        let (tasks, queue) = sync_channel(limits.requests as usize * lanes as usize);
        let (reply, done) = channel();
        let threads = Arc::new(AtomicU32::new(0));
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { tasks: queue, needed: clock::now() }),
            lanes: Mutex::new((0..lanes).map(|_| Lane::default()).collect()),
            threads_max: limits.threads_max.max(1) * lanes,
            done: Mutex::new(reply),
            ready: Arc::clone(&ready),
            limits,
            cpu,
            threads: Arc::clone(&threads),
            waiting: AtomicU32::new(0),
        });
        for _ in 0..limits.threads_min.max(1) {
            if !start(&shared) {
                return Err(Errno::AGAIN);
            }
        }
        Ok(Self { limits, lanes, tasks, done, ready, threads, next_ticket: 0, in_flight: 0, datagrams: 0 })
    }

    /// The number of threads; another thread may read a slightly older value.
    #[must_use]
    pub fn threads(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.threads)
    }

    /// Readable while there is a reply that [`Self::drain`] has not seen.
    #[must_use]
    pub fn fd(&self) -> &EventFd {
        &self.ready
    }

    /// How many more tasks may be submitted for a connection that awaits `awaited` replies.
    #[must_use]
    pub fn room(&self, awaited: usize) -> usize {
        self.room_of_one(awaited)
            .min(self.of_all(self.limits.requests).saturating_sub(self.in_flight) as usize)
    }

    /// The same for a UDP peer; in addition, all datagrams together have a limit.
    #[must_use]
    pub fn room_for_datagram(&self, awaited: usize) -> usize {
        self.room(awaited)
            .min(self.of_all(self.limits.datagram_requests).saturating_sub(self.datagrams) as usize)
    }

    fn room_of_one(&self, awaited: usize) -> usize {
        (self.of_all(self.limits.connection_requests) as usize).saturating_sub(awaited)
    }

    /// A limit for all lanes together.
    const fn of_all(&self, limit: u32) -> u32 {
        limit.saturating_mul(self.lanes)
    }

    /// Tasks that wait or are being handled.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Queues work and returns its ticket; tickets ascend. The caller has checked [`Self::room`] before.
    pub fn submit(&mut self, requester: Requester, work: Work) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        // The queue has room for all tasks that may be in flight, and its other end exists while there is a
        // thread.
        if self.tasks.try_send(Task { requester, ticket, work }).is_ok() {
            self.in_flight += 1;
            self.datagrams += u32::from(requester == Requester::Peer);
        }
        ticket
    }

    /// Makes the descriptor unreadable until the next reply.
    pub fn drain(&self) {
        self.ready.drain();
    }

    /// Takes the next reply that has come back.
    pub fn take(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok()?;
        self.in_flight -= 1;
        self.datagrams -= u32::from(done.requester == Requester::Peer);
        Some(done)
    }
}

/// Starts another thread, unless there are enough. Returns whether it was started.
fn start(shared: &Arc<Shared>) -> bool {
    let (threads, most) = (&shared.threads, shared.threads_max);
    let one_more = |count: u32| (count < most).then_some(count + 1);
    if threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
        return false;
    }
    let own = Arc::clone(shared);
    let started = thread::Builder::new()
        .name("slow".to_owned())
        .spawn(move || panics::end_process_on_panic(|| work(&own)));
    if started.is_err() {
        threads.fetch_sub(1, Ordering::Relaxed);
    }
    started.is_ok()
}

fn work(shared: &Arc<Shared>) {
    if let Some(cpu) = shared.cpu {
        // If that CPU is gone, the thread runs on any CPU.
        let _ = affinity::pin_current_thread(cpu);
    }
    while let Some((task, was_last)) = next(shared) {
        let mut task = shared.enter(task);
        if was_last {
            start(shared);
        }
        while let Some(Task { requester, ticket, work }) = task {
            let lane = work.lane();
            let reply = panics::caught(|| work.run());
            let done = shared.done.lock().unwrap_or_else(PoisonError::into_inner);
            // If the worker has ended, so has the queue.
            let _ = done.send(Done { requester, ticket, reply });
            drop(done);
            shared.ready.signal();
            task = shared.leave(lane);
        }
    }
}

impl Shared {
    /// The calling thread works on this task from now on, unless its lane has enough threads: then one of those will.
    fn enter(&self, task: Task) -> Option<Task> {
        self.in_lane(task.work.lane(), |lane| {
            if lane.busy == self.limits.threads_max.max(1) {
                lane.waiting.push_back(task);
                return None;
            }
            lane.busy += 1;
            Some(task)
        })
    }

    /// The calling thread has done a task of this lane: it goes on with one that waits there.
    fn leave(&self, lane: u32) -> Option<Task> {
        self.in_lane(lane, |lane| {
            let next = lane.waiting.pop_front();
            lane.busy -= u32::from(next.is_none());
            next
        })
    }

    fn in_lane<R>(&self, number: u32, change: impl FnOnce(&mut Lane) -> R) -> R {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let last = lanes.len() - 1;
        change(&mut lanes[(number as usize).min(last)])
    }
}

/// The next task, and whether no other thread waits for the one after it. `None`: the thread is no longer
/// needed, and no longer counted.
fn next(shared: &Shared) -> Option<(Task, bool)> {
    let Shared { waiting, threads, limits, .. } = shared;
    waiting.fetch_add(1, Ordering::Relaxed);
    loop {
        // The thread with the lock waits for a task, the others wait for the lock: one thread at a time
        // decides.
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = (queue.needed + limits.idle).since(clock::now());
        let next = queue.tasks.recv_timeout(patience);
        let alone = waiting.load(Ordering::Relaxed) == 1;
        match next {
            Ok(task) => {
                if alone {
                    queue.needed = clock::now();
                }
                waiting.fetch_sub(1, Ordering::Relaxed);
                return Some((task, alone));
            }
            Err(RecvTimeoutError::Timeout)
                if alone || threads.load(Ordering::Relaxed) <= limits.threads_min.max(1) =>
            {
                queue.needed = clock::now();
            }
            Err(_) => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                threads.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
