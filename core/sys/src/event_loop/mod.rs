//! An event loop on epoll(7) for one thread: futures that wait for descriptors, for a time, or for other threads.
//!
//! A future here needs no wakers of its own: all futures of a loop are polled whenever one of them may go on. So they
//! are few: the sources of a control loop, and some tasks. While nothing happens, the thread sleeps in `epoll_wait(2)`
//! without a time-out, unless a future waits for a time.

pub mod channel;
mod latest;
mod lines;
mod time;
mod watched;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use twinpath_time::Instant;

use self::watched::Readiness;
use crate::{EventFd, clock};

pub use latest::Latest;
pub use lines::{Line, Lines};
pub use time::{TimedOut, sleep, sleep_until, timeout, yield_now};
pub use watched::Watched;

/// Maximum number of events that one call of the kernel returns; the next call returns further ones.
const EVENTS: usize = 64;

/// The number of the loop's own eventfd among the descriptors that it watches.
const WAKE: u64 = 0;

thread_local! {
    /// The loop that runs on this thread.
    static CURRENT: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
}

/// An event loop.
pub struct EventLoop {
    state: Rc<State>,
}

/// What the futures of a loop have in common.
struct State {
    epoll: OwnedFd,
    waker: Arc<LoopWaker>,
    watched: RefCell<BTreeMap<u64, Rc<Readiness>>>,
    /// The number of the next descriptor.
    number: Cell<u64>,
    tasks: RefCell<Vec<Rc<Running>>>,
    /// The earliest time that a future has waited for in this round.
    due: Cell<Instant>,
    /// Rounds so far: of several futures that are ready, another one is first in each round.
    rounds: Cell<usize>,
}

/// A task. `None` once it has ended or was aborted.
struct Running(RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>);

/// Ends a loop's sleep, also from other threads.
struct LoopWaker {
    state: AtomicU8,
    wake: EventFd,
}

/// The loop is polling.
const AWAKE: u8 = 0;
/// A future may go on: the loop polls again before it sleeps.
const WOKEN: u8 = 1;
/// The loop sleeps, or is about to.
const ASLEEP: u8 = 2;

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            self.wake.signal();
        }
    }
}

/// The loop is this thread's while this exists.
#[must_use]
pub struct Here {
    former: Option<Rc<State>>,
}

impl Drop for Here {
    fn drop(&mut self) {
        CURRENT.with(|current| *current.borrow_mut() = self.former.take());
    }
}

impl EventLoop {
    /// A loop without tasks.
    ///
    /// # Errors
    /// From `epoll_create1(2)`, `eventfd(2)`, `epoll_ctl(2)`: the limit of descriptors is reached.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = LoopWaker { state: AtomicU8::new(AWAKE), wake: EventFd::new()? };
        // Each signal is an event, although the eventfd stays readable.
        epoll::add(&epoll, &waker.wake, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)?;
        let state = State {
            epoll,
            waker: Arc::new(waker),
            watched: RefCell::default(),
            number: Cell::new(WAKE + 1),
            tasks: RefCell::default(),
            due: Cell::new(Instant::NEVER),
            rounds: Cell::default(),
        };
        Ok(Self { state: Rc::new(state) })
    }

    /// Makes it this thread's loop: descriptors that are watched, tasks and times are its own.
    pub fn enter(&self) -> Here {
        let state = Some(Rc::clone(&self.state));
        Here { former: CURRENT.with(|current| std::mem::replace(&mut *current.borrow_mut(), state)) }
    }

    /// Runs on this thread until `future` has ended. Tasks that still run are dropped with the loop.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(&self.state.waker));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = self.poll(&mut context, future.as_mut()) {
                return output;
            }
            self.state.sleep();
        }
    }

    /// Polls `future` and all tasks once, for a program in which another loop sleeps for this one: until
    /// [its descriptor](AsFd) is readable, which [`Self::take_events`] ends, until [`Self::due`], or until the waker of
    /// `context` is called.
    pub fn poll<T>(&self, context: &mut Context<'_>, future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let _here = self.enter();
        let state = &self.state;
        state.due.set(Instant::NEVER);
        state.rounds.set(state.rounds.get().wrapping_add(1));
        let polled = future.poll(context);
        if polled.is_pending() {
            state.poll_tasks(context);
        }
        polled
    }

    /// Notes which descriptors are ready. Does not wait.
    pub fn take_events(&self) {
        self.state.take_events(Some(&Timespec::default()));
    }

    /// The earliest time that a future waits for, as of the last [`Self::poll`].
    #[must_use]
    pub fn due(&self) -> Instant {
        self.state.due.get()
    }
}

impl AsFd for EventLoop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.epoll.as_fd()
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // Their descriptors hold the state.
        self.state.tasks.take();
    }
}

