//! The memory of kept replies: maps that are made once for an instance, and read by the programs of each
//! attachment.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{Array, MapData};
use twinpath_claims::{Answers, Table};
use twinpath_frame::Mapping;
use twinpath_reflex::kept_table::{ENTRY_LEN, GENERATIONS_LEN, KeptTable, SERVICES_MAX};
use twinpath_reflex::{HashKeys, SHAPES_MAX, SLOTS, Shape};

use crate::SteerError;
use crate::layouts::{Range, Service, ShapeWords};
use crate::made::array;
use crate::maps::{failed, typed, wrote};

/// Maps with entries of kept replies, and with the generations of names; and the shapes of services.
pub struct KeptMaps {
    entries: MapData,
    words: MapData,
    pub(crate) count: u32,
    pub(crate) keys: HashKeys,
    shapes: Mutex<[Vec<Shape>; SERVICES_MAX]>,
    /// Loaded objects whose programs read them.
    readers: AtomicU32,
}

impl std::fmt::Debug for KeptMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptMaps").field("count", &self.count).finish_non_exhaustive()
    }
}

/// A map of maps.
type Outer = ArrayOfMaps<MapData, MapData>;

impl KeptMaps {
    /// Makes maps for `count` entries, rounded up to a power of two. No peer may be able to guess `seed`.
    ///
    /// # Errors
    /// [`SteerError::Map`]: the kernel has no such maps (added in Linux 5.10), or no memory for them.
    pub fn create(count: u32, seed: u64) -> Result<Self, SteerError> {
        let count = count.max(SLOTS as u32).next_power_of_two();
        let words = (GENERATIONS_LEN / 8) as u32;
        let entries = array("kept_entries", ENTRY_LEN as u32, count)?;
        let words = array("kept_words", 8, words)?;
        let keys = HashKeys::new(seed);
        Ok(Self { entries, words, count, keys, shapes: Mutex::default(), readers: AtomicU32::new(0) })
    }

    /// Memory of maps for this many entries, bytes. The kernel allocates it from the start, and none of it is
    /// swapped out.
    #[must_use]
    pub const fn bytes_of(count: u32) -> u64 {
        let slots = if count < SLOTS as u32 { SLOTS as u32 } else { count };
        slots.next_power_of_two() as u64 * ENTRY_LEN as u64 + GENERATIONS_LEN as u64
    }

    /// Memory of these maps, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        Self::bytes_of(self.count)
    }

    /// The table in them, for workers. Every call maps the same memory; only one table may be written to.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn table(&self) -> Result<KeptTable, SteerError> {
        let refused = |name| move |error: rustix::io::Errno| failed(name, "mapping", error.into());
        let len = (self.count as usize * ENTRY_LEN).next_multiple_of(4096);
        let entries = Mapping::of_fd(self.entries.fd().as_fd(), len, 0).map_err(refused("kept_entries"))?;
        // A forked child withdraws like its parent.
        let words = Mapping::with_children(self.words.fd().as_fd(), GENERATIONS_LEN, 0)
            .map_err(refused("kept_words"))?;
        let table = KeptTable::new(entries, words, self.count, self.keys.seed());
        table.map_err(|_| failed("kept_entries", "mapping", std::io::ErrorKind::InvalidData.into()))
    }

    /// The shapes of a service, by its [number](twinpath_claims::Reflex::service), before claims of it are applied. They
    /// may change only when nothing of the service is kept.
    pub fn set_shapes(&self, service: u8, shapes: &[Shape]) {
        let mut all = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        all[usize::from(service) % SERVICES_MAX] = shapes.to_vec();
    }

    /// Whether programs repeat what is kept.
    #[must_use]
    pub fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Gives them to the programs of a loaded object.
    pub(crate) fn give(self: &Arc<Self>, object: &mut Ebpf) -> Result<KeptServices, SteerError> {
        let mut entries: Outer = typed(object, "kept_entries")?;
        let mut words: Outer = typed(object, "kept_words")?;
        entries.set(0, &self.entries, 0).map_err(wrote("kept_entries"))?;
        words.set(0, &self.words, 0).map_err(wrote("kept_words"))?;
        let services = typed(object, "kept_services")?;
        self.readers.fetch_add(1, Ordering::Relaxed);
        Ok(KeptServices {
            services,
            written: Default::default(),
            maps: Arc::clone(self),
            _held: (entries, words),
        })
    }
}

/// The programs' view of services that keep replies.
pub(crate) struct KeptServices {
    services: Array<MapData, Service>,
    written: [Vec<Shape>; SERVICES_MAX],
    maps: Arc<KeptMaps>,
    _held: (Outer, Outer),
}

impl Drop for KeptServices {
    fn drop(&mut self) {
        self.maps.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeptServices {
    /// Writes the shapes of the services of a table's claims, before these are in force.
    pub(crate) fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        let shapes = self.maps.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let reflexes = table.claims().iter().filter_map(|claim| claim.reflex);
        for reflex in reflexes.filter(|reflex| reflex.answers == Answers::Kept) {
            let number = usize::from(reflex.service());
            if self.written[number] != shapes[number] {
                let service = Service::of(&shapes[number]);
                self.services.set(number as u32, service, 0).map_err(wrote("kept_services"))?;
                self.written[number].clone_from(&shapes[number]);
            }
        }
        Ok(())
    }
}

impl Service {
    fn of(shapes: &[Shape]) -> Self {
        let mut words = [ShapeWords::default(); SHAPES_MAX];
        for (words, shape) in words.iter_mut().zip(shapes) {
            words.masks = std::array::from_fn(|at| shape.mask(at));
            words.request_min = shape.request_min() as u32;
            let copied = shape.varying().iter().filter_map(|range| Some((range, range.copy_to?)));
            for (copy, (range, to)) in words.copies.iter_mut().zip(copied) {
                *copy = Range { start: range.start, len: range.len, to, reserved: 0 };
            }
        }
        Self { shapes: shapes.len().min(SHAPES_MAX) as u32, reserved: 0, shape: words }
    }
}
