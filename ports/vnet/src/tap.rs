//! A TAP interface: the kernel's side of an exception port.
#![allow(unsafe_code, reason = "the TAP driver's ioctls have no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use twinpath_port::{GsoKinds, vnet_header};
use twinpath_sys::last_errno;

const DEVICE: &str = "/dev/net/tun";

/// Longest name of an interface, bytes (IFNAMSIZ without the terminating zero).
pub const NAME_LEN_MAX: usize = libc::IFNAMSIZ - 1;

/// Which step of creating a TAP interface failed.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name is not valid for an interface.
    #[error(
        "'{0}' cannot be the name of an interface: choose 1 to {NAME_LEN_MAX} letters, digits, '-', '_' or '.'"
    )]
    Name(String),
    /// There is no TAP driver, or no permission to use it.
    #[error("cannot open {DEVICE}: {0}; it needs the kernel's tun driver (modprobe tun), and root")]
    Open(Errno),
    /// An interface of that name exists.
    #[error("an interface {0} exists already: choose another name, or remove it (ip link delete {0})")]
    Exists(String),
    /// The interface was refused.
    #[error("cannot make the TAP interface {name}: {source}; it needs CAP_NET_ADMIN (run as root)")]
    Make {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: Errno,
    },
    /// A setting was refused.
    #[error("TAP interface {name}, {setting}: {source}")]
    Setting {
        /// Its name.
        name: String,
        /// The ioctl.
        setting: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

/// The offloads that the kernel leaves to the reader of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Also UDP segmentation (Linux 6.2); TCP segmentation and checksums always.
    pub udp_segments: bool,
}

impl Offloads {
    /// The kinds of super-frames that a kernel with these offloads takes from us, on a TAP queue and a packet socket.
    #[must_use]
    pub const fn segmentation(self) -> GsoKinds {
        GsoKinds { tcp: true, udp: self.udp_segments }
    }

    /// The names that `ethtool -k` uses.
    #[must_use]
    pub const fn names(self) -> &'static str {
        if self.udp_segments {
            "checksum, tso4, tso6, tso-ecn, uso4, uso6"
        } else {
            "checksum, tso4, tso6, tso-ecn"
        }
    }
}

/// A TAP interface with its queues, before they are given to workers.
#[derive(Debug)]
pub struct Tap {
    /// Its queues, one fd each. The interface is removed when the last one is closed.
    pub queues: Vec<OwnedFd>,
    /// Its kernel index when it was created.
    pub ifindex: u32,
    /// The offloads left to the reader.
    pub offloads: Offloads,
}

impl Tap {
    /// Creates the interface `name` with `queues` queues, in the network namespace of the calling thread, down and
    /// without carrier. It must not exist.
    ///
    /// # Errors
    /// [`TapError`]; nothing is left then.
    pub fn make(name: &str, queues: u32) -> Result<Self, TapError> {
        let well_formed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty()
            || name.len() > NAME_LEN_MAX
            || matches!(name, "." | "..")
            || !name.bytes().all(well_formed)
        {
            return Err(TapError::Name(name.to_owned()));
        }
        let mut tap = Self { queues: Vec::new(), ifindex: 0, offloads: Offloads { udp_segments: false } };
        for number in 0..queues {
            tap.queues.push(open_queue(name, queues > 1, number == 0)?);
        }
        let Some(first) = tap.queues.first() else { return Err(TapError::Name(name.to_owned())) };
        // Without carrier at first, so that the kernel sends nothing into a port that is not attached yet.
        set_carrier(first.as_fd(), false).map_err(setting(name, "TUNSETCARRIER"))?;
        tap.offloads = set_offloads(name, first.as_fd())?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        tap.ifindex = socket
            .and_then(|socket| netdevice::name_to_index(socket, name))
            .map_err(setting(name, "SIOCGIFINDEX"))?;
        Ok(tap)
    }
}

fn setting(name: &str, setting: &'static str) -> impl Fn(Errno) -> TapError {
    move |source| TapError::Setting { name: name.to_owned(), setting, source }
}