impl State {
    fn poll_tasks(&self, context: &mut Context<'_>) {
        // In this round as well: those that the loop's future, or a task, has just added.
        let mut at = 0;
        while let Some(task) = self.task(at) {
            task.poll(context);
            at += 1;
        }
        self.tasks.borrow_mut().retain(|task| !task.has_ended());
    }

    fn task(&self, at: usize) -> Option<Rc<Running>> {
        self.tasks.borrow().get(at).map(Rc::clone)
    }

    /// Waits until a future may go on.
    fn sleep(&self) {
        let state = &self.waker.state;
        if state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            state.swap(AWAKE, Ordering::AcqRel);
            self.take_events(Some(&Timespec::default()));
            return;
        }
        let left = match self.due.get() {
            Instant::NEVER => None,
            due => Some(whole_milliseconds(due.nanos_since(clock::now()))),
        };
        self.take_events(left.as_ref());
        // What was sent before a waker was called is seen from here on.
        state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Waits for the first event at most so long, and takes all: another loop that sleeps for this one is not told again
    /// of those that are left.
    fn take_events(&self, within: Option<&Timespec>) {
        let mut within = within;
        while self.take_some(within) == EVENTS {
            within = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        }
    }

    /// Returns how many.
    fn take_some(&self, within: Option<&Timespec>) -> usize {
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), within) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => unreachable!("epoll_wait of an epoll of our own: {error}"),
        }
        let watched = self.watched.borrow();
        for event in &events {
            if let Some(readiness) = watched.get(&event.data.u64()) {
                readiness.add(event.flags);
            }
        }
        events.len()
    }
}

/// The kernel waits for whole milliseconds; what is due earlier would only be asked again and again.
fn whole_milliseconds(nanos: u64) -> Timespec {
    let millis = nanos.div_ceil(1_000_000);
    // A longer wait only ends early.
    let millis = millis.min(i32::MAX as u64);
    Timespec { tv_sec: (millis / 1000) as i64, tv_nsec: (millis % 1000 * 1_000_000) as _ }
}

impl Running {
    fn poll(&self, context: &mut Context<'_>) {
        // Taken out while it runs, as it may abort itself.
        let Some(mut future) = self.0.take() else { return };
        if future.as_mut().poll(context).is_pending() {
            *self.0.borrow_mut() = Some(future);
        }
    }

    fn has_ended(&self) -> bool {
        self.0.borrow().is_none()
    }
}

/// A task of the loop. It goes on when this is dropped.
pub struct Task(Rc<Running>);

impl Task {
    /// Ends it, and drops what it holds at once. A task must not abort itself.
    pub fn abort(&self) {
        drop(self.0.0.take());
    }
}

/// Runs a future beside others on the loop of this thread, until it ends, is aborted, or the loop is dropped.
///
/// # Errors
/// No loop runs on this thread.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> io::Result<Task> {
    let state = current()?;
    let task = Rc::new(Running(RefCell::new(Some(Box::pin(future)))));
    state.tasks.borrow_mut().push(Rc::clone(&task));
    Ok(Task(task))
}

/// Runs work that blocks on a thread of its own, and waits for its result.
///
/// # Errors
/// There can be no further thread.
pub async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, mut result) = channel::once();
    let work = move || drop(done.send(work()));
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    result.recv().await.ok_or_else(|| io::Error::other("the thread has ended without a result"))
}

