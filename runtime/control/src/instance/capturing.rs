//! Captures of an instance: made when a client asks, taken down when they end.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tokio::sync::mpsc;
use twinpath_capture::{CAPTURES_MAX, CapturePlan, Running, SLOTS, SNAPLEN_MAX, Source};
use twinpath_command as command;
use twinpath_filter::Filter;
use twinpath_rings::slots::{self, Shape};
use twinpath_sys::EventFd;
use twinpath_worker::{Command, Tap, TapCounters};

use super::{Asked, Instance};

/// Captures by number.
#[derive(Default)]
pub(super) struct Captures {
    running: BTreeMap<u32, (Running, Vec<Arc<TapCounters>>)>,
    next: u32,
    /// Frames that captures which have ended missed.
    missed_before: u64,
}

impl Captures {
    /// Frames that a capture wanted and could not be given, since the start.
    pub(super) fn missed(&self) -> u64 {
        self.missed_before + self.running.values().map(|(_, counters)| missed(counters)).sum::<u64>()
    }
}

fn missed(counters: &[Arc<TapCounters>]) -> u64 {
    counters.iter().map(|counters| counters.missed.get()).sum()
}

impl Instance {
    /// A client wants to look on: answers it in a line; what follows on its connection is the file.
    pub(super) fn capture(
        &mut self,
        wish: command::Capture,
        mut stream: UnixStream,
        ask: mpsc::Sender<Asked>,
    ) {
        let begun = self.begin_capture(&wish, &stream, ask);
        // A line fits into the buffer of a connection that nothing was written to; if the client has gone, the capture
        // finds that out.
        if let Err(sentence) = begun {
            let _ = stream.write_all(&command::refusal(&sentence));
        }
    }

    fn begin_capture(
        &mut self,
        wish: &command::Capture,
        stream: &UnixStream,
        ask: mpsc::Sender<Asked>,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot capture: {error}");
        let filter: Filter =
            wish.filter.parse().map_err(|error: twinpath_filter::FilterError| error.to_string())?;
        let (name, wanted) = (&self.interface.name, &wish.interface);
        if name != wanted {
            return Err(format!("this instance serves {name}, not {wanted}"));
        }
        if self.interface.attachment.is_none() {
            let why = &self.interface.choice.why;
            return Err(format!("nothing of {name} is on a fast path: tcpdump sees all of it; {why}"));
        }
        if self.captures.running.len() >= CAPTURES_MAX {
            return Err(format!("{CAPTURES_MAX} captures are under way already: end one of them"));
        }
        let snaplen = wish.snaplen.unwrap_or(SNAPLEN_MAX).clamp(1, SNAPLEN_MAX);
        let shape = Shape::new(SLOTS, snaplen).map_err(|error| error.to_string())?;
        let id = self.captures.next;
        self.captures.next = id.wrapping_add(1);
        let wake = Arc::new(EventFd::new().map_err(|error| failed(error.into()))?);
        let (mut sources, mut taps, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        for _ in &self.workers {
            let (producer, consumer) = slots::ring(shape).map_err(|error| failed(error.into()))?;
            let counters = Arc::new(TapCounters::default());
            sources.push(Source { ring: consumer, counters: Arc::clone(&counters) });
            counted.push(Arc::clone(&counters));
            let (filter, wake) = (filter.clone(), Arc::clone(&wake));
            taps.push(Box::new(Tap::new(id, filter, producer, wake, counters)));
        }
        let mut stream = stream.try_clone().map_err(failed)?;
        stream.write_all(&command::agreement()).map_err(failed)?;
        let plan =
            CapturePlan { interface: name.clone(), filter: wish.filter.clone(), snaplen, count: wish.count };
        let ended = move || drop(ask.blocking_send(Asked::CaptureEnded(id)));
        let running = Running::start(plan, sources, wake, stream, ended).map_err(failed)?;
        for (worker, tap) in self.workers.iter_mut().zip(taps) {
            worker.tell(Command::Tap(tap));
        }
        tracing::info!(
            "capture {id} begins: {}",
            if wish.filter.is_empty() { "everything" } else { &wish.filter }
        );
        self.captures.running.insert(id, (running, counted));
        Ok(())
    }

    /// Its thread has ended: workers give their taps back.
    pub(super) fn capture_ended(&mut self, id: u32) {
        if let Some((running, counted)) = self.captures.running.remove(&id) {
            running.join();
            self.captures.missed_before += missed(&counted);
            tracing::info!("capture {id} has ended");
            self.workers.iter_mut().for_each(|worker| worker.tell(Command::Untap(id)));
        }
    }

    /// Ends all of them, with whole files for clients that read.
    pub(super) fn end_captures(&mut self) {
        let running = std::mem::take(&mut self.captures.running);
        running.values().for_each(|(running, _)| running.ask_to_end());
        running.into_values().for_each(|(running, _)| running.join());
    }
}
