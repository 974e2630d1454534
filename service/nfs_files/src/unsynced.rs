//! Files with data that no sync has made durable. Each stays open until one has. Otherwise errors of write-back may be
//! missed: once a file is open nowhere, the kernel may forget its inode, and a descriptor that is opened later is not told
//! of what another process was told before. Then a sync succeeds, and the client drops data that is lost. The kernel's
//! server keeps such files open as well (fs/nfsd/filecache.c).
//!
//! A client that never asks for a sync (COMMIT) must not keep files open for ever: then the server syncs them itself.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};
use twinpath_nfs::{Fault, Sync, WriteVerifier};

use super::turns::Turns;
use super::{Descriptors, HostFile, Synced, cache, fault, synced};

/// How long data waits for its COMMIT at most. Clients of Linux send it within half of that, for data that they hold.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of files of one directory.
const FILES_MAX: usize = 1024;
/// The share of the files that the process may have open.
const OPEN_FILES_SHARE: u64 = 16;

/// How files are made durable, for all threads and also across a reload.
pub(super) struct Syncs {
    turns: Turns<Synced>,
    descriptors: Arc<Descriptors>,
    verifier: Arc<WriteVerifier>,
}

impl Syncs {
    pub(super) fn new(descriptors: Arc<Descriptors>, verifier: Arc<WriteVerifier>) -> Self {
        Self { turns: Turns::default(), descriptors, verifier }
    }

    /// Syncs a file. Its data need not be remembered from then on, but for what was written since.
    pub(super) fn sync(
        &self,
        file: &HostFile,
        how: Sync,
        unsynced: &Unsynced,
        failed: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        let key = synced(file)?;
        let _turn = self.turns.take(key);
        let (open, writes) = match unsynced.open(&key) {
            Some(kept) => kept,
            // Opened now: the kernel tells an error that nobody was told before.
            None => (Arc::new(self.descriptors.reopen(file, OFlags::RDONLY).map_err(fault)?), 0),
        };
        let data_alone = how == Sync::Data;
        let done = if data_alone { rustix::fs::fdatasync(&open) } else { rustix::fs::fsync(&open) };
        let done = done.map_err(|errno| {
            failed();
            fault(errno)
        });
        unsynced.settled(&key, writes);
        done
    }

    /// Syncs the file system of a file, by any descriptor of it.
    pub(super) fn sync_all(
        &self,
        file: &HostFile,
        mount: BorrowedFd<'_>,
        failed: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        let _turn = self.turns.take(synced(file)?);
        rustix::fs::syncfs(mount).map_err(|errno| {
            failed();
            fault(errno)
        })
    }

    /// Syncs a file that no client has asked for. By the verifier, its clients learn of a failure.
    fn sync_unasked(&self, key: &Synced, unsynced: &Unsynced) {
        let _turn = self.turns.take(*key);
        // A client may have asked meanwhile.
        let Some((open, writes)) = unsynced.open(key) else { return };
        if rustix::fs::fsync(&open).is_err() {
            self.verifier.sync_failed();
        }
        unsynced.settled(key, writes);
    }
}

/// The files of one directory.
#[derive(Debug)]
pub(super) struct Unsynced {
    waiting: Mutex<Waiting>,
    /// By it the thread that looks at ages waits. Nothing ends that early: files that come later are due later.
    due: Condvar,
    files_max: usize,
    age_max: Duration,
}

#[derive(Debug, Default)]
struct Waiting {
    files: HashMap<Synced, Entry>,
    /// Whether a thread looks at their ages.
    is_watched: bool,
}

#[derive(Debug)]
struct Entry {
    /// From before the end of its first write: it is told of each error since.
    open: Arc<OwnedFd>,
    since: Instant,
    /// How often it was written.
    writes: u64,
}

impl Default for Unsynced {
    fn default() -> Self {
        let share = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / OPEN_FILES_SHARE;
        let files_max = usize::try_from(share).unwrap_or(FILES_MAX).clamp(1, FILES_MAX);
        Self { waiting: Mutex::default(), due: Condvar::new(), files_max, age_max: AGE_MAX }
    }
}

impl Unsynced {
    /// A file was written, and is open still. If there are too many, the oldest one is synced here.
    pub(super) fn wrote(self: &Arc<Self>, file: &HostFile, syncs: &Arc<Syncs>) -> Result<(), Fault> {
        let key = synced(file)?;
        if self.open(&key).is_none() {
            // This may wait: without the lock.
            let open = Arc::new(syncs.descriptors.reopen(file, OFlags::RDONLY).map_err(fault)?);
            let new = || Entry { open, since: Instant::now(), writes: 0 };
            self.waiting().files.entry(key).or_insert_with(new);
        }
        let mut waiting = self.waiting();
        // If it was synced meanwhile, this write was as well.
        if let Some(entry) = waiting.files.get_mut(&key) {
            entry.writes += 1;
        }
        let is_full = waiting.files.len() > self.files_max;
        let oldest = if is_full { waiting.oldest(|other| *other != key) } else { None };
        let is_watched = std::mem::replace(&mut waiting.is_watched, true);
        drop(waiting);
        if !is_watched {
            let (unsynced, syncs) = (Arc::clone(self), Arc::clone(syncs));
            let watch = move || unsynced.watch(&syncs);
            // If no thread can be started, the next write tries again.
            self.waiting().is_watched =
                std::thread::Builder::new().name("nfs-unsynced".to_owned()).spawn(watch).is_ok();
        }
        if let Some((oldest, _)) = oldest {
            syncs.sync_unasked(&oldest, self);
        }
        Ok(())
    }

