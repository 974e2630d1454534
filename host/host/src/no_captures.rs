//! Captures in a program that is built without the feature `capture`: a request for one is refused.

use std::os::unix::net::UnixStream;

use twinpath_bpf::ReflexTap;
use twinpath_observe::command;

use twinpath_worker::Hosted;

use crate::worker::WorkerHandle;

/// There are none.
#[derive(Default)]
pub struct Captures(());

impl Captures {
    /// Frames that a capture missed: none.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        0
    }

    /// The rings that programs with own replies must fill: none.
    pub fn taps(&self) -> impl Iterator<Item = Result<&ReflexTap, &str>> {
        std::iter::empty()
    }

    /// Whether any runs: no.
    #[must_use]
    pub const fn any(&self) -> bool {
        false
    }

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always: the sentence that says how to build a program with captures.
    pub fn begin<'a, E: Hosted + 'a>(
        &mut self,
        _: &command::Capture,
        _: Option<u16>,
        _: &UnixStream,
        _: impl IntoIterator<Item = &'a mut WorkerHandle<E>>,
        _: impl FnOnce(&Self),
        _: impl FnOnce(u32) + Send + 'static,
    ) -> Result<(), String> {
        Err("this program is built without captures: build it with the feature `capture` of the library"
            .to_owned())
    }

    /// Never called, as none begins.
    pub fn ended<'a, E: Hosted + 'a>(
        &mut self,
        _: u32,
        _: impl IntoIterator<Item = &'a mut WorkerHandle<E>>,
    ) {
    }

    /// Ends none.
    pub const fn end_all(&mut self) {}
}
