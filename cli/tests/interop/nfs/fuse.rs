//! A file system of the test, by the protocol of /dev/fuse (linux/fuse.h): one file in one directory. It says what it was
//! asked to do, fails a sync when told to, and stops answering when told to.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Length of `fuse_in_header`, bytes.
const HEADER_LEN: usize = 40;
/// Length of `fuse_write_in`, bytes.
const WRITE_IN_LEN: usize = 40;
/// The most data of one request, bytes.
const WRITE_MAX: u32 = 128 << 10;
/// `FUSE_EXPORT_SUPPORT` and `FUSE_BIG_WRITES`.
const INIT_FLAGS: u32 = 1 << 4 | 1 << 5;
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// What the file system was asked to do with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Write {
        len: u32,
    },
    Sync,
    /// The answer to a sync, which comes once the file system says that it has been done.
    Synced {
        failed: bool,
    },
}

#[derive(Default)]
struct State {
    data: Mutex<Vec<u8>>,
    asked: Mutex<Vec<Asked>>,
    fails: AtomicBool,
    ends: AtomicBool,
}

/// A mounted file system.
pub(super) struct Fuse {
    path: PathBuf,
    state: Arc<State>,
    /// While it is open, requests wait.
    device: Arc<File>,
    thread: Option<JoinHandle<()>>,
}

impl Fuse {
    /// Mounts it at a directory.
    pub(super) fn mount(path: &Path) -> Self {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device = File::from(rustix::fs::open("/dev/fuse", flags, Mode::empty()).unwrap());
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        mount("test", path, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        let (state, device) = (Arc::<State>::default(), Arc::new(device));
        let (its_state, its_device) = (Arc::clone(&state), Arc::clone(&device));
        let thread = std::thread::spawn(move || serve(&its_device, &its_state));
        Self { path: path.to_owned(), state, device, thread: Some(thread) }
    }

    /// From now on no request is read: whoever makes one waits.
    pub(super) fn stop_answering(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join).transpose().unwrap();
    }

    /// Whether syncs fail from now on.
    pub(super) fn fail(&self, fails: bool) {
        self.state.fails.store(fails, Ordering::SeqCst);
    }

    /// What it was asked since the last call.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        self.state.ends.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
        // The last descriptor: requests that wait still are ended.
        debug_assert_eq!(Arc::strong_count(&self.device), 1);
    }
}

fn serve(device: &File, state: &State) {
    let mut buffer = vec![0; HEADER_LEN + WRITE_IN_LEN + WRITE_MAX as usize + 4096];
    while !state.ends.load(Ordering::SeqCst) {
        let patience = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&patience));
        if state.ends.load(Ordering::SeqCst) {
            return;
        }
        let mut device = device;
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            // A request was interrupted before it was read (ENOENT).
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            // It is not mounted any more (ENODEV).
            Err(_) => return,
        };
        let word = |at: usize| u32::from_ne_bytes(*buffer[at..].first_chunk().unwrap());
        let long = |at: usize| u64::from_ne_bytes(*buffer[at..].first_chunk().unwrap());
        let (opcode, unique, node) = (word(4), long(8), long(16));
        let Some(answer) = answer(state, opcode, node, &buffer[HEADER_LEN..len]) else { continue };
        let (error, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend(error.to_ne_bytes());
        message.extend(unique.to_ne_bytes());
        message.extend(body);
        // ENOENT: whoever asked has gone.
        let _ = device.write(&message);
    }
}

/// The answer to a request, if it has one.
fn answer(state: &State, opcode: u32, node: u64, body: &[u8]) -> Option<Result<Vec<u8>, i32>> {
    const ENOENT: i32 = 2;
    const EIO: i32 = 5;
    const ENOSYS: i32 = 38;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let long =
        |at: usize| body.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |it| u64::from_ne_bytes(*it));
    let word =
        |at: usize| body.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |it| u32::from_ne_bytes(*it));
    let mut data = state.data.lock().unwrap();
    let attributes = |node: u64, len: usize| {
        let mode = if node == ROOT { 0o40_777 } else { 0o100_666 };
        let mut attributes: Vec<u8> =
            [node, len as u64, 1, 0, 0, 0].iter().flat_map(|it| it.to_ne_bytes()).collect();
        attributes.extend(words(&[0, 0, 0, mode, 1, 1000, 1000, 0, 4096, 0]));
        attributes
    };
    // Each time it is asked again.
    let with_validity = |node, len| [vec![0; 16], attributes(node, len)].concat();
    let entry =
        |node: u64, len: usize| [node.to_ne_bytes().to_vec(), vec![0; 32], attributes(node, len)].concat();
    Some(match opcode {
        // FORGET, INTERRUPT, BATCH_FORGET.
        2 | 36 | 42 => return None,
        // LOOKUP: of an entry that was opened by its handle, by `.`.
        1 if body == b"file\0" || (node == FILE && body == b".\0") => Ok(entry(FILE, data.len())),
        1 if body == b".\0" || body == b"..\0" => Ok(entry(ROOT, 0)),
        1 => Err(ENOENT),
        // GETATTR.
        3 => Ok(with_validity(node, data.len())),
        // SETATTR: the size is the third field.
        4 => {
            const SIZE: u32 = 1 << 3;
            if word(0) & SIZE != 0 {
                data.resize(long(16) as usize, 0);
            }
            Ok(with_validity(node, data.len()))
        }
        // OPEN, OPENDIR.
        14 | 27 => Ok(vec![0; 16]),
        // READ.
        15 => {
            let start = (long(8) as usize).min(data.len());
            let end = (start + word(16) as usize).min(data.len());
            Ok(data[start..end].to_vec())
        }
        // WRITE.
        16 => {
            let (offset, len) = (long(8) as usize, word(16));
            let end = offset + len as usize;
            if data.len() < end {
                data.resize(end, 0);
            }
            data[offset..end].copy_from_slice(&body[WRITE_IN_LEN..WRITE_IN_LEN + len as usize]);
            state.asked.lock().unwrap().push(Asked::Write { len });
            Ok(words(&[len, 0]))
        }
        // STATFS.
        17 => Ok(vec![0; 80]),
        // FSYNC.
        20 => {
            let failed = state.fails.load(Ordering::SeqCst);
            state.asked.lock().unwrap().extend([Asked::Sync, Asked::Synced { failed }]);
            if failed { Err(EIO) } else { Ok(Vec::new()) }
        }
        // RELEASE, FLUSH, RELEASEDIR, ACCESS.
        18 | 25 | 29 | 34 => Ok(Vec::new()),
        // INIT: major, minor, readahead, flags, background, data, granularity of times.
        26 => Ok([words(&[7, 31, 0, INIT_FLAGS, 0, WRITE_MAX, 1]), vec![0; 36]].concat()),
        _ => Err(ENOSYS),
    })
}
