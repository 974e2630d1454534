//! Files that clients used a moment ago, open, so that a worker finds them without waiting.
//!
//! A file that is open is not freed when somebody removes it. So one that nobody uses is closed within two turns of the
//! sweep, and one that is removed through the server at once.
//!
//! Whoever closes the last descriptor of a removed file frees it, and waits for the disk. So files are closed without a
//! lock, each export has a thread of its own for that, and workers hand theirs to it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use twinpath_nfs::FileId;

use super::HostFile;

/// Number of parts, each with a lock of its own.
const SHARDS: usize = 16;
/// Maximum number of files in one part.
const SHARD_FILES_MAX: usize = 512;
/// The share of the files that the process may have open.
const OPEN_FILES_SHARE: u64 = 4;
/// How long a file stays open that is not used: as long at least, and twice as long at most.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// How many files of workers may wait to be closed before workers open no more.
const CLOSING_MAX: usize = 256;

thread_local! {
    /// Whether this thread may wait for a file that it closes.
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread closes files itself.
pub(super) fn may_wait() {
    MAY_WAIT.set(true);
}

/// The descriptor of a file, shared. The last one closes it; a thread that must not wait has it closed, if the export's
/// closer is known.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// There until it is dropped.
    fd: Option<Arc<OwnedFd>>,
    closer: Option<Arc<Closer>>,
}

impl Shared {
    pub(super) const fn new(fd: Arc<OwnedFd>) -> Self {
        Self { fd: Some(fd), closer: None }
    }

    /// Any thread may close it, as another descriptor keeps its file.
    fn close_here(&mut self) {
        self.closer = None;
    }

    /// Threads that must not wait have it closed by this one.
    pub(super) fn close_by(&mut self, closer: &Arc<Closer>) {
        self.closer = Some(Arc::clone(closer));
    }
}

impl Deref for Shared {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.fd.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(closer) = &self.closer
            && !MAY_WAIT.get()
            && let Some(fd) = self.fd.take().and_then(Arc::into_inner)
        {
            closer.close(fd);
        }
    }
}

/// What a closer is told.
enum Told {
    /// There is a file in the cache.
    Kept,
    /// Close this.
    Close(OwnedFd),
}

/// The thread of an export that closes files: those that nobody uses, and those of workers.
#[derive(Debug)]
pub(super) struct Closer {
    shards: Weak<Shards>,
    counts: Arc<Counts>,
    /// There is no thread before the first file.
    thread: Mutex<Option<Sender<Told>>>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Of files that wait to be closed.
    closing: AtomicUsize,
    /// Whether the thread looks at the cache again without being told.
    is_sweeping: AtomicBool,
}

impl Closer {
    fn close(&self, fd: OwnedFd) {
        self.counts.closing.fetch_add(1, Ordering::Relaxed);
        self.tell(Told::Close(fd));
    }

    /// Whether so many files wait to be closed that no more should be opened.
    pub(super) fn is_behind(&self) -> bool {
        self.counts.closing.load(Ordering::Relaxed) >= CLOSING_MAX
    }

    fn kept(&self) {
        if !self.counts.is_sweeping.load(Ordering::SeqCst) {
            self.tell(Told::Kept);
        }
    }

    /// Tells the thread, or starts it.
    fn tell(&self, told: Told) {
        let mut thread = lock(&self.thread);
        let told = match &*thread {
            Some(sender) => match sender.send(told) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => told,
        };
        let (sender, receiver) = channel();
        // It is received below, or dropped with the thread that could not be started.
        let _ = sender.send(told);
        let Some(shards) = self.shards.upgrade() else { return };
        let counts = Arc::clone(&self.counts);
        let run = move || sweep_all(&shards, &counts, &receiver);
        // If no thread can be started, the next file tries again; until then files stay open.
        *thread = std::thread::Builder::new().name("nfs-files".to_owned()).spawn(run).ok().map(|_| sender);
        if thread.is_none() {
            // What it was told went with it.
            self.counts.closing.store(0, Ordering::Relaxed);
        }
    }
}