fn open_queue(name: &str, multi_queue: bool, first: bool) -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(TapError::Open)?;
    // SAFETY: an all-zero ifreq is a valid value: a name of length 0 and a union of plain integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if first {
        // An existing persistent interface of that name belongs to another program and is not taken over.
        flags |= libc::IFF_TUN_EXCL;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(fd.as_fd(), libc::TUNSETIFF, (&raw mut request).cast()).map_err(|source| match source {
        Errno::BUSY | Errno::EXIST | Errno::INVAL if first => TapError::Exists(name.to_owned()),
        source => TapError::Make { name: name.to_owned(), source },
    })?;
    let mut len = vnet_header::LEN as libc::c_int;
    ioctl(fd.as_fd(), libc::TUNSETVNETHDRSZ, (&raw mut len).cast())
        .map_err(setting(name, "TUNSETVNETHDRSZ"))?;
    Ok(fd)
}

/// Makes the kernel leave checksums and segmentation to us.
fn set_offloads(name: &str, fd: BorrowedFd<'_>) -> Result<Offloads, TapError> {
    let base = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let all = base | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if ioctl_value(fd, libc::TUNSETOFFLOAD, u64::from(all)).is_ok() {
        return Ok(Offloads { udp_segments: true });
    }
    ioctl_value(fd, libc::TUNSETOFFLOAD, u64::from(base)).map_err(setting(name, "TUNSETOFFLOAD"))?;
    Ok(Offloads { udp_segments: false })
}

/// Control's handle on a TAP interface, through one of its queues. It works even if the interface has been renamed or
/// moved to another network namespace.
#[derive(Debug)]
pub struct TapHandle(OwnedFd);

impl TapHandle {
    /// Makes a handle on that interface. The interface exists while the handle does.
    ///
    /// # Errors
    /// The limit of descriptors is reached.
    pub fn of(tap: &Tap) -> std::io::Result<Self> {
        let queue = tap.queues.first().ok_or_else(|| std::io::Error::from(Errno::BADF))?;
        Ok(Self(queue.try_clone()?))
    }

    /// Whether the interface still exists, in any namespace.
    #[must_use]
    pub fn exists(&self) -> bool {
        // SAFETY: an all-zero ifreq is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        ioctl(self.0.as_fd(), libc::TUNGETIFF, (&raw mut request).cast()).is_ok()
    }

    /// Sets the carrier on or off, as plugging a cable would.
    ///
    /// # Errors
    /// What the ioctl returns; EBADFD if the interface is gone.
    pub fn set_carrier(&self, carrier: bool) -> Result<(), Errno> {
        set_carrier(self.0.as_fd(), carrier)
    }

    /// Makes the interface run this BPF program for each frame that it puts into a queue, instead of the former
    /// one.
    ///
    /// # Errors
    /// What the ioctl returns; EBADFD if the interface is gone.
    pub fn set_queue_filter(&self, program: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut fd = program.as_raw_fd();
        ioctl(self.0.as_fd(), libc::TUNSETFILTEREBPF, (&raw mut fd).cast()).map(|_| ())
    }

    /// Whether it is in the network namespace of the calling thread. False if the kernel cannot tell (before Linux
    /// 5.2).
    #[must_use]
    pub fn is_here(&self) -> bool {
        let Ok(fd) = ioctl_value(self.0.as_fd(), libc::TUNGETDEVNETNS, 0) else { return false };
        // SAFETY: on success the ioctl returns a new descriptor that nobody else owns.
        let namespace = unsafe { OwnedFd::from_raw_fd(fd) };
        let same = |(there, here): (rustix::fs::Stat, rustix::fs::Stat)| {
            (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
        };
        let there = rustix::fs::fstat(&namespace);
        let here = rustix::fs::stat("/proc/thread-self/ns/net");
        there.and_then(|there| Ok((there, here?))).is_ok_and(same)
    }

    /// Its present name, in its namespace.
    ///
    /// # Errors
    /// EBADFD if the interface is gone.
    pub fn name(&self) -> Result<String, Errno> {
        // SAFETY: an all-zero ifreq is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        ioctl(self.0.as_fd(), libc::TUNGETIFF, (&raw mut request).cast())?;
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8);
        Ok(String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned())
    }
}

fn set_carrier(fd: BorrowedFd<'_>, carrier: bool) -> Result<(), Errno> {
    let mut value = libc::c_int::from(carrier);
    ioctl(fd, libc::TUNSETCARRIER, (&raw mut value).cast()).map(|_| ())
}

/// An ioctl that reads or writes `argument`, which must have the type that the request needs.
fn ioctl(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: *mut libc::c_void) -> Result<i32, Errno> {
    // SAFETY: every caller passes a pointer to a live value of the type that its request reads or writes.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// An ioctl whose argument is a number.
fn ioctl_value(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: u64) -> Result<i32, Errno> {
    // SAFETY: these requests take their argument by value and touch none of our memory.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}
