//! The only source of atomics: the core library's in the product, the model checker's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use model::Lines;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use twinpath_frame::Lines;

/// Lines of words as [`twinpath_frame::Lines`] has them, of the model checker's atomics.
#[cfg(loom)]
mod model {
    use super::AtomicU64;

    #[derive(Debug)]
    pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

    #[derive(Debug)]
    pub(crate) struct Lines(Box<[Line]>);

    impl Lines {
        pub(crate) fn new(count: usize) -> Result<Self, ()> {
            Ok(Self((0..count).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect()))
        }

        pub(crate) fn as_slice(&self) -> &[Line] {
            &self.0
        }
    }
}
