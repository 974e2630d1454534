//! Detects that rpcbind starts: it opens its lock file and creates its socket. This needs no polling: the
//! kernel reports it (inotify(7)).
//!
//! There is no better sign: the kernel does not announce that a socket is bound, and rpcbind closes idle
//! connections. An rpcbind with another /run than ours, such as one in a container, gives no sign.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use twinpath_sys::event_loop::{Watched, yield_now};

/// The directory of rpcbind's files.
const FOLDER: &str = "/run";
/// rpcbind holds this lock while it runs; the file stays if it is killed (`RPCBINDDLOCK` of rpcbind.c).
const LOCK: &str = "rpcbind.lock";
/// rpcbind's own socket, or the one by which the service manager activates it (rpcbind.socket of systemd).
const SOCKET: &str = "rpcbind.sock";

/// Room for several events: a name has at most 255 bytes.
const EVENTS_LEN: usize = 4096;

/// Maximum number of events read at a time.
const EVENTS_MAX: u32 = 64;

/// Watches for signs. If no watch can be made there are none, which is logged once.
pub(crate) struct Signs {
    watch: Option<Watched<OwnedFd>>,
}

impl Signs {
    pub(crate) fn open() -> Self {
        let watch = Self::watch().inspect_err(|error| {
            tracing::warn!(
                "a start of rpcbind is not seen ({FOLDER}: {error}): register by twinpath reload then"
            );
        });
        Self { watch: watch.ok() }
    }

    fn watch() -> io::Result<Watched<OwnedFd>> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, FOLDER, WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
        watch_lock(&fd);
        Watched::readable(fd)
    }

    /// Waits for the next sign.
    pub(crate) async fn next(&mut self) {
        let Some(watch) = &self.watch else { return std::future::pending().await };
        loop {
            watch.until_readable().await;
            let (is_sign, is_all) = read(watch.get_ref());
            if is_all {
                watch.clear();
            } else {
                // Events may arrive without end, and this thread has other work.
                yield_now().await;
            }
            if is_sign {
                return;
            }
        }
    }
}

/// Watches the lock file, if it exists: each start opens it, even one that was left behind.
fn watch_lock(fd: &OwnedFd) {
    let _ = inotify::add_watch(fd, Path::new(FOLDER).join(LOCK), WatchFlags::OPEN);
}

/// Reads at most [`EVENTS_MAX`] events. Returns whether one of them is a sign, and whether all events were
/// read.
fn read(fd: &OwnedFd) -> (bool, bool) {
    let mut buffer = [MaybeUninit::uninit(); EVENTS_LEN];
    let mut events = inotify::Reader::new(fd, &mut buffer);
    let mut is_sign = false;
    for _ in 0..EVENTS_MAX {
        match events.next() {
            Ok(event) => match event.file_name() {
                // An event of the directory.
                Some(name) if name.to_bytes() == LOCK.as_bytes() => {
                    watch_lock(fd);
                    is_sign = true;
                }
                Some(name) => is_sign |= name.to_bytes() == SOCKET.as_bytes(),
                // An event of the lock file, or events were lost.
                None => is_sign |= event.events().intersects(ReadFlags::OPEN | ReadFlags::QUEUE_OVERFLOW),
            },
            Err(Errno::INTR) => {}
            Err(_) => return (is_sign, true),
        }
    }
    (is_sign, false)
}
