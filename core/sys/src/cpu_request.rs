//! A latency request for one CPU: while it is held, that CPU enters only idle states that it can leave within the
//! given time.
//!
//! `/sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us` (Documentation/ABI/testing/sysfs-devices-power).
//! Other CPUs may still use deep idle states, and unlike with [`LatencyRequest`](crate::LatencyRequest), a change
//! interrupts none of them. But the kernel keeps one value for all writers, and it stays when its writer dies. So
//! it is set only if nobody else has set one, under a lock, and the former value is kept in a file. The next
//! instance restores what a dead one left ([`restore_abandoned`]).

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::trusted_dir::{TrustError, TrustedDir};

/// The value for "no latency at all": only the shallowest state. (A zero means: no request.)
const NONE_AT_ALL: &str = "n/a\n";

/// The value for "no request".
const NO_REQUEST: &str = "0\n";

/// Longest text in a file with a former value, bytes: a number of 32 bits.
const LEFT_MAX: u64 = 32;

/// How often to retry opening a file that others remove at the same time.
const TRIES: usize = 16;

/// The right to make requests for one CPU, and the request itself while it is held. Dropping it restores the former
/// value.
#[derive(Debug)]
pub struct CpuRequest {
    value: File,
    journal: Journal,
    ours: String,
    held: bool,
}

/// Why no request can be made for a CPU.
#[derive(Debug, thiserror::Error)]
pub enum CpuRequestError {
    /// The kernel's file is missing or may not be opened.
    #[error("cannot open {}: {source}; a latency request for one CPU needs root and a writable /sys", path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another program has made a request.
    #[error("CPU {cpu} already has a latency request of {found} us that is not ours")]
    Foreign {
        /// The CPU.
        cpu: usize,
        /// The value found.
        found: String,
    },
    /// Another instance of twinpath makes requests for this CPU.
    #[error("another instance makes latency requests for CPU {cpu} ({} is locked)", path.display())]
    Shared {
        /// The CPU.
        cpu: usize,
        /// The lock that it holds.
        path: PathBuf,
    },
    /// The former value could not be saved.
    #[error("cannot keep {}: {source}; without it nobody could put back the value after a crash", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The directory of saved values, or the file, belongs to another user.
    #[error("{0}; without it nobody could put back the value after a crash")]
    Trust(#[from] TrustError),
}

impl CpuRequest {
    /// Acquires the right to limit the exit latency of `cpu` to `max_exit_us` (0: only the shallowest state). No
    /// request is made yet. `directory` is where the former value is kept; it is created if it is missing.
    ///
    /// # Errors
    /// [`CpuRequestError`]: nothing has changed then.
    pub fn open(cpu: usize, max_exit_us: u32, directory: &Path) -> Result<Self, CpuRequestError> {
        Self::open_at(&value_path(cpu), cpu, max_exit_us, directory)
    }

    fn open_at(path: &Path, cpu: usize, max_exit_us: u32, directory: &Path) -> Result<Self, CpuRequestError> {
        let opened = |source| CpuRequestError::Open { path: path.to_owned(), source };
        let value = File::options().read(true).write(true).open(path).map_err(opened)?;
        let file = directory.join(name_of(cpu));
        let kept = |source| CpuRequestError::Journal { path: file.clone(), source };
        let directory = Arc::new(TrustedDir::make(directory)?);
        let Some(mut journal) = Journal::lock(&directory, cpu)? else {
            return Err(CpuRequestError::Shared { cpu, path: file });
        };
        journal.put_back(&value).map_err(kept)?;
        let found = read(&value).map_err(opened)?;
        if found != NO_REQUEST.trim() {
            journal.remove();
            return Err(CpuRequestError::Foreign { cpu, found });
        }
        let ours = if max_exit_us == 0 { NONE_AT_ALL.to_owned() } else { format!("{max_exit_us}\n") };
        journal.keep(&ours).map_err(kept)?;
        Ok(Self { value, journal, ours, held: false })
    }

    /// Makes the request. One system call, none if it is held.
    ///
    /// # Errors
    /// What writing the value returns.
    pub fn hold(&mut self) -> io::Result<()> {
        if !self.held {
            self.value.write_all_at(self.ours.as_bytes(), 0)?;
            self.held = true;
        }
        Ok(())
    }

