//! Loads the programs of a path, with as many features besides steering as the kernel accepts.

use std::sync::Arc;

use twinpath_bpf::{
    Datagrams, Features, KeptMaps, Path, QUEUES_MAX, ReflexPlan, SteerError, Steering, TcpFlows,
};
use twinpath_frame::Mapping;
use twinpath_port::PortId;
use twinpath_rings::pending::{self, Pending};
use twinpath_time::Duration;

/// The words of all queues, and the time after which a worker counts as stuck.
pub(crate) type Words = (Arc<Mapping>, Duration);

/// The replies that programs may send by themselves.
#[derive(Clone, Debug)]
pub struct Replies {
    /// Maximum number of replies per second, at least 1.
    pub rate: u32,
    /// Whether they leave all requests to workers under loads at which workers answer more.
    pub tries_worker: bool,
    /// The kept replies of services; `None`: no service keeps any.
    pub kept: Option<Arc<KeptMaps>>,
}

/// The replies that programs send by themselves.
#[derive(Debug, Default)]
pub(crate) struct Replying {
    /// Why they send none.
    pub(crate) none: Option<String>,
    /// Why they send no kept replies, although there is memory for them.
    pub(crate) no_kept: Option<String>,
    /// Whether there was memory for kept replies when they were loaded.
    pub(crate) knows_kept: bool,
    /// Why they send none for the time being.
    pub(crate) suspended: Option<String>,
}

impl Replying {
    pub(crate) fn none(why: &str) -> Self {
        Self { none: Some(why.to_owned()), ..Self::default() }
    }
}

/// Programs, the words in which they record stuck workers, and the replies that they send by themselves.
pub(crate) type Loaded = (Steering, Option<Words>, Replying);

/// The purpose for which the programs are loaded.
#[derive(Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) path: Path,
    pub(crate) workers: u32,
    /// How long a frame may wait for a worker before the kernel withdraws the claims; zero: for ever.
    pub(crate) fail_open: Duration,
    /// Frames may have partial checksums.
    pub(crate) virtual_device: bool,
    /// Connections of TCP that workers have; `None`: they have none.
    pub(crate) connections: Option<&'a Arc<TcpFlows>>,
    /// Their segments come as super-frames, too.
    pub(crate) super_frames: bool,
    /// Workers get coalesced datagrams.
    pub(crate) datagrams: Datagrams,
}

impl<'a> Loading<'a> {
    /// As [`Self::load`]. If the kernel accepts no programs with connections, loads them without, and returns why.
    pub(crate) fn load_most(self, replies: Option<&Replies>) -> Result<(Loaded, Option<String>), SteerError> {
        match self.load(replies) {
            Err(why) if self.connections.is_some() => {
                // Without the necessary privileges this fails with the reason.
                let loaded = Self { connections: None, ..self }.load(replies)?;
                tracing::warn!("the kernel serves all connections: it does not take the programs: {why}");
                Ok((loaded, Some(format!("this kernel does not take the programs: {why}"))))
            }
            loaded => Ok((loaded?, None)),
        }
    }

    /// Loads the programs of a path, with replies if requested and accepted by the kernel.
    pub(crate) fn load(self, replies: Option<&Replies>) -> Result<Loaded, SteerError> {
        let Some(replies) = replies else {
            return self.without_replies("they are switched off (interface.reflex, limits.reflex_rate)");
        };
        if self.fail_open.is_zero() {
            return self
                .without_replies("worker.fail_open_ms is 0, so a worker that hangs would not be found");
        }
        // Detecting a stuck worker is worth more than reflexes, which hide it.
        let loaded = most(replies.kept.as_ref(), |kept| self.replying(replies, kept));
        match loaded {
            Ok(((steering, words), replying)) => Ok((steering, Some(words), replying)),
            Err(why) => self.without_replies(&why),
        }
    }

    /// Loads the programs of a path without replies, for the reason `why`.
    pub(crate) fn without_replies(self, why: &str) -> Result<Loaded, SteerError> {
        let (steering, words) = self.plainly()?;
        Ok((steering, words, Replying::none(why)))
    }

    /// Loads the programs that reply, which also detect stuck workers.
    fn replying(self, replies: &Replies, kept: Option<&Arc<KeptMaps>>) -> Result<(Steering, Words), String> {
        let Replies { rate, tries_worker, .. } = *replies;
        let plan = ReflexPlan { partial_checksums: self.virtual_device, rate, tries_worker };
        let features = Features { reflexes: Some((&plan, kept)), ..self.features() };
        let steering = Steering::load_with(self.path, self.workers, self.fail_open, features);
        steering.map_err(|error| error.to_string()).and_then(|steering| with_words(steering, self.fail_open))
    }

