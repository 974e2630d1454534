//! Kept replies of an instance: the memory that workers write and the kernel's programs read, and each service's part of it.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use twinpath_bpf::{KeptMaps, SteerError};
use twinpath_reflex::kept_table::{KeptTable, SERVICES_MAX};
use twinpath_reflex::{Generations, Kept, Name, NotKept, Publication, Version, withdraw_all};
use twinpath_service::{Keeper, KeptReplies, TooManyBindings};
use twinpath_time::{Duration, Instant};

/// The kept replies of an instance, owned by control. Each service on each worker has a [`Keeper`] from it.
pub struct KeptStore {
    maps: Arc<KeptMaps>,
    table: Arc<KeptTable>,
    /// Indexed by the service's number among those with reflexes.
    parts: RefCell<[Option<Arc<KeptPart>>; SERVICES_MAX]>,
}

/// The kept replies of one service.
pub struct KeptPart {
    maps: Arc<KeptMaps>,
    table: Arc<KeptTable>,
    number: u32,
    replies: KeptReplies,
    generations: Arc<dyn Generations>,
    /// Cleared once another service has the number.
    current: AtomicBool,
    not_kept: [AtomicU64; NotKept::ALL.len()],
}

impl KeptStore {
    /// Makes the memory for this many entries, rounded up to a power of two.
    ///
    /// # Errors
    /// The kernel lacks these maps, or has no memory for them.
    pub fn create(entries: u32) -> Result<Self, SteerError> {
        // The standard library's keys are random, so nobody can choose requests that collide in one set.
        let seed = RandomState::new().build_hasher().finish();
        let maps = Arc::new(KeptMaps::create(entries, seed)?);
        let table = Arc::new(maps.table()?);
        Ok(Self { maps, table, parts: RefCell::default() })
    }

    /// The memory, for the programs.
    #[must_use]
    pub const fn maps(&self) -> &Arc<KeptMaps> {
        &self.maps
    }

    /// Gives a service its part, by its number, before its claims are applied and its workers begin. From
    /// then on a former service with that number can keep nothing, and the replies that it kept are void.
    ///
    /// # Errors
    /// The service's replies are used in too many instances, so it keeps nothing in this one.
    pub fn bind(&self, number: u8, replies: &KeptReplies) -> Result<Arc<KeptPart>, TooManyBindings> {
        let mut parts = self.parts.borrow_mut();
        let place = &mut parts[usize::from(number) % SERVICES_MAX];
        if let Some(former) = place.take() {
            former.end();
        }
        let generations: Arc<dyn Generations> = Arc::new(self.table.generations(number.into()));
        withdraw_all(generations.words());
        self.maps.set_shapes(number, replies.shapes());
        replies.bind(&generations)?;
        let part = Arc::new(KeptPart {
            maps: Arc::clone(&self.maps),
            table: Arc::clone(&self.table),
            number: number.into(),
            replies: replies.clone(),
            generations,
            current: AtomicBool::new(true),
            not_kept: Default::default(),
        });
        *place = Some(Arc::clone(&part));
        Ok(part)
    }

    /// The service with this number and its claims have ended: its kept replies are void, and other
    /// services can replace them.
    pub fn end(&self, number: u8) {
        if let Some(former) = self.parts.borrow_mut()[usize::from(number) % SERVICES_MAX].take() {
            former.end();
        }
    }

    /// The part of the service with this number.
    #[must_use]
    pub fn part(&self, number: u8) -> Option<Arc<KeptPart>> {
        self.parts.borrow()[usize::from(number) % SERVICES_MAX].clone()
    }

    /// The number of valid entries of each service, by number. It reads a word of each entry.
    #[must_use]
    pub fn entries(&self, now: Instant) -> [u32; SERVICES_MAX] {
        self.table.entries(now)
    }

    /// Maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Number of valid entries that were replaced by others.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.table.evictions()
    }
}

impl Drop for KeptStore {
    /// Programs that are still attached must find nothing here, because withdrawals do not reach these
    /// generations any more.
    fn drop(&mut self) {
        self.parts.get_mut().iter().flatten().for_each(|part| part.end());
    }
}

impl KeptPart {
    fn end(&self) {
        // A worker that takes a version after the withdrawal sees this; earlier versions are void.
        self.current.store(false, Ordering::SeqCst);
        withdraw_all(self.generations.words());
    }

    /// A keeper for one worker.
    #[must_use]
    pub fn keeper(self: &Arc<Self>) -> Box<dyn Keeper> {
        Box::new(WorkerKeeper { of: Arc::clone(self), covered_until: Instant::ZERO })
    }

    /// How many replies could not be kept, by reason.
    pub fn not_kept(&self) -> impl Iterator<Item = (NotKept, u64)> {
        let counts = self.not_kept.iter().map(|count| count.load(Ordering::Relaxed));
        NotKept::ALL.into_iter().zip(counts)
    }

    /// Keeps a reply, if that is possible.
    fn keep(&self, now: Instant, reply: &Publication<'_>) -> Option<Kept> {
        // Without programs that read it, an entry would only cost the worker's time.
        if !self.maps.has_readers() || !self.current.load(Ordering::SeqCst) {
            return None;
        }
        let kept = self.table.publish(now, self.number, self.replies.shapes(), reply);
        kept.inspect_err(|why| self.count(*why)).ok()
    }

    fn count(&self, why: NotKept) {
        self.not_kept[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// If a reply was there already, no further one is kept for this time. While the worker is awake and
/// answers many requests, most are there.
const COVERS: Duration = Duration::from_millis(1);

struct WorkerKeeper {
    of: Arc<KeptPart>,
    covered_until: Instant,
}

impl Keeper for WorkerKeeper {
    fn version_of(&self, name: Name) -> Version {
        Version::now(self.of.generations.words(), name)
    }

    #[inline]
    fn is_covered(&self, now: Instant) -> bool {
        now < self.covered_until
    }

    fn keep(&mut self, now: Instant, reply: &Publication<'_>) {
        if !self.is_covered(now) && self.of.keep(now, reply) == Some(Kept::Covered) {
            self.covered_until = now + COVERS;
        }
    }

    fn not_kept(&mut self, why: NotKept) {
        self.of.count(why);
    }
}