    /// Withdraws the request. One system call, none if it is not held.
    pub fn release(&mut self) {
        // The kernel always accepts this value (`pm_qos_resume_latency_us_store` in drivers/base/power/sysfs.c).
        if self.held && self.value.write_all_at(NO_REQUEST.as_bytes(), 0).is_ok() {
            self.held = false;
        }
    }
}

impl Drop for CpuRequest {
    fn drop(&mut self) {
        self.release();
        if !self.held {
            self.journal.remove();
        }
    }
}

/// Restores the values that dead processes left, and returns the CPUs concerned. A value that was changed by
/// another party since then stays.
///
/// # Errors
/// [`TrustError`], but not if the directory does not exist: a directory or file that others own or can write is not
/// used. CPUs that cannot be restored are left for the next call.
pub fn restore_abandoned(directory: &Path) -> Result<Vec<usize>, TrustError> {
    let directory = match TrustedDir::open(directory) {
        Ok(directory) => Arc::new(directory),
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let listed = |error| TrustError::Open { path: directory.path().to_owned(), error };
    let mut restored = Vec::new();
    for name in directory.names().map_err(listed)? {
        let cpu = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = cpu.filter(|cpu| *name == *name_of(*cpu)) else { continue };
        let Some(mut journal) = Journal::lock(&directory, cpu)? else { continue };
        let Ok(value) = File::options().read(true).write(true).open(value_path(cpu)) else { continue };
        if journal.put_back(&value).is_ok_and(|changed| changed) {
            restored.push(cpu);
        }
        journal.remove();
    }
    restored.sort_unstable();
    Ok(restored)
}

/// The name of a CPU's file in the directory of former values.
fn name_of(cpu: usize) -> String {
    format!("cpu{cpu}")
}

fn value_path(cpu: usize) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
}

fn read(value: &File) -> io::Result<String> {
    let mut text = [0; 32];
    let length = value.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// A locked file with the value that we write. It exists while we may have written it. The kernel releases the lock
/// with the process.
#[derive(Debug)]
struct Journal {
    directory: Arc<TrustedDir>,
    name: String,
    file: File,
}

impl Journal {
    /// `None` if a living process holds it.
    fn lock(directory: &Arc<TrustedDir>, cpu: usize) -> Result<Option<Self>, TrustError> {
        let name = name_of(cpu);
        let failed = |error: io::Error| TrustError::Open { path: directory.path().join(&name), error };
        for _ in 0..TRIES {
            let file = directory.file(&name, OFlags::RDWR | OFlags::CREATE)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(failed(error.into())),
            }
            // Its last owner may have removed it between the two calls. In that case no other process will find
            // this file.
            if file.metadata().map_err(failed)?.nlink() > 0 {
                return Ok(Some(Self { directory: Arc::clone(directory), name, file }));
            }
        }
        Ok(None)
    }

    /// Restores what the last owner left; returns whether there was anything to restore.
    fn put_back(&mut self, value: &File) -> io::Result<bool> {
        let mut left = String::new();
        self.file.rewind()?;
        (&self.file).take(LEFT_MAX).read_to_string(&mut left)?;
        let left = left.trim();
        let ours = !left.is_empty() && read(value)? == left;
        if ours {
            value.write_all_at(NO_REQUEST.as_bytes(), 0)?;
        }
        Ok(ours)
    }

    /// Saves the value that we are about to write.
    fn keep(&mut self, ours: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(ours.as_bytes())
    }

    fn remove(&mut self) {
        // Removed only while locked, so that no other process's file is removed. A file that cannot be removed is
        // left empty.
        let _ = self.file.set_len(0);
        let _ = self.directory.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A file that behaves like the kernel's, and a directory for saved values. Both are removed at the end.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("twinpath-cpu-request-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("value"), "0\n").unwrap();
            Self(path)
        }

        fn open(&self, max_exit_us: u32) -> Result<CpuRequest, CpuRequestError> {
            CpuRequest::open_at(&self.0.join("value"), 3, max_exit_us, &self.0.join("kept"))
        }

        /// The first line: a regular file, unlike the kernel's, keeps the end of a longer value.
        fn value(&self) -> String {
            read(&File::open(self.0.join("value")).unwrap()).unwrap()
        }

        fn kept(&self) -> Vec<String> {
            let names = fs::read_dir(self.0.join("kept")).unwrap();
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_request_is_withdrawn_and_nothing_is_left_behind() {
        let scene = Scene::new("held");
        let mut request = scene.open(2).unwrap();
        assert_eq!((scene.value(), scene.kept()), ("0".to_owned(), vec!["cpu3".to_owned()]));
        request.hold().unwrap();
        assert_eq!(scene.value(), "2");
        drop(request);
        assert_eq!(scene.value(), "0");
        assert!(scene.kept().is_empty());
    }

    #[test]
    fn foreign_requests_stay_and_two_instances_exclude_each_other() {
        let scene = Scene::new("others");
        let first = scene.open(0).unwrap();
        assert!(matches!(scene.open(0), Err(CpuRequestError::Shared { cpu: 3, .. })));
        drop(first);
        fs::write(scene.0.join("value"), "40\n").unwrap();
        let refused = scene.open(0).unwrap_err().to_string();
        assert_eq!(refused, "CPU 3 already has a latency request of 40 us that is not ours");
        assert_eq!((scene.value(), scene.kept().len()), ("40".to_owned(), 0));
    }

    #[test]
    fn a_dead_instances_request_is_undone_unless_changed_since() {
        let scene = Scene::new("dead");
        fs::create_dir_all(scene.0.join("kept")).unwrap();
        fs::write(scene.0.join("kept/cpu3"), "n/a").unwrap();
        fs::write(scene.0.join("value"), "n/a\n").unwrap();
        // The next instance that wants this CPU finds it and can use it.
        drop(scene.open(0).unwrap());
        assert_eq!(scene.value(), "0");
        // The value was changed by another party meanwhile, so it stays.
        fs::write(scene.0.join("kept/cpu3"), "n/a").unwrap();
        fs::write(scene.0.join("value"), "7\n").unwrap();
        assert!(matches!(scene.open(0), Err(CpuRequestError::Foreign { .. })));
        assert_eq!((scene.value(), scene.kept().len()), ("7".to_owned(), 0));
    }

    #[test]
    fn a_directory_or_file_that_others_can_write_is_not_used() {
        let scene = Scene::new("hostile");
        let (kept, victim) = (scene.0.join("kept"), scene.0.join("victim"));
        fs::create_dir_all(&kept).unwrap();
        fs::write(&victim, "n/a").unwrap();
        // A symbolic link in place of the file is neither locked, emptied nor removed.
        std::os::unix::fs::symlink(&victim, kept.join("cpu3")).unwrap();
        assert!(matches!(scene.open(0), Err(CpuRequestError::Trust(TrustError::Link { .. }))));
        assert!(matches!(restore_abandoned(&kept), Err(TrustError::Link { .. })));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "n/a");
        fs::remove_file(kept.join("cpu3")).unwrap();
        // A file, then a directory, that a group can write.
        fs::write(kept.join("cpu3"), "n/a").unwrap();
        fs::set_permissions(kept.join("cpu3"), fs::Permissions::from_mode(0o660)).unwrap();
        assert!(matches!(restore_abandoned(&kept), Err(TrustError::Mode { .. })));
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(scene.open(0), Err(CpuRequestError::Trust(TrustError::Mode { .. }))));
        assert!(matches!(restore_abandoned(&kept), Err(TrustError::Mode { .. })));
        // A symbolic link in place of the directory.
        fs::rename(&kept, scene.0.join("real")).unwrap();
        std::os::unix::fs::symlink(scene.0.join("real"), &kept).unwrap();
        assert!(matches!(restore_abandoned(&kept), Err(TrustError::Link { .. })));
        assert_eq!(scene.value(), "0");
    }

