//! One call that waits for sockets with leases and for other descriptors: the loop that all kinds of such calls share.

use std::io;
use std::time::Duration;

use twinpath_idle::Woken;
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::Decision;

/// How often the kernel is asked by a call that spins, or that finds datagrams again and again.
pub(crate) const ASK_EVERY: Duration = Duration::from_micros(20);

/// What a call waits for.
pub trait Awaited {
    /// Looks at the rings. Returns whether a socket is ready.
    fn look(&mut self, now: Instant) -> bool;

    /// Asks the kernel for everything that is waited for, and waits there until then; [`Instant::ZERO`]: not at all. Returns whether
    /// something is ready.
    ///
    /// # Errors
    /// What the kernel returns; the call ends with it.
    fn ask(&mut self, until: Instant) -> io::Result<bool>;

    /// Holds the leases.
    fn hold(&mut self, now: Instant);

    /// Gives the leases back. Returns whether there is nothing in the rings: then sleeping in the kernel misses nothing.
    fn give_back(&mut self, now: Instant) -> bool;

    /// When to spin and when to sleep.
    fn decide(&mut self, now: Instant, deadline: Instant) -> Decision;

    /// The call slept.
    fn woke(&mut self, now: Instant, woken: Woken);

    /// Something is ready, and was not when it was looked for last.
    fn found(&mut self, now: Instant, looked: Instant);
}

/// Waits until something is ready, or until the time-out: `None` is for ever, zero not at all. Returns whether something is ready.
/// `ask_at` is when the kernel is to be asked next, kept from one call to the next.
///
/// # Errors
/// Those of [`Awaited::ask`].
pub fn wait(timeout: Option<Duration>, ask_at: &mut Instant, on: &mut impl Awaited) -> io::Result<bool> {
    let begun = clock::now();
    let deadline = timeout.map_or(Instant::NEVER, |timeout| begun + timeout);
    let mut looked = begun;
    loop {
        let now = clock::now();
        let mut is_ready = on.look(now);
        let asks = now >= *ask_at;
        if is_ready && asks {
            *ask_at = now + ASK_EVERY;
            is_ready |= on.ask(Instant::ZERO)?;
        }
        if is_ready {
            on.found(now, looked);
            return Ok(true);
        }
        if now >= deadline {
            // Without a time-out the kernel has to be asked, whenever that was last done.
            return if asks || timeout == Some(Duration::ZERO) { on.ask(Instant::ZERO) } else { Ok(false) };
        }
        match on.decide(now, deadline) {
            Decision::Turn => {
                if asks {
                    *ask_at = now + ASK_EVERY;
                    if on.ask(Instant::ZERO)? {
                        on.found(now, looked);
                        return Ok(true);
                    }
                }
                looked = now;
                on.hold(now);
                std::hint::spin_loop();
            }
            // A sleep asks the kernel as well.
            Decision::Sleep { until } => {
                looked = now;
                if on.give_back(now) {
                    let came = on.ask(until)?;
                    looked = clock::now();
                    *ask_at = looked + ASK_EVERY;
                    on.woke(looked, if came { Woken::Packet(None) } else { Woken::Timer });
                    if came {
                        on.found(looked, looked);
                        return Ok(true);
                    }
                }
            }
        }
    }
}
