//! The ethtool ioctl: an interface's driver, firmware and bus, and switching its offloads. /sys is not used,
//! because it shows the devices of the network namespace in which it was mounted, which may not be ours.

#![allow(unsafe_code, reason = "one ioctl with structs of fixed size")]

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// linux/ethtool.h
const ETHTOOL_GSET: u32 = 0x1;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SGRO: u32 = 0x2c;
/// `ETH_FLAG_RXVLAN`.
const FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rest: [u8; 64],
}

const _: () = assert!(size_of::<DriverInfo>() == 196, "the size of struct ethtool_drvinfo");

/// The driver of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Name of the driver.
    pub name: String,
    /// Version of the firmware; empty if there is none.
    pub firmware: String,
    /// Bus address; empty if there is none.
    pub bus: String,
}

impl Driver {
    /// Whether it drives a virtual function of SR-IOV. Unless the owner of the card trusts this function, the card
    /// passes it only frames for its own address.
    #[must_use]
    pub fn is_virtual_function(&self) -> bool {
        is_virtual_function(Path::new("/sys/bus/pci/devices"), &self.bus)
    }
}

/// The PCI core links a virtual function to the physical one (Documentation/ABI/testing/sysfs-bus-pci, `physfn`).
fn is_virtual_function(devices: &Path, bus: &str) -> bool {
    !bus.is_empty() && !bus.contains('/') && devices.join(bus).join("physfn").exists()
}

/// The driver of the interface `name` in the calling thread's network namespace. Needs no capability.
///
/// # Errors
/// ENODEV for no such interface, EOPNOTSUPP for one without a driver name.
pub fn driver(name: &str) -> io::Result<Driver> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        rest: [0; 64],
    };
    // SAFETY: for ETHTOOL_GDRVINFO the kernel writes one `struct ethtool_drvinfo`, which `info` is.
    unsafe { command(name, (&raw mut info).cast()) }?;
    Ok(Driver { name: text(&info.driver), firmware: text(&info.firmware), bus: text(&info.bus) })
}

/// `struct ethtool_cmd` of linux/ethtool.h. The kernel has a newer command with modes beyond these 32, but every
/// driver answers this one as well.
#[repr(C)]
#[derive(Default)]
struct LegacySettings {
    command: u32,
    supported: u32,
    advertised: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autonegotiates: u8,
    mdio: u8,
    max_packets: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    peer: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<LegacySettings>() == 44, "the size of struct ethtool_cmd");

/// Link settings of an interface. The modes are bits of `SUPPORTED_...` in linux/ethtool.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Supported modes.
    pub supported: u32,
    /// Modes advertised to the link partner.
    pub advertised: u32,
    /// Modes that the link partner advertises.
    pub peer: u32,
    /// Mbit/s; `None` if not known, for example without a link.
    pub speed_mbit_s: Option<u32>,
    /// Full duplex.
    pub is_full_duplex: bool,
    /// Its connector (`PORT_...` there).
    pub connector: u8,
    /// Autonegotiation is on.
    pub autonegotiates: bool,
}

/// The link settings of the interface `name` in the calling thread's network namespace. Needs no capability.
///
/// # Errors
/// ENODEV if there is no such interface, EOPNOTSUPP if it has no such settings.
pub fn link_settings(name: &str) -> io::Result<LinkSettings> {
    let mut own = LegacySettings { command: ETHTOOL_GSET, ..LegacySettings::default() };
    // SAFETY: for ETHTOOL_GSET the kernel writes one `struct ethtool_cmd`, which `own` is.
    unsafe { command(name, (&raw mut own).cast()) }?;
    let speed = u32::from(own.speed_high) << 16 | u32::from(own.speed);
    // SPEED_UNKNOWN, of 16 bits from some drivers.
    let is_known = ![0, 0xffff, u32::MAX].contains(&speed);
    Ok(LinkSettings {
        supported: own.supported,
        advertised: own.advertised,
        peer: own.peer,
        speed_mbit_s: is_known.then_some(speed),
        is_full_duplex: own.duplex == 1,
        connector: own.port,
        autonegotiates: own.autonegotiates == 1,
    })
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// An offload that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Transmit checksums, computed by the device.
    Checksum,
    /// TCP segmentation offload.
    Segmentation,
    /// Generic receive offload.
    Receive,
}

/// Switches an offload of the interface `name` of the calling thread's namespace. Needs CAP_NET_ADMIN.
///
/// # Errors
/// ENODEV for no such interface, EPERM without the capability.
pub fn set_offload(name: &str, offload: Offload, on: bool) -> io::Result<()> {
    let number = match offload {
        Offload::Checksum => ETHTOOL_STXCSUM,
        Offload::Segmentation => ETHTOOL_STSO,
        Offload::Receive => ETHTOOL_SGRO,
    };
    let mut value = Value { command: number, data: u32::from(on) };
    // SAFETY: for ETHTOOL_STXCSUM, ETHTOOL_STSO and ETHTOOL_SGRO the kernel reads one `struct ethtool_value`, which `value` is.
    unsafe { command(name, (&raw mut value).cast()) }
}

/// Whether the interface `name` of the calling thread's namespace strips the VLAN tags of received frames
/// (rx-vlan-offload). Needs no capability.
///
/// # Errors
/// ENODEV for no such interface.
pub fn takes_tags_off(name: &str) -> io::Result<bool> {
    let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
    // SAFETY: for ETHTOOL_GFLAGS the kernel writes one `struct ethtool_value`, which `value` is.
    unsafe { command(name, (&raw mut value).cast()) }?;
    Ok(value.data & FLAG_RXVLAN != 0)
}

/// Runs one ethtool command for an interface of the calling thread's namespace.
///
/// # Safety
/// `data` points to the live, writable struct of the command that its first field names.
unsafe fn command(name: &str, data: *mut libc::c_char) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte shorter than the field: the kernel expects a terminated name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from(rustix::io::Errno::NODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data;
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data points to a command, which the caller promises. Both live until the
    // call returns, which keeps neither.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The text up to the terminator; empty for `N/A`, which drivers use for a missing value.
fn text(field: &[u8; 32]) -> String {
    let length = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = String::from_utf8_lossy(&field[..length]).into_owned();
    if text == "N/A" { String::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_function_is_known_by_its_link_to_the_physical_one() {
        let devices = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(devices.path().join("0000:01:10.0/physfn")).unwrap();
        std::fs::create_dir_all(devices.path().join("0000:01:00.0")).unwrap();
        let is = |bus| is_virtual_function(devices.path(), bus);
        assert!(is("0000:01:10.0") && !is("0000:01:00.0") && !is("") && !is("../0000:01:10.0"));
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_driver() {
        assert_eq!(driver("tp-nonesuch").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(
            set_offload("tp-nonesuch", Offload::Receive, true).unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(link_settings("tp-nonesuch").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(takes_tags_off("tp-nonesuch").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(driver("").is_err());
        assert!(driver("a-name-longer-than-the-kernel-takes").is_err());
        assert!(driver("a\0b").is_err());
    }
}