    #[test]
    fn the_kernel_accepts_a_request_and_a_dead_process_is_cleaned_up() {
        let kept = std::env::temp_dir().join(format!("twinpath-cpu-request-kernel-{}", std::process::id()));
        let cpu = *crate::affinity::allowed_cpus().unwrap().last().unwrap();
        let now = || fs::read_to_string(value_path(cpu)).unwrap();
        let mut request = match CpuRequest::open(cpu, 0, &kept) {
            Ok(request) => request,
            Err(error) => return twinpath_test_rig::skip(error),
        };
        assert_eq!(now(), NO_REQUEST);
        request.hold().unwrap();
        assert_eq!(now(), NONE_AT_ALL);
        request.release();
        assert_eq!(now(), NO_REQUEST);
        request.hold().unwrap();
        // The state after kill -9: the lock is released, the value and the file stay.
        assert_eq!(restore_abandoned(&kept).unwrap(), [0; 0]);
        let CpuRequest { ref journal, .. } = request;
        flock(&journal.file, FlockOperation::Unlock).unwrap();
        assert_eq!(restore_abandoned(&kept).unwrap(), [cpu]);
        assert_eq!(now(), NO_REQUEST);
        request.held = false;
        drop(request);
        let _ = fs::remove_dir_all(&kept);
    }
}
