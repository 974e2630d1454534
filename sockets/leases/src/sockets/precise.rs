//! Sleeps that end on time: by default the kernel ends a thread's sleep up to 50 us late, to save wake-ups (timer
//! slack).

use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// While it lives, sleeps of this thread are precise. Afterwards they are as the application has set them.
#[derive(Debug)]
#[must_use]
pub struct Precise {
    before_ns: Option<NonZeroU64>,
}

impl Default for Precise {
    fn default() -> Self {
        Self::new()
    }
}

impl Precise {
    /// From now on, on the calling thread, until it is dropped.
    pub fn new() -> Self {
        let before_ns = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Where it is refused the sleep is late, and nothing else.
        let _ = before_ns.map(|_| set_current_timer_slack(Some(NonZeroU64::MIN)));
        Self { before_ns }
    }
}

impl Drop for Precise {
    fn drop(&mut self) {
        let _ = self.before_ns.map(|before_ns| set_current_timer_slack(Some(before_ns)));
    }
}

/// As `epoll_wait(2)`, which counts in milliseconds, but with a time-out in nanoseconds: a sleep that is to end just before a packet
/// is shorter than one. `epoll_pwait2(2)` would do as well, where there is one (Linux 5.11; not under valgrind). It may return nothing
/// before the time-out if another thread that waits took the event.
pub(crate) fn epoll_wait<'a>(
    set: impl AsFd,
    room: &'a mut [MaybeUninit<epoll::Event>],
    timeout: Option<&Timespec>,
) -> Result<&'a [epoll::Event], Errno> {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let may_sleep = timeout.is_some_and(|timeout| *timeout != AT_ONCE);
    if may_sleep && poll(&mut [PollFd::new(&set, PollFlags::IN)], timeout)? == 0 {
        return Ok(&[]);
    }
    let timeout = if may_sleep { Some(&AT_ONCE) } else { timeout };
    let (ready, _) = epoll::wait(set, room, timeout)?;
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use twinpath_sys::{EventFd, clock};

    use super::*;

    const ROOM: usize = 2;

    #[test]
    fn a_sleep_in_an_epoll_ends_to_the_microsecond_or_with_an_event() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let event = EventFd::new().expect("an eventfd");
        epoll::add(&set, &event, epoll::EventData::new_u64(7), epoll::EventFlags::IN).expect("added");
        let sleep = |us: u32| {
            let _precise = Precise::new();
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(us) * 1_000 };
            let mut room = [const { MaybeUninit::uninit() }; ROOM];
            let before = clock::now();
            let tokens: Vec<_> = epoll_wait(&set, &mut room, Some(&timeout))
                .expect("a sound call")
                .iter()
                .map(|event| {
                    let data = event.data;
                    data.u64()
                })
                .collect();
            (tokens, clock::now().since(before))
        };
        // The machine may be busy at times, but a clock of milliseconds would never do.
        let is_short = |(tokens, took): (Vec<u64>, twinpath_time::Duration)| {
            assert!(tokens.is_empty() && took >= Duration::from_micros(100));
            took < Duration::from_micros(900)
        };
        assert!((0..10_000).any(|_| is_short(sleep(100))));
        event.signal();
        assert_eq!(sleep(100_000).0, [7]);
        assert_eq!(sleep(0).0, [7]);
    }
}
