//! The only place that sleeps: an epoll with all sources, and one precise timer.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use twinpath_time::{Duration, Instant};

/// A ready source, as it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token given to [`Sleeper::add`].
    pub token: u64,
    /// The fd reports an error or hang-up. If it is watched by edges, also that its peer has sent its last byte.
    pub error: bool,
}

/// Maximum number of sources reported per call; the others follow with the next one.
const READY_MAX: usize = 64;

/// A leftover timer that is due within this time is set anew.
const SOON: Duration = Duration::from_millis(20);

/// The timer's own token.
const TIMER: u64 = u64::MAX;

/// Sleeps on any number of fds.
#[derive(Debug)]
pub struct Sleeper {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer will fire. It may be earlier than wanted, if a deadline has moved: that costs one unnecessary
    /// wake-up, and saves a system call per sleep.
    armed: Instant,
    ready: Vec<Ready>,
}

impl Sleeper {
    /// # Errors
    /// What `epoll_create(2)` or `timerfd_create(2)` returns.
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Self { epoll, timer, armed: Instant::NEVER, ready: Vec::with_capacity(READY_MAX) })
    }

    /// Watches `fd` for reading (and for writing, if asked), level-triggered.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn add(&self, fd: impl AsFd, token: u64, write: bool) -> Result<(), Errno> {
        debug_assert_ne!(token, TIMER);
        epoll::add(&self.epoll, fd, EventData::new_u64(token), interest(write))
    }

    /// Watches `fd` for reading and writing, edge-triggered: reported once when it becomes ready, and immediately
    /// if it is ready.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn add_edges(&self, fd: impl AsFd, token: u64) -> Result<(), Errno> {
        debug_assert_ne!(token, TIMER);
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), edges)
    }

    /// Changes whether `fd` is also watched for writing, or watched at all for reading.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn change(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> Result<(), Errno> {
        let mut flags = interest(write);
        flags.set(EventFlags::IN, read);
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)
    }

    /// No longer watches `fd`.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn remove(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// The result of the last [`Self::look`] or [`Self::sleep`].
    #[must_use]
    pub fn ready(&self) -> &[Ready] {
        &self.ready
    }

    /// The sources that are ready now, without sleeping: one system call.
    pub fn look(&mut self) -> &[Ready] {
        self.wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// Before sleeping until `until`: a timer left from an earlier sleep that would fire sooner is set anew. If it
    /// is far ahead, it is left alone, because that costs an occasional wake-up instead of a system call per sleep.
    pub fn put_off(&mut self, now: Instant, until: Instant) {
        if self.armed < until && self.armed < now + SOON {
            self.arm_timer(until);
        }
    }

    /// Sleeps until something is ready, `until` has come (`CLOCK_MONOTONIC`), or a signal arrives. In the last two
    /// cases nothing is ready.
    pub fn sleep(&mut self, until: Instant) -> &[Ready] {
        if until < self.armed {
            self.arm_timer(until);
        }
        self.wait(None)
    }

    /// Sleeps until `until`, whatever becomes ready, or until a signal.
    pub fn pause(&self, until: Instant) {
        let nanos = until.as_nanos();
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        // EINTR is the only error that a sound call can have: the pause is shorter then.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
    }

    fn wait(&mut self, timeout: Option<&Timespec>) -> &[Ready] {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_MAX];
        self.ready.clear();
        // EINTR is the only error that a sound call can have: it reads as "nothing ready".
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, timeout) else {
            return &self.ready;
        };
        for event in events {
            // Copied out: the struct is packed on x86-64.
            let (data, flags) = (event.data, event.flags);
            if data.u64() == TIMER {
                let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
                self.armed = Instant::NEVER;
                continue;
            }
            let error = flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP);
            self.ready.push(Ready { token: data.u64(), error });
        }
        &self.ready
    }

    fn arm_timer(&mut self, at: Instant) {
        // A zero time disarms it; 1 ns after the origin is equally in the past.
        let nanos = if at == Instant::NEVER { 0 } else { at.as_nanos().max(1) };
        let it_value =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        if timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer).is_ok() {
            self.armed = at;
        }
    }
}

impl AsFd for Sleeper {
    /// Readable when something is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn interest(write: bool) -> EventFlags {
    if write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}

#[cfg(test)]
mod tests {
    use twinpath_sys::{EventFd, clock};

    use super::*;

    #[test]
    fn an_fd_wakes_it_and_a_deadline_does() {
        let mut sleeper = Sleeper::new().expect("epoll");
        let event = EventFd::new().expect("eventfd");
        sleeper.add(&event, 7, false).expect("added");
        assert!(sleeper.look().is_empty());
        event.signal();
        assert_eq!(sleeper.sleep(Instant::NEVER), [Ready { token: 7, error: false }]);
        event.drain();

        let until = clock::now() + Duration::from_millis(2);
        assert!(sleeper.sleep(until).is_empty());
        assert!(clock::now() >= until, "never early, when the timer was not armed for something else");
        sleeper.remove(&event).expect("removed");
        event.signal();
        assert!(sleeper.look().is_empty());
    }

    #[test]
    fn a_pause_is_not_ended_by_what_is_ready() {
        let mut sleeper = Sleeper::new().expect("epoll");
        let event = EventFd::new().expect("eventfd");
        sleeper.add(&event, 7, false).expect("added");
        event.signal();
        let until = clock::now() + Duration::from_millis(2);
        sleeper.pause(until);
        assert!(clock::now() >= until);
        assert_eq!(sleeper.look(), [Ready { token: 7, error: false }]);
    }

    #[test]
    fn a_timer_left_over_does_not_wake() {
        let mut sleeper = Sleeper::new().expect("epoll");
        let event = EventFd::new().expect("eventfd");
        sleeper.add(&event, 7, false).expect("added");
        let soon = clock::now() + Duration::from_millis(5);
        event.signal();
        assert!(!sleeper.sleep(soon).is_empty());
        event.drain();
        let later = soon + Duration::from_millis(10);
        sleeper.put_off(clock::now(), later);
        assert!(sleeper.sleep(later).is_empty());
        assert!(clock::now() >= later);
    }

    #[test]
    fn a_deadline_long_past_returns_at_once() {
        let mut sleeper = Sleeper::new().expect("epoll");
        assert!(sleeper.sleep(Instant::ZERO).is_empty());
    }
}
