//! Anonymous network namespaces, which need no clean-up.
//!
//! A namespace exists as long as it is held: here by one descriptor, close-on-exec, never by a name in `/run/netns`.
//! When the holder ends, even by `kill -9`, the kernel removes the namespace with every link, address and program in
//! it.

#![allow(unsafe_code, reason = "unshare(2) of the calling thread")]

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// The calling thread's network namespace. (`/sys` shows the one in which it was mounted instead.)
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Where `ip netns` keeps the names of namespaces.
const NAMES: &str = "/run/netns";

/// The type of the file system of namespaces: `NSFS_MAGIC` of linux/magic.h.
const NAMESPACES: rustix::fs::FsWord = 0x6e73_6673;

/// What can go wrong with a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The kernel refused a new namespace.
    #[error("cannot create a network namespace ({0}): this needs CAP_SYS_ADMIN, so run as root or with sudo")]
    Unshare(Errno),
    /// There is no namespace of that name, or its file is not a namespace.
    #[error("there is no network namespace {} ({source}): see `ip netns`", path.display())]
    Named {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The file belongs to another process, which this one has no right to trace: a process that has confined
    /// itself, for example.
    #[error(
        "{} cannot be opened by this process, which may not look into others (any more): give the namespace a name (ip netns attach NAME \
         PID), and use that name here",
        path.display()
    )]
    OfAProcess {
        /// Its file.
        path: PathBuf,
    },
    /// The file is not a network namespace.
    #[error("{} is no network namespace: see `ip netns`", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
    },
    /// The namespace exists, but its file cannot be opened.
    #[error("cannot open {OWN_NAMESPACE} ({0}): is /proc mounted?")]
    Open(Errno),
    /// The limit of descriptors is reached.
    #[error("cannot hold a network namespace a second time: {0}")]
    Duplicate(std::io::Error),
    /// A thread could not move into it.
    #[error("cannot enter a network namespace ({0}): this needs CAP_SYS_ADMIN, so run as root or with sudo")]
    Enter(Errno),
    /// The helper thread could not be started.
    #[error("cannot start a helper thread for a network namespace: {0}")]
    Thread(std::io::Error),
    /// The closure panicked.
    #[error("a helper thread inside a network namespace panicked")]
    Panicked,
}