    const fn features(self) -> Features<'a> {
        Features {
            reflexes: None,
            connections: self.connections,
            large: self.super_frames,
            datagrams: self.datagrams,
            verifies_syns: !self.virtual_device,
        }
    }

    /// Loads the programs that steer, with the words in which they record stuck workers if the kernel
    /// accepts that.
    fn plainly(self) -> Result<(Steering, Option<Words>), SteerError> {
        let Self { path, workers, fail_open, .. } = self;
        let features = self.features();
        let without = || Steering::load_with(path, workers, Duration::ZERO, features);
        if fail_open.is_zero() {
            return Ok((without()?, None));
        }
        let failing_open = Steering::load_with(path, workers, fail_open, features);
        let failing_open = failing_open.map_err(|error| error.to_string());
        let mapped = failing_open.and_then(|steering| with_words(steering, fail_open));
        let mapped = mapped.map(|(steering, words)| (steering, Some(words)));
        mapped.or_else(|why: String| {
            // Without the necessary privileges this fails with the reason.
            let steering = without()?;
            tracing::warn!(
                "claims stay in force while a worker is stuck, whatever fail_open_ms says: this kernel does not take the \
                 programs that would withdraw them: {why}"
            );
            Ok((steering, None))
        })
    }
}

/// Loads as many features as the kernel accepts: programs with kept replies, if there are some, otherwise
/// those that only mirror requests. The error says why the kernel accepts neither.
fn most<K, T>(
    kept: Option<&K>,
    load: impl Fn(Option<&K>) -> Result<T, String>,
) -> Result<(T, Replying), String> {
    let mut replying = Replying { knows_kept: kept.is_some(), ..Replying::default() };
    if kept.is_some() {
        match load(kept) {
            Ok(loaded) => return Ok((loaded, replying)),
            Err(error) => {
                let why = format!("this kernel does not take the programs for it: {error}");
                tracing::info!("workers give all kept replies: {why}");
                replying.no_kept = Some(why);
            }
        }
    }
    load(None).map(|loaded| (loaded, replying)).map_err(|error| {
        tracing::info!(
            "workers answer everything: this kernel does not take the programs that reply: {error}"
        );
        format!("this kernel does not take the programs: {error}")
    })
}

/// Maps the words in which the programs record stuck workers.
fn with_words(steering: Steering, fail_open: Duration) -> Result<(Steering, Words), String> {
    let words = steering.pending().ok_or("the programs have no words for it")?;
    let words = Mapping::of_fd(words, QUEUES_MAX as usize * pending::STRIDE, 0);
    let words = words.map_err(|error| format!("mapping their words: {error}"))?;
    Ok((steering, (Arc::new(words), fail_open)))
}

/// The word of a queue.
pub(crate) fn word_of(words: Option<&Words>, id: PortId) -> Option<Pending> {
    let (words, fail_open) = words?;
    Pending::new(Arc::clone(words), u32::from(id.queue), *fail_open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_refuses_is_left_out_and_the_rest_is_loaded() {
        // A kernel that accepts programs with kept replies, one that accepts them only without, and one
        // that accepts none.
        let load = |takes: [bool; 2]| {
            move |kept: Option<&u8>| {
                let taken = takes[usize::from(kept.is_none())];
                if taken { Ok(kept.is_some()) } else { Err("R4 is unbounded".to_owned()) }
            }
        };
        let (has_kept, replying) = most(Some(&7), load([true, true])).expect("it takes all");
        assert!(has_kept && replying.knows_kept && replying.no_kept.is_none() && replying.none.is_none());
        let (has_kept, replying) = most(Some(&7), load([false, true])).expect("it takes mirrors");
        assert!(!has_kept && replying.none.is_none());
        assert!(replying.knows_kept, "it is not loaded again and again");
        assert!(replying.no_kept.is_some_and(|why| why.contains("R4 is unbounded")));
        let (has_kept, replying) = most(None, load([false, true])).expect("nothing is kept");
        assert!(!has_kept && !replying.knows_kept && replying.no_kept.is_none());
        let why = most(Some(&7), load([false, false])).expect_err("it takes none");
        assert!(why.contains("R4 is unbounded"), "{why}");
    }
}
