//! Loads the programs of a path, with as much as the kernel takes of what they can do besides steering.

use std::sync::Arc;

use twinpath_frame::Mapping;
use twinpath_port::PortId;
use twinpath_rings::pending::{self, Pending};
use twinpath_steer_bpf::{KeptMaps, Path, QUEUES_MAX, ReflexPlan, SteerError, Steering};
use twinpath_time::Duration;

/// The words of all queues, and the time after which a worker is stuck.
pub(crate) type Words = (Arc<Mapping>, Duration);

/// The replies that programs may give by themselves.
#[derive(Clone, Debug)]
pub struct Replies {
    /// So many per second, at least 1.
    pub rate: u32,
    /// The kept replies of services; `None`: no service keeps any.
    pub kept: Option<Arc<KeptMaps>>,
}

/// What programs answer by themselves.
#[derive(Debug, Default)]
pub(crate) struct Replying {
    /// Why nothing.
    pub(crate) none: Option<String>,
    /// Why no kept replies, though there is memory for them.
    pub(crate) no_kept: Option<String>,
    /// Whether there was memory for kept replies when they were loaded.
    pub(crate) knows_kept: bool,
}

impl Replying {
    pub(crate) fn none(why: &str) -> Self {
        Self { none: Some(why.to_owned()), ..Self::default() }
    }
}

/// What does not depend on the path.
#[derive(Clone, Copy)]
pub(crate) struct Loading {
    pub(crate) workers: u32,
    /// How long a frame may wait for a worker before the kernel withdraws the claims; zero: for ever.
    pub(crate) fail_open: Duration,
    /// Frames may have partial checksums.
    pub(crate) virtual_device: bool,
}

impl Loading {
    /// The programs of the XDP paths.
    pub(crate) fn xdp(self) -> Result<(Steering, Option<Words>), SteerError> {
        self.plainly(Path::Xdp)
    }

    /// The programs of the packet path, with those that reply by themselves where that is wanted and the kernel takes
    /// them.
    pub(crate) fn packet(
        self,
        replies: Option<&Replies>,
    ) -> Result<(Steering, Option<Words>, Replying), SteerError> {
        let without = |why: &str| {
            let (steering, words) = self.plainly(Path::Packet)?;
            Ok((steering, words, Replying::none(why)))
        };
        let Some(replies) = replies else {
            return without("they are switched off (interface.reflex, limits.reflex_rate)");
        };
        if self.fail_open.is_zero() {
            return without("worker.fail_open_ms is 0, so a worker that hangs would not be found");
        }
        let knows_kept = replies.kept.is_some();
        let mut no_kept = None;
        if knows_kept {
            match self.replying(replies.rate, replies.kept.as_ref()) {
                Ok((steering, words)) => {
                    return Ok((steering, Some(words), Replying { knows_kept, ..Replying::default() }));
                }
                Err(error) => {
                    tracing::info!(
                        "workers give all kept replies: this kernel does not take the programs for it: {error}"
                    );
                    no_kept = Some(format!("this kernel does not take the programs for it: {error}"));
                }
            }
        }
        // Finding a worker that hangs is worth more than reflexes, which hide it.
        match self.replying(replies.rate, None) {
            Ok((steering, words)) => {
                Ok((steering, Some(words), Replying { none: None, no_kept, knows_kept }))
            }
            Err(error) => {
                tracing::info!(
                    "workers answer everything: this kernel does not take the programs that reply: {error}"
                );
                without(&format!("this kernel does not take the programs: {error}"))
            }
        }
    }

    /// The programs that reply, which also find workers that hang.
    fn replying(self, rate: u32, kept: Option<&Arc<KeptMaps>>) -> Result<(Steering, Words), String> {
        let plan = ReflexPlan { partial_checksums: self.virtual_device, rate };
        let steering = Steering::load_with_reflexes(Path::Packet, self.workers, self.fail_open, &plan, kept);
        steering.map_err(|error| error.to_string()).and_then(|steering| with_words(steering, self.fail_open))
    }

    /// The programs that steer, with the words in which they record stuck workers where the kernel takes that.
    fn plainly(self, path: Path) -> Result<(Steering, Option<Words>), SteerError> {
        let Self { workers, fail_open, .. } = self;
        let without = || Steering::load_for(path, workers, Duration::ZERO);
        if fail_open.is_zero() {
            return Ok((without()?, None));
        }
        let failing_open = Steering::load_for(path, workers, fail_open).map_err(|error| error.to_string());
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