/// Waits for the first of some futures that ends. Each of them may be the first: with several ready at a time, none
/// waits for ever. The others are dropped; [`race!`](crate::race) pins them.
pub async fn race<T>(futures: &mut [Pin<&mut dyn Future<Output = T>>]) -> T {
    poll_fn(|context| {
        let rounds = CURRENT.with(|current| current.borrow().as_ref().map_or(0, |state| state.rounds.get()));
        let (before, first) = futures.split_at_mut(rounds % futures.len().max(1));
        let mut polled = first.iter_mut().chain(before).map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Waits for the first of these futures that ends; all have the same output.
#[macro_export]
macro_rules! race {
    ($($future:expr),+ $(,)?) => {
        $crate::event_loop::race(&mut [$(::std::pin::pin!($future)),+]).await
    };
}

fn current() -> io::Result<Rc<State>> {
    let none = || io::Error::other("no event loop runs on this thread");
    CURRENT.with(|current| current.borrow().as_ref().map(Rc::clone)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use twinpath_time::Duration;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        EventLoop::new().unwrap().run(future)
    }

    #[test]
    fn a_descriptor_is_ready_once_for_each_event() {
        run(async {
            let event = Watched::readable(EventFd::new().unwrap()).unwrap();
            let nothing = Duration::from_millis(1);
            assert!(timeout(nothing, event.event()).await.is_err());
            event.get_ref().signal();
            event.event().await;
            assert!(
                timeout(nothing, event.event()).await.is_err(),
                "it was reported, although it is readable"
            );
            event.get_ref().signal();
            event.until_readable().await;
            event.until_readable().await;
            assert_eq!(event.try_read(|event| Ok(event.drain())).unwrap(), 2);
        });
    }

    #[test]
    fn another_loop_is_told_once_of_all_that_are_ready() {
        let events = EventLoop::new().unwrap();
        let _here = events.enter();
        let new = || Watched::readable(EventFd::new().unwrap()).unwrap();
        let watched: Vec<_> = std::iter::repeat_with(new).take(3 * EVENTS).collect();
        watched.iter().for_each(|event| event.get_ref().signal());
        events.take_events();
        let is_ready = |event: &&Watched<EventFd>| event.readiness.is_readable();
        assert_eq!(watched.iter().filter(is_ready).count(), watched.len());
    }

    #[test]
    fn another_thread_ends_the_sleep() {
        run(async {
            let (tell, mut told) = channel::bounded(1);
            let thread = std::thread::spawn(move || {
                (0..1000).for_each(|number| tell.blocking_send(number).unwrap());
            });
            for number in 0..1000 {
                assert_eq!(told.recv().await, Some(number));
            }
            assert_eq!(told.recv().await, None, "the sender has gone");
            thread.join().unwrap();
            assert_eq!(on_a_thread("seven", || 7).await.unwrap(), 7);
        });
    }

    #[test]
    fn tasks_run_beside_until_they_are_aborted() {
        run(async {
            let (tell, mut told) = channel::bounded(1);
            let talks = async move {
                for number in 0.. {
                    tell.send(number).await.unwrap();
                }
            };
            let task = spawn(talks).unwrap();
            for number in 0..10 {
                assert_eq!(told.recv().await, Some(number));
            }
            task.abort();
            assert!(told.recv().await.is_none_or(|number: u32| number == 10));
            assert_eq!(told.recv().await, None, "what an aborted task holds is dropped");
        });
    }

    #[test]
    fn none_of_several_that_are_always_ready_waits_for_ever() {
        let mut taken = [0; 3];
        run(async {
            for _ in 0..300 {
                let winner = race!(async { 0 }, async { 1 }, async { 2 });
                taken[winner] += 1;
                yield_now().await;
            }
        });
        assert_eq!(taken, [100; 3]);
    }

    #[test]
    fn the_earliest_of_several_times_comes_first_and_none_before_its_time() {
        run(async {
            let begin = clock::now();
            let of = |millis| async move {
                sleep_until(begin + Duration::from_millis(millis)).await;
                millis
            };
            // The others come long after this test, however busy the machine is.
            assert_eq!(race!(of(600_000), of(3), of(900_000)), 3);
            assert!(clock::now() >= begin + Duration::from_millis(3));
            assert_eq!(timeout(Duration::from_millis(1), std::future::pending::<()>()).await, Err(TimedOut));
            assert_eq!(timeout(Duration::from_secs(600), async { 7 }).await, Ok(7));
        });
    }

    #[test]
    fn waits_are_whole_milliseconds_and_never_too_short() {
        for (nanos, millis) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (2_500_000_000, 2500)] {
            let wait = whole_milliseconds(nanos);
            assert_eq!(wait.tv_sec * 1000 + wait.tv_nsec / 1_000_000, millis);
        }
        assert_eq!(whole_milliseconds(u64::MAX).tv_sec, i64::from(i32::MAX) / 1000);
    }

    #[test]
    fn another_loop_may_sleep_for_this_one() {
        let events = EventLoop::new().unwrap();
        let _here = events.enter();
        let event = EventFd::new().unwrap();
        let watched = Watched::readable(event.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let mut waits = pin!(async {
            watched.event().await;
            sleep_until(Instant::ZERO + Duration::from_secs(1 << 40)).await;
        });
        let mut context = Context::from_waker(Waker::noop());
        assert!(events.poll(&mut context, waits.as_mut()).is_pending());
        assert_eq!(events.due(), Instant::NEVER);
        event.signal();
        let readable = |timeout| {
            let mut fds = [rustix::event::PollFd::new(&events, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&timeout)).unwrap()
        };
        assert_eq!(readable(Timespec { tv_sec: 10, tv_nsec: 0 }), 1);
        events.take_events();
        assert_eq!(readable(Timespec::default()), 0);
        assert!(events.poll(&mut context, waits.as_mut()).is_pending());
        assert_eq!(events.due(), Instant::ZERO + Duration::from_secs(1 << 40));
    }
}
