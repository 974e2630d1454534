//! Panics on the threads of an instance: a panic in a callback is caught where the callback was called, any other
//! ends the process.
//!
//! A thread that has died serves nothing, while its listeners still accept and its claims still take frames. When
//! the process ends, the kernel removes all of that immediately and serves by itself. So no state in between is
//! allowed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::process::exit;
use std::sync::Once;

/// The process ends with this exit code after a panic that nothing catches: `EX_SOFTWARE` of sysexits.h.
pub const EXIT_CODE: i32 = 70;

/// The consequence of a panic on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It is not one of our threads.
    NotOurs,
    /// The thread cannot continue, and the process ends.
    Fatal,
    /// It happens in a callback, and is caught there.
    Caught,
}

thread_local! {
    static MEANING: Cell<Meaning> = const { Cell::new(Meaning::NotOurs) };
    /// The message and place of the last caught panic.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread. A panic in it that [`caught`] does not catch ends the process immediately, with a
/// message and [`EXIT_CODE`], without unwinding.
///
/// The process's panic hook is replaced by one that passes on the panics of all other threads.
pub fn end_process_on_panic<R>(work: impl FnOnce() -> R) -> R {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let former = take_hook();
        set_hook(Box::new(move |info| hook(info, &former)));
    });
    let before = MEANING.replace(Meaning::Fatal);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    MEANING.set(before);
    // With our hook in place, the process has already ended. Another hook may have been set since.
    outcome.unwrap_or_else(|payload| end_process(&text(&*payload)))
}

/// Calls foreign code, which may panic. A panic in it must not leave our own state half changed.
///
/// # Errors
/// The panic's message, and its place if that is known.
#[inline]
pub fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    let before = MEANING.replace(Meaning::Caught);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    MEANING.set(before);
    outcome.map_err(said)
}

/// The payload is dropped here. If that panics as well, it is not caught.
#[cold]
fn said(payload: Box<dyn Any + Send>) -> String {
    SAID.take().unwrap_or_else(|| text(&*payload))
}

fn hook(info: &PanicHookInfo<'_>, former: &dyn Fn(&PanicHookInfo<'_>)) {
    match MEANING.get() {
        Meaning::NotOurs => former(info),
        Meaning::Fatal => end_process(&told(info)),
        // Not printed: a peer that knows how to cause it could fill the log.
        Meaning::Caught => SAID.set(Some(told(info))),
    }
}

fn told(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
    format!("`{}`{place}", text(info.payload()))
}

fn text(payload: &(dyn Any + Send)) -> String {
    let words = payload.downcast_ref::<&str>().copied();
    words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// Prints the reason, and ends the process without running any more of its code.
fn end_process(why: &str) -> ! {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    // Not through the log: a user of the library may have none. If it cannot be written, the exit code still tells.
    let _ = writeln!(
        std::io::stderr(),
        "twinpath: thread {name} panicked: {why}. It cannot go on, so this process ends (exit code {EXIT_CODE}), and the kernel \
         serves from here on"
    );
    exit(EXIT_CODE)
}
