//! Access to the settings of the machine, or of a directory with copies of its files.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use twinpath_sys::mounts;

use super::device_netlink;
use super::napi;
use super::parameter::Parameter;
use super::qdisc;
use super::system::{At, System, Trouble};

/// Tries to open a file while other processes rename or mount something.
const TRIES: usize = 64;

/// A machine's /sys and /proc.
#[derive(Debug)]
pub struct Host {
    /// The root of /sys; none if it does not exist.
    sys: Option<OwnedFd>,
    /// The root of /proc.
    proc: Option<OwnedFd>,
    /// Whether netlink may be used; not with copies of files.
    netlink: bool,
}

/// An error in opening the machine.
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
    /// This machine, with `interface` as seen in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(interface: Option<&str>) -> Result<Self, HostError> {
        let mut host = Self { netlink: true, ..Self::at(Path::new("/")) };
        // Entering a namespace does not remount /sys. Loopback has index 1 in each of them, so the interface is
        // compared.
        let index = |name: &str| rustix::net::netdevice::name_to_index(socket().ok()?, name).ok();
        let told = |name: &str| host.file(&format!("sys/class/net/{name}/ifindex"))?.parse().ok();
        let other = |name: &String| index(name) != told(name);
        let names = host.list("sys/class/net");
        if names.iter().any(&other) || interface.is_some_and(|name| other(&name.to_owned())) {
            host.sys = Some(mounts::own_sysfs().map_err(HostError::OtherNamespace)?);
        }
        Ok(host)
    }

    /// A directory with `sys` and `proc` in it.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = |name: &str| rustix::fs::open(root.join(name), flags, Mode::empty()).ok();
        Self { sys: folder("sys"), proc: folder("proc"), netlink: false }
    }

    /// Opens a path. Links are followed, because /sys consists of them (/sys/class/net/eth0 is one), but never out of
    /// the /sys or /proc at the path's start, and never the magic links of /proc.
    fn open_at(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let (root, path) = match path.split_once('/').unwrap_or((path, "")) {
            ("sys", path) => (&self.sys, path),
            ("proc", path) => (&self.proc, path),
            _ => return Err(Errno::NOENT),
        };
        let root = root.as_ref().ok_or(Errno::NOENT)?;
        let path = if path.is_empty() { "." } else { path };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..TRIES {
            match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), within) {
                // Something was renamed or mounted meanwhile, so the kernel cannot resolve `..` safely (openat2(2)).
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), within)
    }

    /// Writes the whole value with one `write(2)` to an existing file: the kernel accepts or refuses it as a whole.
    fn put(&self, path: &str, value: &str) -> io::Result<()> {
        let file = self.open_at(path, OFlags::WRONLY | OFlags::TRUNC)?;
        File::from(file).write_all(value.as_bytes())
    }

    /// Refuses access if this is a directory with copies of files.
    fn needs_netlink(&self) -> Result<(), Trouble> {
        if self.netlink { Ok(()) } else { Err(Trouble::Absent) }
    }

    /// The value of the device and its instances. An older kernel reports no instances, and a device that is down has
    /// none.
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
        // Writing the device's value has just set all instances, so most have the right value.
        let instances = self.instances(ifindex, parameter)?;
        let differ = instances.into_iter().zip(each).filter(|((_, is), wanted)| is != wanted);
        let differ: Vec<(u32, u64)> = differ.map(|((id, _), wanted)| (id, wanted)).collect();
        if differ.is_empty() {
            return Ok(());
        }
        self.needs_netlink()?;
        device_netlink::set_napis(&differ, parameter)
    }

    fn instances(&self, ifindex: u32, parameter: Parameter) -> Result<Vec<(u32, u64)>, Trouble> {
        match self.needs_netlink().and_then(|()| device_netlink::napis(ifindex, parameter)) {
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
            At::File(path) => self
                .open_at(path, OFlags::RDONLY)
                .map_err(io::Error::from)
                .and_then(|file| io::read_to_string(File::from(file)))
                .map(|text| text.trim().to_owned())
                .map_err(|error| Trouble::of_read(&error)),
            At::Ethtool { interface, group } => {
                self.needs_netlink().and_then(|()| device_netlink::group(interface, *group))
            }
            At::Qdisc { ifindex } => self.needs_netlink().and_then(|()| qdisc::of(*ifindex)),
            At::Napi { interface, ifindex, parameter } => self.napi(interface, *ifindex, *parameter),
        }
    }

    fn write(&mut self, at: &At, value: &str) -> Result<(), Trouble> {
        match at {
            At::File(path) => self.put(path, value).map_err(|error| {
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
            At::Ethtool { interface, group } => {
                self.needs_netlink().and_then(|()| device_netlink::set_group(interface, *group, value))
            }
            At::Qdisc { .. } => {
                Err(Trouble::Refused("queueing disciplines are not set from here".to_owned()))
            }
            At::Napi { interface, ifindex, parameter } => {
                self.set_napi(interface, *ifindex, *parameter, value)
            }
        }
    }

    fn settable(&self, at: &At) -> bool {
        let At::File(path) = at else { return true };
        let mode = self.open_at(path, OFlags::PATH).and_then(|file| rustix::fs::fstat(&file));
        mode.is_ok_and(|file| file.st_mode & 0o222 != 0)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let opened = self.open_at(directory, OFlags::RDONLY | OFlags::DIRECTORY);
        let Ok(entries) = opened.and_then(Dir::new) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        let link = self.open_at(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        let target = target.to_string_lossy();
        target.rsplit('/').next().filter(|part| !part.is_empty()).map(str::to_owned)
    }
}
