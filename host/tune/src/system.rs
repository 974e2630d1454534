//! The interface to a machine's settings: read, write and list. The host implements it, and a directory in tests.

use std::fmt;
use std::io;

use rustix::io::Errno;
use twinpath_netlink::NetlinkError;

use super::parameter::Parameter;

/// The location of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A file, its path from the root without the leading slash.
    File(String),
    /// Parameters of a device, as `adaptive-rx off, rx-usecs 3, rx-frames 1`: only those that the device has.
    Ethtool {
        /// The interface.
        interface: String,
        /// Which of them.
        group: Group,
    },
    /// The queueing disciplines of an interface, without repetition, the root first: `mq, fq_codel`. Only read.
    Qdisc {
        /// The interface's index.
        ifindex: u32,
    },
    /// A parameter of NAPI of an interface, of the device and of each instance: see [`super::napi`].
    Napi {
        /// The interface.
        interface: String,
        /// Its index.
        ifindex: u32,
        /// The parameter.
        parameter: Parameter,
    },
}

/// Parameters of a device that the kernel reads and sets together (linux/ethtool_netlink.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Interrupt coalescing.
    Coalescing,
    /// Sizes of the rings: `rx 256, tx 256`.
    Rings,
    /// The largest sizes of the rings. Only read.
    RingLimits,
    /// The offloads of interest here that the device lets anybody change: `ntuple-filters off`. Only read.
    Features,
}

impl Group {
    /// Its name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Coalescing => "interrupt coalescing",
            Self::Rings => "the rings",
            Self::RingLimits => "the largest rings",
            Self::Features => "the features",
        }
    }
}

/// The reason that a value cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The device or the kernel does not have it.
    #[error("not on this device or kernel")]
    Absent,
    /// This process may not.
    #[error("not permitted ({0}): run as root, or with CAP_NET_ADMIN and a writable /sys and /proc")]
    Denied(String),
    /// Any other error.
    #[error("refused: {0}")]
    Refused(String),
}

impl Trouble {
    /// The reason for a failed read: a file may exist although the device behind it lacks the setting.
    pub(crate) fn of_read(error: &impl Failure) -> Self {
        let absent = [Errno::NOENT, Errno::NODEV, Errno::NOTDIR, Errno::OPNOTSUPP, Errno::INVAL, Errno::NXIO];
        match error.errno() {
            Some(errno) if absent.contains(&errno) => Self::Absent,
            _ => Self::of_write(error),
        }
    }

    /// The reason for a failed write.
    pub(crate) fn of_write(error: &impl Failure) -> Self {
        let (denied, absent) =
            ([Errno::PERM, Errno::ACCESS, Errno::ROFS], [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP]);
        match error.errno() {
            Some(errno) if denied.contains(&errno) => Self::Denied(error.to_string()),
            Some(errno) if absent.contains(&errno) => Self::Absent,
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// An error with the kernel's error number, if it has one.
pub(crate) trait Failure: fmt::Display {
    fn errno(&self) -> Option<Errno>;
}

impl Failure for io::Error {
    fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(self)
    }
}

impl Failure for NetlinkError {
    fn errno(&self) -> Option<Errno> {
        self.errno()
    }
}

/// Access to a machine's settings.
pub trait System {
    /// The value, without white space around it.
    ///
    /// # Errors
    /// [`Trouble`].
    fn read(&self, at: &At) -> Result<String, Trouble>;

    /// Writes a value.
    ///
    /// # Errors
    /// [`Trouble`]; the value may have been changed anyway.
    fn write(&mut self, at: &At, value: &str) -> Result<(), Trouble>;

    /// Whether it can be set at all: the kernel makes files read-only if it alone decides on them, such as
    /// the affinity of managed interrupts.
    fn settable(&self, at: &At) -> bool;

    /// Names in a directory, in order; none if there is no such directory.
    fn list(&self, directory: &str) -> Vec<String>;

    /// The last part of a symbolic link's target.
    fn link(&self, path: &str) -> Option<String>;

    /// The value of a file, if it has one.
    fn file(&self, path: &str) -> Option<String> {
        self.read(&At::File(path.to_owned())).ok()
    }
}
