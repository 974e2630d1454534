//! Files that clients used a moment ago, open, so that a worker finds them without waiting.
//!
//! A file that is open is not freed when somebody removes it. So one that nobody uses is closed within two turns of the
//! sweep, and one that is removed through the server at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
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

struct Entry {
    file: HostFile,
    is_used: bool,
}

type Shard = HashMap<FileId, Entry>;

/// Open files by their handles, for workers and threads.
pub(super) struct Cache {
    shards: Arc<[Mutex<Shard>; SHARDS]>,
    shard_files_max: usize,
    /// Wakes the thread that sweeps; there is none before the first file.
    sweeper: Mutex<Option<SyncSender<()>>>,
}

impl Default for Cache {
    fn default() -> Self {
        let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let each = open_files / OPEN_FILES_SHARE / SHARDS as u64;
        Self {
            shards: Arc::new(std::array::from_fn(|_| Mutex::default())),
            shard_files_max: usize::try_from(each).unwrap_or(SHARD_FILES_MAX).min(SHARD_FILES_MAX),
            sweeper: Mutex::default(),
        }
    }
}

impl Cache {
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
        self.wake_sweeper();
    }

    fn keep(&self, id: FileId, file: HostFile) {
        let mut shard = lock(self.shard(&id));
        if shard.len() >= self.shard_files_max {
            shard.retain(|_, entry| std::mem::take(&mut entry.is_used));
        }
        if shard.len() < self.shard_files_max {
            shard.insert(id, Entry { file, is_used: true });
        }
    }

    /// Closes a file, unless it is in use.
    pub(super) fn forget(&self, id: &FileId) {
        let forgotten = lock(self.shard(id)).remove(id);
        // Closing may take its time: without the lock.
        drop(forgotten);
    }

    /// Wakes the thread that sweeps, or starts it.
    fn wake_sweeper(&self) {
        let mut sweeper = lock(&self.sweeper);
        if let Some(woken) = &*sweeper {
            // Full: it is about to look.
            if !matches!(woken.try_send(()), Err(TrySendError::Disconnected(()))) {
                return;
            }
        }
        let (woken, wakes) = sync_channel(1);
        let _ = woken.try_send(());
        let shards = Arc::clone(&self.shards);
        let run = move || {
            while wakes.recv().is_ok() {
                while shards.iter().any(|shard| !lock(shard).is_empty()) {
                    if matches!(wait(&wakes), Err(RecvTimeoutError::Disconnected)) {
                        return;
                    }
                    shards.iter().for_each(sweep);
                }
            }
        };
        // If no thread can be started, the next file tries again; until then files stay open.
        *sweeper = std::thread::Builder::new().name("nfs-files".to_owned()).spawn(run).ok().map(|_| woken);
    }
}

/// Waits for the interval; wakes in it mean nothing.
fn wait(wakes: &std::sync::mpsc::Receiver<()>) -> Result<(), RecvTimeoutError> {
    let until = std::time::Instant::now() + SWEEP_INTERVAL;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match wakes.recv_timeout(left) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn sweep(shard: &Mutex<Shard>) {
    let mut unused = Vec::new();
    lock(shard).retain(|_, entry| {
        let is_used = std::mem::take(&mut entry.is_used);
        if !is_used {
            unused.push(entry.file.clone());
        }
        is_used
    });
    // The files are closed here, without the lock.
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
    use std::sync::Weak;

    use twinpath_nfs::FileKey;

    use super::*;

    fn id(number: u32) -> FileId {
        FileId { export: 1, key: FileKey::new(1, &number.to_le_bytes()).expect("short") }
    }

    /// A file, and whether it is open still.
    fn file() -> (HostFile, Weak<std::os::fd::OwnedFd>) {
        let file = HostFile::new(std::fs::File::open("/").expect("there").into(), 1);
        let is_open = Arc::downgrade(&file.fd);
        (file, is_open)
    }

    #[test]
    fn a_file_is_open_while_it_is_used_and_closed_once_it_is_forgotten() {
        let cache = Cache::default();
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
        let cache = Cache { shard_files_max: 2, ..Cache::default() };
        let shared = file().0;
        (0..200).for_each(|number| cache.keep(id(number), shared.clone()));
        assert!(cache.shards.iter().all(|shard| lock(shard).len() <= 2));
    }

    #[test]
    fn a_worker_does_not_wait_for_a_part_that_another_thread_uses() {
        let cache = Cache::default();
        cache.keep(id(1), file().0);
        let _used = lock(cache.shard(&id(1)));
        assert!(cache.get_at_once(&id(1)).is_none());
    }
}
