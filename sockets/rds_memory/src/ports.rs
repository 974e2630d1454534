//! Which ports of which hosts are congested. The daemon writes it, and programs read it at each send, without a system call.
#![allow(
    unsafe_code,
    reason = "memory that two processes share is read and written by atomics, through its address"
)]

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fstat, ftruncate, memfd_create, open,
};
use rustix::io::Errno;
use twinpath_frame::Mapping;
use twinpath_rds_wire::{CongestionMap, MAP_LEN};

/// Hosts of which there are maps; those beyond have none, and the daemon lets programs wait instead.
pub const HOSTS_MAX: usize = 256;
/// Places that are looked at for a host.
const PROBES: usize = 16;
/// An address in two words, and whether the place is used.
const HEAD_LEN: usize = 24;
const LEN: usize = HOSTS_MAX * (HEAD_LEN + MAP_LEN);

/// What the daemon writes.
#[derive(Debug)]
pub struct PortMaps {
    memory: Memory,
    fd: OwnedFd,
    read_only: OwnedFd,
}

/// What a program reads.
#[derive(Debug)]
pub struct PortMapsView(Memory);

#[derive(Debug)]
struct Memory(Mapping);

impl PortMaps {
    /// Memory without a host. Others can map it to read it only.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn new() -> Result<Self, Errno> {
        let fd = memfd_create("twinpath-rds-ports", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, LEN as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        // A program of another user cannot open it anew to write.
        fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        Self::of_fd(fd)
    }

    /// The memory of a former process.
    ///
    /// # Errors
    /// `EINVAL`: it has another length. What the kernel returns.
    pub fn of_fd(fd: OwnedFd) -> Result<Self, Errno> {
        if usize::try_from(fstat(&fd)?.st_size) != Ok(LEN) {
            return Err(Errno::INVAL);
        }
        let memory = Memory(Mapping::sparse(&fd, LEN)?);
        let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let read_only = open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { memory, fd, read_only })
    }

    /// What programs map, to read it.
    #[must_use]
    pub fn read_only(&self) -> BorrowedFd<'_> {
        self.read_only.as_fd()
    }

    /// What keeps it alive.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// No port is congested, as far as is known now.
    pub fn clear(&self) {
        for place in 0..HOSTS_MAX {
            if self.memory.head(place)[0].load(Ordering::Acquire) != 0 {
                (0..MAP_LEN).for_each(|number| self.memory.byte(place, number).store(0, Ordering::Relaxed));
            }
        }
    }

    /// Writes which ports of a host are congested. A host beyond [`HOSTS_MAX`] is left out.
    pub fn set(&self, host: IpAddr, ports: &CongestionMap) {
        let takes = ports.as_bytes().iter().any(|byte| *byte != 0);
        let Some(place) = self.memory.place(host, takes) else { return };
        for (number, byte) in ports.as_bytes().iter().enumerate() {
            let shared = self.memory.byte(place, number);
            if shared.load(Ordering::Relaxed) != *byte {
                shared.store(*byte, Ordering::Relaxed);
            }
        }
    }
}

impl PortMapsView {
    /// Maps what a daemon has passed.
    ///
    /// # Errors
    /// `EINVAL`: it has another length. What `mmap(2)` returns.
    pub fn of_fd(fd: impl AsFd) -> Result<Self, Errno> {
        if usize::try_from(fstat(&fd)?.st_size) != Ok(LEN) {
            return Err(Errno::INVAL);
        }
        Ok(Self(Memory(Mapping::read_only(fd, LEN)?)))
    }

    /// Whether a port is congested, as far as the daemon knows.
    #[must_use]
    pub fn is_congested(&self, host: IpAddr, port: u16) -> bool {
        let byte = |place| self.0.byte(place, usize::from(port / 8)).load(Ordering::Relaxed);
        self.0.place(host, false).is_some_and(|place| byte(place) & 1 << (port % 8) != 0)
    }
}

impl Memory {
    /// The place of a host, which is taken if `takes`.
    fn place(&self, host: IpAddr, takes: bool) -> Option<usize> {
        let address = match host {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let (high, low) = ((address.to_bits() >> 64) as u64, address.to_bits() as u64);
        // The multiplier of Fibonacci hashing (Knuth, volume 3, 6.4).
        let first = ((high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        for step in 0..PROBES {
            let place = (first + step) % HOSTS_MAX;
            let [used, of_high, of_low] = self.head(place);
            if used.load(Ordering::Acquire) == 0 {
                if !takes {
                    return None;
                }
                of_high.store(high, Ordering::Relaxed);
                of_low.store(low, Ordering::Relaxed);
                used.store(1, Ordering::Release);
                return Some(place);
            }
            if (of_high.load(Ordering::Relaxed), of_low.load(Ordering::Relaxed)) == (high, low) {
                return Some(place);
            }
        }
        None
    }

    fn head(&self, place: usize) -> [&AtomicU64; 3] {
        assert!(place < HOSTS_MAX);
        [0, 1, 2].map(|word| {
            // SAFETY: the memory is LEN bytes long and lives as long as `self`; the address is aligned, as the mapping is
            // and all lengths before it are multiples of 8. All access is atomic, and a reader only loads.
            unsafe { self.0.base().add(place * HEAD_LEN + word * 8).cast::<AtomicU64>().as_ref() }
        })
    }

    fn byte(&self, place: usize, number: usize) -> &AtomicU8 {
        assert!(place < HOSTS_MAX && number < MAP_LEN);
        // SAFETY: as above; a byte needs no alignment.
        unsafe {
            self.0.base().add(HOSTS_MAX * HEAD_LEN + place * MAP_LEN + number).cast::<AtomicU8>().as_ref()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_what_the_daemon_writes_and_cannot_write_it() {
        let maps = PortMaps::new().unwrap();
        let view = PortMapsView::of_fd(maps.read_only()).unwrap();
        let host: IpAddr = [10, 0, 0, 2].into();
        assert!(!view.is_congested(host, 7));
        let mut ports = CongestionMap::default();
        ports.set(7, true);
        maps.set(host, &ports);
        assert!(view.is_congested(host, 7) && !view.is_congested(host, 8));
        assert!(!view.is_congested("fd00::2".parse().unwrap(), 7));
        ports.set(7, false);
        maps.set(host, &ports);
        assert!(!view.is_congested(host, 7));
        assert_eq!(Mapping::with_children(maps.read_only(), LEN, 0).err(), Some(Errno::ACCESS));
        // The next daemon goes on with the memory that programs have.
        let next = PortMaps::of_fd(maps.fd().try_clone_to_owned().unwrap()).unwrap();
        ports.set(9, true);
        next.set(host, &ports);
        assert!(view.is_congested(host, 9));
        next.clear();
        assert!(!view.is_congested(host, 9));
    }

    #[test]
    fn hosts_beyond_the_room_have_no_map() {
        let maps = PortMaps::new().unwrap();
        let view = PortMapsView::of_fd(maps.read_only()).unwrap();
        let mut ports = CongestionMap::default();
        ports.set(1, true);
        let hosts = (0..1000_u32).map(|number| IpAddr::from(number.to_be_bytes()));
        hosts.clone().for_each(|host| maps.set(host, &ports));
        let known = hosts.filter(|host| view.is_congested(*host, 1)).count();
        assert!((200..=HOSTS_MAX).contains(&known), "{known}");
    }
}
