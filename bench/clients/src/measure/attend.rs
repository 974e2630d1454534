//! Runs work in a separate thread while the main thread handles signals and draws progress.

use std::convert::Infallible;
use std::process::exit;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use twinpath_socket_load::Stop;

use crate::measure::MeasureError;

/// The interval at which progress is drawn.
const TICK: Duration = Duration::from_millis(100);
/// The exit code that a shell reports for a process ended by SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Runs `work` to its end; a SIGINT or SIGTERM requests `stop`, a second one ends the process. `tick`, if given, is
/// called ten times a second; without it the main thread sleeps throughout.
///
/// Returns the result of `work`, and whether a signal arrived.
///
/// # Errors
/// There is no event loop, or signals cannot be caught; `work` has not begun in this case.
pub fn attend<T: Send>(
    stop: &Stop,
    tick: Option<&mut dyn FnMut()>,
    work: impl FnOnce() -> T + Send,
) -> Result<(T, bool), MeasureError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(MeasureError::Signals)?;
    let guard = runtime.enter();
    let caught = |kind| signal(kind).map_err(MeasureError::Signals);
    let mut signals = [caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?];
    drop(guard);
    let (done, finished) = tokio::sync::oneshot::channel::<Infallible>();
    thread::scope(|scope| {
        let working = scope.spawn(move || {
            // Dropped at the end, even if the work panics.
            let _done = done;
            work()
        });
        let signalled = runtime.block_on(watch(stop, tick, &mut signals, finished));
        let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((result, signalled))
    })
}

async fn watch(
    stop: &Stop,
    mut tick: Option<&mut dyn FnMut()>,
    signals: &mut [Signal; 2],
    mut finished: tokio::sync::oneshot::Receiver<Infallible>,
) -> bool {
    let mut signalled = false;
    let mut ticks = tokio::time::interval(TICK);
    let [interrupt, terminate] = signals;
    loop {
        tokio::select! {
            _ = &mut finished => return signalled,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = ticks.tick(), if tick.is_some() => {
                if let Some(tick) = &mut tick {
                    tick();
                }
                continue;
            }
        }
        if signalled {
            exit(EXIT_INTERRUPTED);
        }
        signalled = true;
        stop.request();
    }
}
