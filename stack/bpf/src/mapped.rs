//! Mapped arrays that BPF programs use. They are read and written without a system call.
#![allow(unsafe_code, reason = "the memory is the kernel's programs' as well")]

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use twinpath_frame::Mapping;

use crate::SteerError;
use crate::maps::failed;

/// An array whose memory is mapped.
pub(crate) struct Mapped {
    memory: Mapping,
    /// Programs that are loaded later refer to the map by the descriptor that it has now.
    map: MapData,
}

impl Mapped {
    /// Maps `bytes` bytes.
    pub(crate) fn take(object: &mut Ebpf, name: &'static str, bytes: usize) -> Result<Self, SteerError> {
        let Some(Map::Array(map)) = object.take_map(name) else { return Err(SteerError::Missing(name)) };
        Self::of(name, map, bytes)
    }

    /// The same for a map that was made separately from an object.
    pub(crate) fn of(name: &'static str, map: MapData, bytes: usize) -> Result<Self, SteerError> {
        let memory = Mapping::of_fd(map.fd().as_fd(), bytes, 0)
            .map_err(|error| failed(name, "mapping", error.into()))?;
        Ok(Self { memory, map })
    }

    /// The map.
    pub(crate) const fn map(&self) -> &MapData {
        &self.map
    }

    /// Stores a word.
    pub(crate) fn store(&self, number: usize, value: u64) {
        if let Some(word) = self.word(number) {
            word.store(value, Ordering::Release);
        }
    }

    /// A word of it.
    pub(crate) fn word(&self, number: usize) -> Option<&AtomicU64> {
        let len = self.memory.len();
        let at = number.checked_mul(8).filter(|at| at.checked_add(8).is_some_and(|end| end <= len))?;
        // SAFETY: it lies in the mapping, which begins with a page and lives as long as the borrow; a 64-bit atomic takes any
        // bits.
        Some(unsafe { self.memory.base().add(at).cast::<AtomicU64>().as_ref() })
    }
}