/// Closes what is not used and what is told, until nobody can tell any more.
fn sweep_all(shards: &Shards, counts: &Counts, told: &Receiver<Told>) {
    may_wait();
    let close = |told: Told| {
        if let Told::Close(fd) = told {
            drop(fd);
            counts.closing.fetch_sub(1, Ordering::Relaxed);
        }
    };
    loop {
        // Before the look: whoever keeps a file after it sees this, and tells.
        counts.is_sweeping.store(false, Ordering::SeqCst);
        if shards.iter().all(|shard| lock(shard).is_empty()) {
            match told.recv() {
                Ok(told) => close(told),
                Err(_) => return,
            }
            continue;
        }
        counts.is_sweeping.store(true, Ordering::SeqCst);
        let until = std::time::Instant::now() + SWEEP_INTERVAL;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match told.recv_timeout(left) {
                Ok(told) => close(told),
                Err(RecvTimeoutError::Timeout) => break,
                // No file of a worker is left, and the cache is gone.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        shards.iter().for_each(sweep);
    }
}

struct Entry {
    file: HostFile,
    is_used: bool,
}

type Shard = HashMap<FileId, Entry>;
type Shards = [Mutex<Shard>; SHARDS];

/// Open files of an export by their handles, for workers and threads.
pub(super) struct Cache {
    shards: Arc<Shards>,
    shard_files_max: usize,
    closer: Arc<Closer>,
}

impl Cache {
    /// The cache of one export, which shares the limit of open files with all others.
    pub(super) fn new(exports: usize) -> Self {
        let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let each = open_files / OPEN_FILES_SHARE / (SHARDS * exports.max(1)) as u64;
        let shards: Arc<Shards> = Arc::new(std::array::from_fn(|_| Mutex::default()));
        let (thread, counts) = (Mutex::default(), Arc::default());
        let closer = Arc::new(Closer { shards: Arc::downgrade(&shards), counts, thread });
        let shard_files_max = usize::try_from(each).unwrap_or(SHARD_FILES_MAX).min(SHARD_FILES_MAX);
        Self { shards, shard_files_max, closer }
    }

    pub(super) const fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    fn shard(&self, id: &FileId) -> &Mutex<Shard> {
        // The last bytes of handles differ most: numbers of inodes are little-endian, with a generation behind them.
        let bytes = id.key.bytes().iter();
        let sum = bytes.fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        &self.shards[sum % SHARDS]
    }

    /// The file of a handle, for a worker: not if another thread looks for one at this moment.
    pub(super) fn get_at_once(&self, id: &FileId) -> Option<HostFile> {
        match self.shard(id).try_lock() {
            Ok(mut shard) => used(&mut shard, id),
            Err(TryLockError::Poisoned(poisoned)) => used(&mut poisoned.into_inner(), id),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The file of a handle.
    pub(super) fn get(&self, id: &FileId) -> Option<HostFile> {
        used(&mut lock(self.shard(id)), id)
    }

    /// Keeps a file open. If there is no room, it is not kept.
    pub(super) fn insert(&self, id: FileId, file: HostFile) {
        self.keep(id, file);
        self.closer.kept();
    }

    fn keep(&self, id: FileId, mut file: HostFile) {
        file.fd.close_by(&self.closer);
        let mut gone = Vec::new();
        let mut shard = lock(self.shard(&id));
        if shard.len() >= self.shard_files_max {
            gone.extend(unused(&mut shard));
        }
        if shard.len() < self.shard_files_max {
            gone.extend(shard.insert(id, Entry { file, is_used: true }).map(|former| former.file));
        } else {
            gone.push(file);
        }
        drop(shard);
        // Closing may take its time: without the lock.
        drop(gone);
    }

    /// Keeps a file open that a worker has opened, and returns the one that is kept. Without room for it, or if another
    /// thread uses that part, it is not kept.
    pub(super) fn share_at_once(&self, id: FileId, mut file: HostFile) -> HostFile {
        file.fd.close_by(&self.closer);
        let mut shard = match self.shard(&id).try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return file,
        };
        if let Some(kept) = used(&mut shard, &id) {
            drop(shard);
            // It is open twice: closing it frees nothing.
            file.fd.close_here();
            return kept;
        }
        if shard.len() < self.shard_files_max {
            shard.insert(id, Entry { file: file.clone(), is_used: true });
            drop(shard);
            self.closer.kept();
        }
        file
    }

    /// Closes a file, unless it is in use.
    pub(super) fn forget(&self, id: &FileId) {
        let forgotten = lock(self.shard(id)).remove(id);
        // Closing may take its time: without the lock.
        drop(forgotten);
    }
}

fn sweep(shard: &Mutex<Shard>) {
    let gone = unused(&mut lock(shard));
    // Closing may take its time: without the lock.
    drop(gone);
}

/// Takes out what was not used since the last time.
fn unused(shard: &mut Shard) -> Vec<HostFile> {
    let gone = shard.extract_if(|_, entry| !std::mem::take(&mut entry.is_used));
    gone.map(|(_, entry)| entry.file).collect()
}

fn used(shard: &mut Shard, id: &FileId) -> Option<HostFile> {
    let entry = shard.get_mut(id)?;
    entry.is_used = true;
    Some(entry.file.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks panics halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody's rights on a file have been asked for since it was opened: the kernel then has its ACL, and answers
/// without waiting.
#[derive(Debug, Default)]
pub(super) struct Checked(AtomicBool);

impl Checked {
    pub(super) fn set(&self) {
        // Relaxed: the kernel's own memory is what was changed.
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use twinpath_nfs::FileKey;

    use super::*;

    fn id(number: u32) -> FileId {
        FileId { export: 1, key: FileKey::new(1, &number.to_le_bytes()).expect("short") }
    }

    /// A file, and whether it is open still.
    fn file() -> (HostFile, Weak<OwnedFd>) {
        let file = HostFile::new(std::fs::File::open("/").expect("there").into(), 1);
        let is_open = file.fd.fd.as_ref().map(Arc::downgrade).expect("it is open");
        (file, is_open)
    }

    /// A cache whose closer does nothing; returns what it is told.
    fn with_idle_closer(shard_files_max: usize) -> (Cache, Receiver<Told>) {
        let (sender, told) = channel();
        let cache = Cache { shard_files_max, ..Cache::new(1) };
        *lock(&cache.closer.thread) = Some(sender);
        (cache, told)
    }

    #[test]
    fn a_worker_never_closes_the_last_descriptor_of_a_file() {
        let (cache, told) = with_idle_closer(2);
        let (first, is_first_open) = file();
        let found = cache.share_at_once(id(1), first);
        assert!(matches!(told.try_recv(), Ok(Told::Kept)));
        // Found a second time: it is open once more, and closed at once.
        let (second, is_second_open) = file();
        let again = cache.share_at_once(id(1), second);
        assert!(is_second_open.upgrade().is_none() && told.try_recv().is_err());
        // Another thread has it removed while the worker uses it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                may_wait();
                cache.forget(&id(1));
            });
        });
        drop(found);
        assert!(is_first_open.upgrade().is_some() && told.try_recv().is_err());
        drop(again);
        assert!(matches!(told.try_recv(), Ok(Told::Close(_))));
        // What is not kept, as another thread uses that part.
        let used = lock(cache.shard(&id(1)));
        drop(cache.share_at_once(id(1), file().0));
        assert!(matches!(told.try_recv(), Ok(Told::Close(_))) && used.is_empty());
        (2..CLOSING_MAX).for_each(|_| drop(cache.share_at_once(id(1), file().0)));
        assert!(cache.closer.is_behind(), "workers open no more");
    }

    #[test]
    fn what_a_closer_is_told_is_closed() {
        let cache = Cache::new(1);
        let (kept, _is_kept) = file();
        let (sender, receiver) = channel();
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        cache.keep(id(1), kept);
        let mut pipe = HostFile::new(writer, 1);
        pipe.fd.close_by(&cache.closer);
        drop(pipe);
        std::thread::spawn(move || sender.send(rustix::io::read(&reader, &mut [0; 1])));
        let end = receiver.recv_timeout(Duration::from_secs(20)).expect("its end comes once it is closed");
        assert_eq!(end, Ok(0));
    }

    #[test]
    fn a_part_is_not_locked_while_a_file_of_it_is_closed() {
        let (cache, _told) = with_idle_closer(1);
        cache.keep(id(1), file().0);
        sweep_marks(&cache, &id(1));
        let closer = lock(&cache.closer.thread);
        std::thread::scope(|scope| {
            // It waits for the closer as others do for a disk.
            scope.spawn(|| cache.keep(id(1 + SHARDS as u32), file().0));
            let until = std::time::Instant::now() + Duration::from_secs(20);
            while cache.closer.counts.closing.load(Ordering::Relaxed) == 0
                && std::time::Instant::now() < until
            {
                std::thread::yield_now();
            }
            let is_free = cache.shard(&id(1)).try_lock().is_ok();
            drop(closer);
            assert!(is_free);
        });
    }

    /// As after a turn of the sweep without use.
    fn sweep_marks(cache: &Cache, id: &FileId) {
        lock(cache.shard(id)).values_mut().for_each(|entry| entry.is_used = false);
    }

    #[test]
    fn a_file_is_open_while_it_is_used_and_closed_once_it_is_forgotten() {
        may_wait();
        let cache = Cache::new(1);
        let (kept, is_kept) = file();
        cache.keep(id(1), kept);
        assert!(cache.get(&id(1)).is_some() && cache.get_at_once(&id(1)).is_some());
        assert!(cache.get(&id(2)).is_none());
        for _ in 0..3 {
            sweep(cache.shard(&id(1)));
            assert!(cache.get_at_once(&id(1)).is_some(), "it was used since");
        }
        sweep(cache.shard(&id(1)));
        sweep(cache.shard(&id(1)));
        assert!(cache.get(&id(1)).is_none() && is_kept.upgrade().is_none());
        let (kept, is_kept) = file();
        cache.keep(id(1), kept);
        cache.forget(&id(1));
        assert!(cache.get(&id(1)).is_none() && is_kept.upgrade().is_none());
    }

    #[test]
    fn a_full_part_keeps_what_is_used_and_no_more_than_it_has_room_for() {
        let cache = Cache { shard_files_max: 2, ..Cache::new(1) };
        let shared = file().0;
        (0..200).for_each(|number| cache.keep(id(number), shared.clone()));
        assert!(cache.shards.iter().all(|shard| lock(shard).len() <= 2));
    }

    #[test]
    fn a_worker_does_not_wait_for_a_part_that_another_thread_uses() {
        let cache = Cache::new(1);
        cache.keep(id(1), file().0);
        let _used = lock(cache.shard(&id(1)));
        assert!(cache.get_at_once(&id(1)).is_none());
    }
}
