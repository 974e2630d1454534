//! The machine we run on; or a directory that looks like one.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::io::Errno;
use twinpath_sys::mounts;

use super::genl::Genl;
use super::napi::{self, Parameter};
use super::system::{At, System, Trouble};

/// A machine, by its /sys and /proc.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    /// What stands for /sys, where the one below `root` shows another network namespace.
    own_sys: Option<OwnedFd>,
    /// A copy has no netlink.
    netlink: bool,
}

/// Why the machine cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// /sys belongs to another network namespace.
    #[error(
        "/sys shows another network namespace than this one ({0}): enter with `ip netns exec`, which mounts its own, \
         or run as root"
    )]
    OtherNamespace(mounts::MountError),
}

impl Host {
    /// This machine, as `interface` is seen from the network namespace that the calling thread is in.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(interface: Option<&str>) -> Result<Self, HostError> {
        let mut host = Self { root: PathBuf::from("/"), own_sys: None, netlink: true };
        // Entering a namespace leaves /sys as it was; loopback is in each, with index 1 in all: so the interface tells.
        let index = |name: &str| rustix::net::netdevice::name_to_index(socket().ok()?, name).ok();
        let told = |name: &str| host.file(&format!("sys/class/net/{name}/ifindex"))?.parse().ok();
        let other = |name: &String| index(name) != told(name);
        let names = host.list("sys/class/net");
        if names.iter().any(&other) || interface.is_some_and(|name| other(&name.to_owned())) {
            host.own_sys = Some(mounts::own_sysfs().map_err(HostError::OtherNamespace)?);
        }
        Ok(host)
    }

    /// A directory with `sys` and `proc` in it.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), own_sys: None, netlink: false }
    }

    fn path(&self, path: &str) -> PathBuf {
        match (&self.own_sys, path.strip_prefix("sys/")) {
            (Some(sys), Some(path)) => PathBuf::from(format!("/proc/self/fd/{}", sys.as_raw_fd())).join(path),
            _ => self.root.join(path),
        }
    }

    fn netlink(&self) -> Result<Genl, Trouble> {
        if self.netlink {
            Genl::new().map_err(|error| Trouble::of_read(&error))
        } else {
            Err(Trouble::Absent)
        }
    }

    /// Of the device and its instances; an older kernel tells of no instances, a device that is down has none.
    fn napi(&self, interface: &str, ifindex: u32, parameter: Parameter) -> Result<String, Trouble> {
        let device = parameter.file().map(|file| self.read(&device_file(interface, file))).transpose();
        let device = match device {
            Err(Trouble::Absent) => None,
            device => device?,
        };
        let instances = self.instances(ifindex, parameter)?;
        let each: Vec<u64> = instances.iter().map(|(_, value)| *value).collect();
        napi::text(device.as_deref(), &each).ok_or(Trouble::Absent)
    }

    fn set_napi(
        &mut self,
        interface: &str,
        ifindex: u32,
        parameter: Parameter,
        wanted: &str,
    ) -> Result<(), Trouble> {
        let count = self.instances(ifindex, parameter)?.len();
        let unfit = || Trouble::Refused(format!("{wanted:?} does not fit {count} NAPI instances"));
        let (device, each) = napi::values(wanted, count).ok_or_else(unfit)?;
        if let Some(file) = parameter.file() {
            self.write(&device_file(interface, file), device)?;
        }
        // The device's has just set them all: most are as they should be.
        let instances = self.instances(ifindex, parameter)?;
        let differ = instances.into_iter().zip(each).filter(|((_, is), wanted)| is != wanted);
        let differ: Vec<(u32, u64)> = differ.map(|((id, _), wanted)| (id, wanted)).collect();
        if differ.is_empty() { Ok(()) } else { self.netlink()?.set_napis(&differ, parameter) }
    }

    fn instances(&self, ifindex: u32, parameter: Parameter) -> Result<Vec<(u32, u64)>, Trouble> {
        match self.netlink().and_then(|netlink| netlink.napis(ifindex, parameter)) {
            Err(Trouble::Absent) => Ok(Vec::new()),
            instances => instances,
        }
    }
}

fn device_file(interface: &str, file: &str) -> At {
    At::File(format!("sys/class/net/{interface}/{file}"))
}

fn socket() -> rustix::io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

impl System for Host {
    fn read(&self, at: &At) -> Result<String, Trouble> {
        match at {
            At::File(path) => std::fs::read_to_string(self.path(path))
                .map(|text| text.trim().to_owned())
                .map_err(|error| Trouble::of_read(&error)),
            At::Coalescing { interface } => self.netlink()?.coalescing(interface),
            At::Napi { interface, ifindex, parameter } => self.napi(interface, *ifindex, *parameter),
        }
    }

    fn write(&mut self, at: &At, value: &str) -> Result<(), Trouble> {
        match at {
            At::File(path) => write(&self.path(path), value).map_err(|error| {
                match (path.starts_with("proc/irq/"), Errno::from_io_error(&error)) {
                    (true, Some(Errno::IO)) => {
                        Trouble::Refused("the kernel chooses this interrupt's CPU itself".to_owned())
                    }
                    (true, Some(Errno::NOSPC)) => {
                        Trouble::Refused("that CPU has no room for another interrupt".to_owned())
                    }
                    _ => Trouble::of_write(&error),
                }
            }),
            At::Coalescing { interface } => self.netlink()?.set_coalescing(interface, value),
            At::Napi { interface, ifindex, parameter } => {
                self.set_napi(interface, *ifindex, *parameter, value)
            }
        }
    }

    fn settable(&self, at: &At) -> bool {
        use std::os::unix::fs::PermissionsExt as _;
        let At::File(path) = at else { return true };
        std::fs::metadata(self.path(path)).is_ok_and(|file| file.permissions().mode() & 0o222 != 0)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(directory)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// One `write(2)` of the whole value to a file that is there: a file of the kernel's takes it or refuses it.
fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write as _;
    std::fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}
