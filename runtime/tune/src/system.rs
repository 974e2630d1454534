//! What tuning needs of a machine: to read, write and list. The host does it for real, a test with a directory.

use std::io;

use rustix::io::Errno;

use super::parameter::Parameter;

/// Something that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A file, its path from the root without the leading slash.
    File(String),
    /// Interrupt coalescing of an interface, as `adaptive-rx off, rx-usecs 3, rx-frames 1`: only what the device has.
    Coalescing {
        /// The interface.
        interface: String,
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

/// Why something has no value, or would not take one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The device or the kernel does not have it.
    #[error("not on this device or kernel")]
    Absent,
    /// Not for us.
    #[error("not permitted ({0}): run as root, or with CAP_NET_ADMIN and a writable /sys and /proc")]
    Denied(String),
    /// Anything else.
    #[error("refused: {0}")]
    Refused(String),
}

impl Trouble {
    /// Of a failed reading: a file that is there may say that the device behind it has no such thing.
    pub(crate) fn of_read(error: &io::Error) -> Self {
        let absent = [Errno::NOENT, Errno::NODEV, Errno::NOTDIR, Errno::OPNOTSUPP, Errno::INVAL, Errno::NXIO];
        match Errno::from_io_error(error) {
            Some(errno) if absent.contains(&errno) => Self::Absent,
            _ => Self::of_write(error),
        }
    }

    /// Of a failed writing.
    pub(crate) fn of_write(error: &io::Error) -> Self {
        let (denied, absent) =
            ([Errno::PERM, Errno::ACCESS, Errno::ROFS], [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP]);
        match Errno::from_io_error(error) {
            Some(errno) if denied.contains(&errno) => Self::Denied(error.to_string()),
            Some(errno) if absent.contains(&errno) => Self::Absent,
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// A machine.
pub trait System {
    /// The value, without white space around it.
    ///
    /// # Errors
    /// [`Trouble`].
    fn read(&self, at: &At) -> Result<String, Trouble>;

    /// Sets it.
    ///
    /// # Errors
    /// [`Trouble`]; it may then have been set all the same.
    fn write(&mut self, at: &At, value: &str) -> Result<(), Trouble>;

    /// Whether anybody at all may set it: the kernel takes the right to write from files that it alone decides on, as the
    /// affinity of interrupts that it manages.
    fn settable(&self, at: &At) -> bool;

    /// Names in a directory, in order; none if there is no such directory.
    fn list(&self, directory: &str) -> Vec<String>;

    /// Last part of what a symbolic link points to.
    fn link(&self, path: &str) -> Option<String>;

    /// The value of a file, where it has one.
    fn file(&self, path: &str) -> Option<String> {
        self.read(&At::File(path.to_owned())).ok()
    }
}
