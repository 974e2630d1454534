//! Signs that rpcbind starts: it opens its lock, and makes its socket. Nothing is asked, and nothing ticks: the kernel tells
//! (inotify(7)).
//!
//! The kernel announces no socket that is bound, and rpcbind closes connections that are idle, so there is no better sign. An
//! rpcbind whose /run is another one than ours, as that of a container, gives none.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The folder of its files.
const FOLDER: &str = "/run";
/// It holds this while it runs, and leaves it if it is killed (`RPCBINDDLOCK` of rpcbind.c).
const LOCK: &str = "rpcbind.lock";
/// Its own socket, or that by which the service manager starts it (rpcbind.socket of systemd).
const SOCKET: &str = "rpcbind.sock";

/// Room for some events: a name has 255 bytes at most.
const EVENTS_LEN: usize = 4096;

/// Events that are read at once.
const EVENTS_MAX: u32 = 64;

/// Watches for signs. Without any watch there are none, and that is said once.
pub(crate) struct Signs {
    watch: Option<AsyncFd<OwnedFd>>,
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

    fn watch() -> io::Result<AsyncFd<OwnedFd>> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, FOLDER, WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
        watch_lock(&fd);
        #[allow(deprecated, reason = "AsyncFd asks for an fd that stays open: it owns this one")]
        AsyncFd::with_interest(fd, Interest::READABLE)
    }

    /// Waits for the next sign.
    pub(crate) async fn next(&mut self) {
        let Some(watch) = &self.watch else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = watch.readable().await else { return std::future::pending().await };
            let (is_sign, is_all) = read(ready.get_inner());
            if is_all {
                ready.clear_ready();
            } else {
                // There may be ever more of them, and this thread has other work.
                tokio::task::yield_now().await;
            }
            if is_sign {
                return;
            }
        }
    }
}

/// Watches the lock, if there is one: it is opened by each start, also where it was left.
fn watch_lock(fd: &OwnedFd) {
    let _ = inotify::add_watch(fd, Path::new(FOLDER).join(LOCK), WatchFlags::OPEN);
}

/// Reads events, [`EVENTS_MAX`] at most: whether one of them is a sign, and whether that were all.
fn read(fd: &OwnedFd) -> (bool, bool) {
    let mut buffer = [MaybeUninit::uninit(); EVENTS_LEN];
    let mut events = inotify::Reader::new(fd, &mut buffer);
    let mut is_sign = false;
    for _ in 0..EVENTS_MAX {
        match events.next() {
            Ok(event) => match event.file_name() {
                // Of the folder.
                Some(name) if name.to_bytes() == LOCK.as_bytes() => {
                    watch_lock(fd);
                    is_sign = true;
                }
                Some(name) => is_sign |= name.to_bytes() == SOCKET.as_bytes(),
                // Of the lock, or events were lost.
                None => is_sign |= event.events().intersects(ReadFlags::OPEN | ReadFlags::QUEUE_OVERFLOW),
            },
            Err(Errno::INTR) => {}
            Err(_) => return (is_sign, true),
        }
    }
    (is_sign, false)
}
