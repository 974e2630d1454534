//! Maps that are made separately from an object, to be put into its maps of maps.
#![allow(unsafe_code, reason = "bpf(2) takes a pointer, and returns a descriptor as a number")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use aya::maps::MapData;

use crate::SteerError;
use crate::maps::failed;

/// BPF_MAP_CREATE, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF, BPF_F_NO_PREALLOC, BPF_F_MMAPABLE and
/// BPF_F_INNER_MAP of linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const HASH: u32 = 1;
const NO_PREALLOC: u32 = 1;
const ARRAY: u32 = 2;
const RING: u32 = 27;
const FLAGS: u32 = 1 << 10 | 1 << 12;

/// Makes an array that can be mapped, and put into a map of maps whose template has a different number of elements.
pub(crate) fn array(name: &'static str, value_len: u32, count: u32) -> Result<MapData, SteerError> {
    let made = made(
        name,
        MapCreate { map_type: ARRAY, key_len: 4, value_len, count, flags: FLAGS, ..MapCreate::default() },
    );
    data_of(name, made?)
}

/// Makes a hash table that takes memory as it fills.
pub(crate) fn hash(
    name: &'static str,
    key_len: u32,
    value_len: u32,
    count: u32,
) -> Result<MapData, SteerError> {
    let flags = NO_PREALLOC;
    let create = MapCreate { map_type: HASH, key_len, value_len, count, flags, ..MapCreate::default() };
    data_of(name, made(name, create)?)
}

/// Makes a ring of `bytes` bytes, a power of two and a multiple of the page size; returns two handles of it.
pub(crate) fn ring(name: &'static str, bytes: u32) -> Result<[MapData; 2], SteerError> {
    let made = made(name, MapCreate { map_type: RING, count: bytes, ..MapCreate::default() })?;
    let again = made.try_clone().map_err(|error| failed(name, "making", error))?;
    Ok([data_of(name, made)?, data_of(name, again)?])
}

fn made(name: &'static str, mut create: MapCreate) -> Result<OwnedFd, SteerError> {
    // The name under which tools list it. The last byte stays 0.
    create.name.iter_mut().zip(name.bytes().take(15)).for_each(|(to, byte)| *to = byte);
    // SAFETY: the kernel reads `size` bytes at the pointer, which is to a value of that size and lives until the call returns.
    let made = unsafe { libc::syscall(libc::SYS_bpf, MAP_CREATE, &raw const create, size_of::<MapCreate>()) };
    let made = i32::try_from(made).ok().filter(|descriptor| *descriptor >= 0);
    let made = made.ok_or_else(|| failed(name, "making", io::Error::last_os_error()))?;
    // SAFETY: the kernel has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn data_of(name: &'static str, made: OwnedFd) -> Result<MapData, SteerError> {
    MapData::from_fd(made).map_err(|error| SteerError::Map {
        map: name,
        action: "making",
        error: Box::new(error),
    })
}

/// The part of `union bpf_attr` for BPF_MAP_CREATE that these maps need, and further fields because valgrind looks
/// at them.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_len: u32,
    value_len: u32,
    count: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
}
