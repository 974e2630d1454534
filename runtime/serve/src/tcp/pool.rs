//! Threads that may block, for work that a service does not do on its worker: as many as are needed between a least and a
//! most, on the worker's CPU. The worker's end of it, the [`Desk`], never waits: a bounded queue there, and a wake-up with
//! each reply that comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use twinpath_service::Work;
use twinpath_sys::{EventFd, affinity};
use twinpath_time::Duration;

/// A thread beyond the least that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// Bounds of what a service hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Threads per worker that are always there.
    pub threads_min: u32,
    /// Threads per worker, at most.
    pub threads_max: u32,
    /// Requests per worker that wait or are being worked on.
    pub requests: u32,
    /// Requests of one connection among them.
    pub connection_requests: u32,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { threads_min: 1, threads_max: 8, requests: 1024, connection_requests: 64 }
    }
}

struct Task {
    number: u32,
    ticket: u64,
    work: Work,
}

/// A reply that has come back.
pub(crate) struct Done {
    /// Of the connection.
    pub(crate) number: u32,
    pub(crate) ticket: u64,
    /// None if the work panicked.
    pub(crate) reply: Option<Vec<u8>>,
}

struct Shared {
    tasks: Mutex<Receiver<Task>>,
    done: Mutex<Sender<Done>>,
    ready: Arc<EventFd>,
    limits: PoolLimits,
    cpu: Option<usize>,
    threads: AtomicU32,
    /// Those that wait for a task.
    idle: AtomicU32,
}

/// A worker's end of its pool.
pub struct Desk {
    limits: PoolLimits,
    tasks: SyncSender<Task>,
    done: Receiver<Done>,
    ready: Arc<EventFd>,
    next_ticket: u64,
    in_flight: u32,
}

impl Desk {
    /// Starts the least number of threads, on that CPU if one is named.
    ///
    /// # Errors
    /// What `eventfd(2)` returns; `AGAIN` if a thread can't be started.
    pub fn new(limits: PoolLimits, cpu: Option<usize>) -> Result<Self, Errno> {
        let ready = Arc::new(EventFd::new()?);
        let (tasks, queue) = sync_channel(limits.requests as usize);
        let (reply, done) = channel();
        let shared = Arc::new(Shared {
            tasks: Mutex::new(queue),
            done: Mutex::new(reply),
            ready: Arc::clone(&ready),
            limits,
            cpu,
            threads: AtomicU32::new(0),
            idle: AtomicU32::new(0),
        });
        for _ in 0..limits.threads_min.max(1) {
            if !start(&shared) {
                return Err(Errno::AGAIN);
            }
        }
        Ok(Self { limits, tasks, done, ready, next_ticket: 0, in_flight: 0 })
    }

    pub(crate) fn fd(&self) -> &EventFd {
        &self.ready
    }

    /// How many more tasks a connection may hand over that awaits so many already.
    pub(crate) fn room(&self, awaited: usize) -> usize {
        let of_connection = (self.limits.connection_requests as usize).saturating_sub(awaited);
        of_connection.min(self.limits.requests.saturating_sub(self.in_flight) as usize)
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Queues work of a connection; its ticket. There is room: [`Self::room`] was asked.
    pub(crate) fn hand_over(&mut self, number: u32, work: Work) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        // The queue holds as many as may be in flight, and its other end lives as long as a thread does.
        if self.tasks.try_send(Task { number, ticket, work }).is_ok() {
            self.in_flight += 1;
        }
        ticket
    }

    /// Silences the wake-up until the next reply.
    pub(crate) fn drain(&self) {
        self.ready.drain();
    }

    /// Takes a reply that has come back.
    pub(crate) fn take(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok()?;
        self.in_flight -= 1;
        Some(done)
    }
}

/// Starts one more thread; says whether it could.
fn start(shared: &Arc<Shared>) -> bool {
    shared.threads.fetch_add(1, Ordering::Relaxed);
    let own = Arc::clone(shared);
    let started = thread::Builder::new().name("slow".to_owned()).spawn(move || work(&own));
    if started.is_err() {
        shared.threads.fetch_sub(1, Ordering::Relaxed);
    }
    started.is_ok()
}

fn work(shared: &Arc<Shared>) {
    if let Some(cpu) = shared.cpu {
        // Where the CPU has gone it runs anywhere.
        let _ = affinity::pin_current_thread(cpu);
    }
    loop {
        shared.idle.fetch_add(1, Ordering::Relaxed);
        let next = shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(IDLE);
        let waiting = shared.idle.fetch_sub(1, Ordering::Relaxed) - 1;
        let Task { number, ticket, work } = match next {
            Ok(task) => task,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if shared.threads.load(Ordering::Relaxed) > shared.limits.threads_min.max(1) {
                    break;
                }
                continue;
            }
        };
        // Whoever takes the last one's place is started before this one may block.
        if waiting == 0 && shared.threads.load(Ordering::Relaxed) < shared.limits.threads_max {
            start(shared);
        }
        let reply = catch_unwind(AssertUnwindSafe(work)).ok();
        let done = shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        // The worker may have ended.
        if done.send(Done { number, ticket, reply }).is_err() {
            break;
        }
        drop(done);
        shared.ready.signal();
    }
    shared.threads.fetch_sub(1, Ordering::Relaxed);
}
