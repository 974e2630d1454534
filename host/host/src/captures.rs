//! The captures of an instance: started on request, and removed when they end.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use twinpath_bpf::ReflexTap;
use twinpath_observe::capture::{CAPTURES_MAX, CapturePlan, Replied, Running, SLOTS, SNAPLEN_MAX, Source};
use twinpath_observe::command;
use twinpath_sys::EventFd;
use twinpath_wire::filter::Filter;
use twinpath_worker::{Command, CopiesError, Tap, TapCounters, copies};

use twinpath_worker::Hosted;

use crate::worker::WorkerHandle;

/// The running captures, by number.
#[derive(Default)]
pub struct Captures {
    running: BTreeMap<u32, Held>,
    next: u32,
    /// Frames missed by captures that have ended.
    missed_before: u64,
}

/// A capture that runs.
struct Held {
    running: Running,
    /// The counters of its taps on workers.
    counters: Vec<Arc<TapCounters>>,
    tap: Result<ReflexTap, String>,
}

impl Held {
    fn missed(&self) -> u64 {
        let of_workers: u64 = self.counters.iter().map(|counters| counters.missed.get()).sum();
        of_workers + self.tap.as_ref().map_or(0, ReflexTap::missed)
    }
}

impl Captures {
    /// Frames that captures have missed since the start, because their rings were full.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed_before + self.running.values().map(Held::missed).sum::<u64>()
    }

    /// The rings that programs with own replies must fill, for each running capture; or why they cannot.
    pub fn taps(&self) -> impl Iterator<Item = Result<&ReflexTap, &str>> {
        self.running.values().map(|held| held.tap.as_ref().map_err(String::as_str))
    }

    /// Whether any runs.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Starts a capture of the frames that these workers receive and send, or of one port of a switch,
    /// given by its number, and of the frames that the kernel's programs copy into its [tap](Self::taps).
    /// It is written to the connection, after one line of answer. `show` puts all taps into the programs.
    /// When the capture has ended, `ended` is called on its thread, with the number of the capture.
    ///
    /// # Errors
    ///
    /// The reason, in a sentence, if the capture cannot start; nothing has been answered then.
    pub fn begin<'a, E: Hosted + 'a>(
        &mut self,
        wish: &command::Capture,
        port: Option<u16>,
        stream: &UnixStream,
        workers: impl IntoIterator<Item = &'a mut WorkerHandle<E>>,
        show: impl FnOnce(&Self),
        ended: impl FnOnce(u32) + Send + 'static,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot capture: {error}");
        let filter: Filter =
            wish.filter.parse().map_err(|error: twinpath_wire::filter::FilterError| error.to_string())?;
        if self.running.len() >= CAPTURES_MAX {
            return Err(format!("{CAPTURES_MAX} captures are under way already: end one of them"));
        }
        let snaplen = wish.snaplen.unwrap_or(SNAPLEN_MAX).clamp(1, SNAPLEN_MAX);
        let id = self.next;
        self.next = id.wrapping_add(1);
        let wake = Arc::new(EventFd::new().map_err(|error| failed(error.into()))?);
        let (mut sources, mut taps, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        let workers: Vec<_> = workers.into_iter().collect();
        for _ in &workers {
            let ring = copies(SLOTS, snaplen);
            let (producer, consumer) =
                ring.map_err(|error: CopiesError| format!("cannot capture: {error}"))?;
            let counters = Arc::new(TapCounters::default());
            sources.push(Source { ring: consumer, counters: Arc::clone(&counters) });
            counted.push(Arc::clone(&counters));
            let (filter, wake) = (filter.clone(), Arc::clone(&wake));
            let tap = Tap::new(id, filter, producer, wake, counters);
            taps.push(Box::new(match port {
                Some(port) => tap.of_port(port),
                None => tap,
            }));
        }
        let (tap, reader) = match port {
            None => ReflexTap::create()
                .map_or_else(|error| (Err(error.to_string()), None), |(tap, reader)| (Ok(tap), Some(reader))),
            Some(_) => (Err("no program replies at a port of a switch".to_owned()), None),
        };
        let replied = reader.map(|reader| Replied::new(reader, filter, Arc::default()));
        let mut stream = stream.try_clone().map_err(failed)?;
        stream.write_all(&command::agreement()).map_err(failed)?;
        let (interface, filter) = (wish.interface.clone(), wish.filter.clone());
        let plan = CapturePlan { interface, filter, snaplen, count: wish.count };
        let running =
            Running::start(plan, sources, replied, wake, stream, move || ended(id)).map_err(failed)?;
        let what = if wish.filter.is_empty() { "everything" } else { &wish.filter };
        tracing::info!("capture {id} begins: {what}");
        self.running.insert(id, Held { running, counters: counted, tap });
        // This may take tens of milliseconds, whose frames are not captured.
        show(self);
        for (worker, tap) in workers.into_iter().zip(taps) {
            worker.tell(Command::Tap(tap));
        }
        Ok(())
    }

    /// The thread of capture `id` has ended: the workers return their taps.
    pub fn ended<'a, E: Hosted + 'a>(
        &mut self,
        id: u32,
        workers: impl IntoIterator<Item = &'a mut WorkerHandle<E>>,
    ) {
        if let Some(held) = self.running.remove(&id) {
            let missed = held.missed();
            held.running.join();
            self.missed_before += missed;
            tracing::info!("capture {id} has ended");
            workers.into_iter().for_each(|worker| worker.tell(Command::Untap(id)));
        }
    }

    /// Ends all captures; clients that read them get complete files.
    pub fn end_all(&mut self) {
        let running = std::mem::take(&mut self.running);
        running.values().for_each(|held| held.running.ask_to_end());
        running.into_values().for_each(|held| held.running.join());
    }
}