    /// Syncs what is too old, until nothing waits.
    fn watch(&self, syncs: &Syncs) {
        cache::may_wait();
        loop {
            let mut waiting = self.waiting();
            let Some((oldest, since)) = waiting.oldest(|_| true) else {
                waiting.is_watched = false;
                return;
            };
            let left = (since + self.age_max).saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(waiting);
                syncs.sync_unasked(&oldest, self);
            } else {
                drop(self.due.wait_timeout(waiting, left));
            }
        }
    }

    /// A file that waits, and how often it was written.
    fn open(&self, key: &Synced) -> Option<(Arc<OwnedFd>, u64)> {
        self.waiting().files.get(key).map(|entry| (Arc::clone(&entry.open), entry.writes))
    }

    /// All that was written before is durable, or lost and told.
    fn settled(&self, key: &Synced, writes: u64) {
        let mut waiting = self.waiting();
        let Some(entry) = waiting.files.get_mut(key) else { return };
        if entry.writes != writes {
            // The rest was written since.
            entry.since = Instant::now();
            return;
        }
        let settled = waiting.files.remove(key);
        drop(waiting);
        // Closing may take its time: without the lock.
        drop(settled);
    }

    /// Whether any file waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting().files.is_empty()
    }

    /// A file has lost a name: if it was its last one, its data is nobody's.
    pub(super) fn lost_name(&self, key: &Synced) {
        let Some((open, writes)) = self.open(key) else { return };
        // This may wait: without the lock.
        if rustix::fs::fstat(&open).is_ok_and(|stat| stat.st_nlink == 0) {
            self.settled(key, writes);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No code under this lock panics halfway.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The file that waits for longest, of those that are looked for, and since when.
    fn oldest(&self, is_looked_for: impl Fn(&Synced) -> bool) -> Option<(Synced, Instant)> {
        let files = self.files.iter().filter(|(key, _)| is_looked_for(key));
        files.min_by_key(|(_, entry)| entry.since).map(|(key, entry)| (*key, entry.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syncs() -> (Arc<Syncs>, Arc<WriteVerifier>) {
        let verifier = Arc::new(WriteVerifier::new(1));
        let descriptors = Arc::new(Descriptors::new().expect("there"));
        (Arc::new(Syncs::new(descriptors, Arc::clone(&verifier))), verifier)
    }

    /// A file in memory, which has handles.
    fn file() -> HostFile {
        HostFile::new(tempfile::tempfile_in("/dev/shm").expect("made").into(), 1)
    }

    /// A file whose sync fails.
    fn failing() -> HostFile {
        HostFile::new(std::fs::File::open("/dev/null").expect("there").into(), 1)
    }

    fn key(file: &HostFile) -> Synced {
        synced(file).expect("it has a key")
    }

    fn unsynced(files_max: usize, age_max: Duration) -> Arc<Unsynced> {
        Arc::new(Unsynced { files_max, age_max, ..Unsynced::default() })
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < until, "in time");
            std::thread::yield_now();
        }
    }

    #[test]
    fn beyond_a_number_of_files_the_oldest_is_synced_and_a_failure_changes_the_verifier() {
        let (syncs, verifier) = syncs();
        let unsynced = unsynced(2, AGE_MAX);
        let before = verifier.now();
        let files = [failing(), file(), file(), file()];
        let keys = files.each_ref().map(key);
        for file in &files[..2] {
            unsynced.wrote(file, &syncs).expect("kept");
        }
        assert_eq!(verifier.now(), before);
        unsynced.wrote(&files[2], &syncs).expect("kept");
        let after = verifier.now();
        assert_ne!(after, before, "the sync of the oldest failed");
        unsynced.wrote(&files[3], &syncs).expect("kept");
        assert_eq!(verifier.now(), after);
        assert_eq!(keys.each_ref().map(|key| unsynced.open(key).map_or(0, |kept| kept.1)), [0, 0, 1, 1]);
    }

    #[test]
    fn what_no_client_commits_is_synced_in_time_and_the_thread_ends() {
        let (syncs, verifier) = syncs();
        let unsynced = unsynced(FILES_MAX, Duration::from_millis(50));
        let before = verifier.now();
        let files = [failing(), file()];
        for file in &files {
            unsynced.wrote(file, &syncs).expect("kept");
        }
        let open =
            files.each_ref().map(|file| Arc::downgrade(&unsynced.open(&key(file)).expect("it waits").0));
        wait_until(|| !unsynced.waiting().is_watched && unsynced.is_empty());
        assert_ne!(verifier.now(), before);
        wait_until(|| open.iter().all(|open| open.upgrade().is_none()));
    }

    #[test]
    fn data_that_is_written_during_a_sync_waits_for_the_next_one() {
        let (syncs, _verifier) = syncs();
        let unsynced = unsynced(FILES_MAX, AGE_MAX);
        let file = file();
        let key = key(&file);
        unsynced.wrote(&file, &syncs).expect("kept");
        let (_, before) = unsynced.open(&key).expect("it waits");
        unsynced.wrote(&file, &syncs).expect("kept");
        unsynced.settled(&key, before);
        assert!(!unsynced.is_empty());
        unsynced.settled(&key, before + 1);
        assert!(unsynced.is_empty());
    }
}