/// A network namespace that is kept only by this value (and by the processes and sockets inside it).
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Makes a new, empty namespace: it contains only `lo`, which is down. The calling thread stays in its own.
    /// Source validation (`rp_filter`) is off for its interfaces, although a new namespace would otherwise inherit
    /// the settings of the first one.
    ///
    /// # Errors
    /// [`NetnsError::Unshare`] without CAP_SYS_ADMIN.
    pub fn new() -> Result<Self, NetnsError> {
        on_thread("netns-create", || {
            // SAFETY: only the network namespace of this short-lived thread is unshared. What makes `unshare`
            // unsafe is CLONE_FILES: file descriptors that other code thinks are shared. That flag is not set.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(NetnsError::Unshare)?;
            let fd = rustix::fs::open(OWN_NAMESPACE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(NetnsError::Open)?;
            for of in ["all", "default"] {
                // If it cannot be written, this process has nothing to change.
                let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), "0");
            }
            Ok(Self { fd })
        })?
    }

    /// The namespace known to `ip netns` by this name, or whose file has this path.
    ///
    /// # Errors
    /// [`NetnsError::Named`], [`NetnsError::OfAProcess`], [`NetnsError::NotOne`]
    pub fn named(name: &str) -> Result<Self, NetnsError> {
        let path = if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMES).join(name) };
        let named = |source| match source {
            Errno::ACCESS | Errno::PERM if path.starts_with("/proc") => {
                NetnsError::OfAProcess { path: path.clone() }
            }
            source => NetnsError::Named { path: path.clone(), source },
        };
        let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(named)?;
        if rustix::fs::fstatfs(&fd).map_err(named)?.f_type != NAMESPACES {
            return Err(NetnsError::NotOne { path });
        }
        Ok(Self { fd })
    }

    /// The calling thread's own.
    ///
    /// # Errors
    /// [`NetnsError::Open`]
    pub fn own() -> Result<Self, NetnsError> {
        let fd = rustix::fs::open(OWN_NAMESPACE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { fd: fd.map_err(NetnsError::Open)? })
    }

    /// Whether both are the same namespace, whatever they are called.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let inode =
            |namespace: &Self| rustix::fs::fstat(&namespace.fd).map(|stat| (stat.st_dev, stat.st_ino));
        inode(self).is_ok_and(|ours| inode(other) == Ok(ours))
    }

    /// Moves the calling thread into it for as long as the result lives. Sockets opened meanwhile stay in the namespace;
    /// threads must not be started.
    ///
    /// # Errors
    /// [`NetnsError::Open`]; [`NetnsError::Enter`] without CAP_SYS_ADMIN, or if it is no network namespace.
    pub fn visit(&self) -> Result<Visit, NetnsError> {
        let own = rustix::fs::open(OWN_NAMESPACE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(NetnsError::Open)?;
        enter(self.fd.as_fd()).map_err(NetnsError::Enter)?;
        Ok(Visit { own, _of_this_thread: PhantomData })
    }

    /// A second holder of the same namespace, which exists until both are gone.
    ///
    /// # Errors
    /// [`NetnsError::Duplicate`] when the limit of descriptors is reached.
    pub fn duplicate(&self) -> Result<Self, NetnsError> {
        Ok(Self { fd: self.fd.try_clone().map_err(NetnsError::Duplicate)? })
    }

    /// Runs `work` on a new thread inside this namespace and waits for it. Sockets it opens stay in the namespace
    /// wherever they are used later.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] without CAP_SYS_ADMIN; [`NetnsError::Panicked`] if `work` panicked.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
        on_thread("netns", || {
            enter(self.fd.as_fd()).map_err(NetnsError::Enter)?;
            Ok(work())
        })?
    }
}

/// The calling thread's stay in another namespace. Dropping it takes the thread back.
#[derive(Debug)]
pub struct Visit {
    own: OwnedFd,
    /// It is the thread that has moved.
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let back = enter(self.own.as_fd());
        // Everything that the thread does after this would happen in the wrong namespace.
        assert!(back.is_ok(), "cannot go back to the own network namespace: {back:?}");
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Moves the calling thread into a network namespace. One system call, fit for use between fork and exec.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

fn on_thread<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, work)
            .map_err(NetnsError::Thread)?;
        thread.join().map_err(|_| NetnsError::Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> String {
        std::fs::read_link(OWN_NAMESPACE).expect("/proc is mounted").display().to_string()
    }

    #[test]
    fn a_new_namespace_is_empty_and_the_caller_stays_outside() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let before = identity();
        let namespace = Namespace::new().unwrap();
        let (inside, devices) = namespace
            .run(|| (identity(), std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()))
            .unwrap();
        assert_ne!(inside, before);
        assert_eq!(identity(), before);
        let names: Vec<_> = devices.lines().skip(2).filter_map(|line| line.split(':').next()).collect();
        assert_eq!(names.iter().map(|name| name.trim()).collect::<Vec<_>>(), ["lo"]);
    }

    #[test]
    fn a_visit_ends_where_it_began() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let (before, namespace) = (identity(), Namespace::new().unwrap());
        let there = namespace.run(identity).unwrap();
        let visit = namespace.visit().unwrap();
        assert_eq!(identity(), there);
        drop(visit);
        assert_eq!(identity(), before);
        assert!(matches!(Namespace::named("none-such"), Err(NetnsError::Named { .. })));
    }

    #[test]
    fn a_panic_inside_is_an_error_outside() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        assert!(matches!(namespace.run(|| panic!("on purpose")), Err(NetnsError::Panicked)));
    }
}
