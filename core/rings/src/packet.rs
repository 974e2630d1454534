//! The receive ring of an AF_PACKET socket, version 2 (include/uapi/linux/if_packet.h;
//! Documentation/networking/packet_mmap.rst).
//!
//! Version 2 hands over each frame as it comes. Version 3 hands over blocks on a timer, which would cost a
//! millisecond of latency.
#![allow(
    unsafe_code,
    reason = "slots lie in memory mapped from the kernel, which owns them until their status says so"
)]

use std::ptr::NonNull;
use std::slice;

use twinpath_frame::Mapping;

use crate::sync::{AtomicU32, Ordering};

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_LOSING: u32 = 1 << 2;
const STATUS_CHECKSUM_NOT_READY: u32 = 1 << 3;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const STATUS_CHECKSUM_VALID: u32 = 1 << 7;

/// Bytes of the header at the start of a slot (`struct tpacket2_hdr`), aligned. A `sockaddr_ll` follows.
const HEADER_LEN: usize = 32;

/// Where the index of the interface is in a `sockaddr_ll`.
const IFINDEX_AT: usize = 4;

/// `struct tpacket2_hdr` behind its status word.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SlotHeader {
    len: u32,
    captured_len: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanos: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

/// A received frame, still in the ring.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The bytes, from the Ethernet header; shorter than `len` if the slot was too small for the frame.
    pub bytes: &'a [u8],
    /// Length of the frame on the wire.
    pub len: usize,
    /// Whether the sender left the transport checksum to hardware.
    pub checksum_not_ready: bool,
    /// When the kernel received the frame, ns of its `CLOCK_REALTIME`.
    pub stamp_ns: u64,
    /// Whether the kernel has verified the transport checksum.
    pub checksum_valid: bool,
    /// TCI of a tag that is not in the bytes.
    pub vlan_tci: Option<u16>,
    /// The tag's protocol, host order, if the kernel says it.
    pub vlan_tpid: Option<u16>,
    /// Whether the slot was too small for the frame, and the whole frame is in the socket's queue instead
    /// (PACKET_COPY_THRESH). The frames there are in the order of their slots.
    pub is_in_queue: bool,
    /// Whether frames were lost before this one because the ring was full.
    pub losing: bool,
    /// The bytes between the slot's header and the frame.
    between: &'a [u8],
}

impl<'a> Slot<'a> {
    /// Kernel index of the interface on which the frame arrived.
    #[inline]
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        let bytes = self.between.get(IFINDEX_AT..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The last `N` bytes in front of the frame: the virtio-net header, if the socket has PACKET_VNET_HDR.
    #[inline]
    #[must_use]
    pub fn in_front<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.between.last_chunk()
    }
}

/// The ring: a number of slots of equal length.
#[derive(Debug)]
pub struct PacketRing {
    mapping: Mapping,
    slot_len: usize,
    slots: usize,
    next: usize,
}

/// The sizes do not fit the mapping, or a slot cannot hold a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl PacketRing {
    /// # Errors
    /// [`BadLayout`].
    pub fn new(mapping: Mapping, slot_len: usize, slots: usize) -> Result<Self, BadLayout> {
        let fits = slot_len.checked_mul(slots).is_some_and(|bytes| bytes <= mapping.len() && bytes > 0);
        if !fits || slot_len < 2 * HEADER_LEN || !slot_len.is_multiple_of(16) {
            return Err(BadLayout);
        }
        Ok(Self { mapping, slot_len, slots, next: 0 })
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.slots);
        // SAFETY: `new` checked that all slots lie in the mapping.
        unsafe { self.mapping.base().add(index * self.slot_len) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot starts with its status word, aligned to 16; a 32-bit atomic takes any bits.
        unsafe { self.slot(index).cast::<AtomicU32>().as_ref() }
    }

    /// Prefetches slots ahead of the next ones. The kernel usually wrote them on another CPU, and they are too far
    /// apart for the hardware prefetcher.
    #[inline]
    fn fetch_ahead(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

            /// How many slots ahead, and how many lines of each slot: header, address and a short frame.
            const FETCH_AHEAD: usize = 2;
            const FETCH_LINES: usize = 3;
            let index = self.next + FETCH_AHEAD;
            let base = self.slot(if index < self.slots { index } else { index % self.slots }).as_ptr();
            for line in 0..FETCH_LINES {
                // SAFETY: fetching changes nothing, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(base.wrapping_add(line * 64).cast()) };
            }
        }
    }

    /// Whether a frame is waiting.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & STATUS_USER != 0
    }

    /// Whether one of the next `slots` slots holds a frame. It may be behind slots that other CPUs took earlier and
    /// are still writing.
    #[must_use]
    pub fn look_ahead(&self, slots: usize) -> bool {
        (0..slots.min(self.slots)).any(|ahead| {
            let status = self.status((self.next + ahead) % self.slots).load(Ordering::Acquire);
            status & STATUS_USER != 0
        })
    }

    /// Passes the oldest frame to `see`, which must copy what it needs, then gives the slot back to the kernel. A
    /// slot that is not given back would keep `poll(2)` readable. `None` if no frame is waiting.
    #[inline]
    pub fn take<R>(&mut self, see: impl FnOnce(Slot<'_>) -> R) -> Option<R> {
        // Acquire: the kernel wrote the slot before its status (`__packet_set_status`, net/packet/af_packet.c).
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        self.fetch_ahead();
        let result = see(self.read(self.next, status));
        // Release: our reads are done before the kernel may write again.
        self.status(self.next).store(STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
        Some(result)
    }

    /// As [`Self::take`], but leaves the frame there.
    pub fn peek<R>(&self, see: impl FnOnce(Slot<'_>) -> R) -> Option<R> {
        let status = self.status(self.next).load(Ordering::Acquire);
        (status & STATUS_USER != 0).then(|| see(self.read(self.next, status)))
    }

    /// Whether some frame in the ring is such a one. Ends where more than `gap` slots in a row hold no frame: as many may be
    /// taken by other CPUs that are still writing them.
    #[must_use]
    pub fn has(&self, gap: usize, is_such: impl Fn(&Slot<'_>) -> bool) -> bool {
        let mut empty = 0;
        for ahead in 0..self.slots {
            let place = (self.next + ahead) % self.slots;
            let status = self.status(place).load(Ordering::Acquire);
            if status & STATUS_USER == 0 {
                empty += 1;
                if empty > gap {
                    return false;
                }
                continue;
            }
            if is_such(&self.read(place, status)) {
                return true;
            }
            empty = 0;
        }
        false
    }

    /// A slot that the kernel has filled and given this status.
    #[inline(always)]
    fn read(&self, place: usize, status: u32) -> Slot<'_> {
        let base = self.slot(place);
        // SAFETY: the slot is ours until we set its status; the header follows the status word, and any bits are a value.
        let header = unsafe { base.add(size_of::<u32>()).cast::<SlotHeader>().read() };
        // The kernel's offsets are clamped to the slot before they are used.
        let start = usize::from(header.mac).clamp(HEADER_LEN, self.slot_len);
        let captured = (header.captured_len as usize).min(self.slot_len - start);
        // SAFETY: start + captured <= slot_len, so the bytes lie in this slot, which the kernel does not touch now.
        let bytes = unsafe { slice::from_raw_parts(base.add(start).as_ptr(), captured) };
        // SAFETY: as for `bytes`; HEADER_LEN <= start.
        let between = unsafe { slice::from_raw_parts(base.add(HEADER_LEN).as_ptr(), start - HEADER_LEN) };
        let tag_of = |flag: u32, field: u16| (status & flag != 0).then_some(field);
        Slot {
            bytes,
            between,
            len: header.len as usize,
            stamp_ns: u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanos),
            checksum_not_ready: status & STATUS_CHECKSUM_NOT_READY != 0,
            checksum_valid: status & STATUS_CHECKSUM_VALID != 0,
            vlan_tci: tag_of(STATUS_VLAN_VALID, header.vlan_tci),
            vlan_tpid: tag_of(STATUS_VLAN_TPID_VALID, header.vlan_tpid),
            is_in_queue: status & STATUS_COPY != 0,
            losing: status & STATUS_LOSING != 0,
        }
    }

    /// Bytes of ring memory.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapping.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a frame as the kernel does: bytes, header, then status.
    fn deliver(ring: &PacketRing, index: usize, status: u32, header: SlotHeader, bytes: &[u8]) {
        let base = ring.slot(index);
        // SAFETY: the test writes within one slot, and nobody reads it before the status is set.
        unsafe {
            base.add(size_of::<u32>()).cast::<SlotHeader>().write(header);
            let at = usize::from(header.mac).min(ring.slot_len - bytes.len());
            base.add(at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        ring.status(index).store(status, Ordering::Release);
    }

    fn ring(slots: usize) -> PacketRing {
        PacketRing::new(Mapping::of_memfd("ring-test", 4096).expect("memory").0, 256, slots).expect("layout")
    }

    fn header(len: u32, captured_len: u32, mac: u16) -> SlotHeader {
        SlotHeader {
            len,
            captured_len,
            mac,
            net: 0,
            seconds: 0,
            nanos: 0,
            vlan_tci: 5,
            vlan_tpid: 0,
            padding: [0; 4],
        }
    }

    #[test]
    fn frames_come_in_order_and_slots_go_back() {
        let mut ring = ring(2);
        assert!(!ring.look());
        assert!(ring.take(|_| ()).is_none());
        for round in 0..5u8 {
            let index = usize::from(round) % 2;
            deliver(&ring, index, STATUS_USER | STATUS_VLAN_VALID, header(3, 3, 80), &[round, 1, 2]);
            assert!(ring.look());
            assert_eq!(ring.peek(|slot| slot.bytes[0]), Some(round));
            let seen = ring.take(|slot| (slot.bytes.to_vec(), slot.vlan_tci, slot.checksum_not_ready));
            assert_eq!(seen, Some((vec![round, 1, 2], Some(5), false)));
            assert_eq!(ring.status(index).load(Ordering::Relaxed), STATUS_KERNEL);
            assert!(ring.peek(|_| ()).is_none());
        }
    }

    #[test]
    fn a_frame_is_found_behind_slots_that_are_being_written() {
        let mut ring = ring(8);
        let is_seven = |slot: &Slot<'_>| slot.bytes == [7];
        for index in [0, 1, 4] {
            deliver(&ring, index, STATUS_USER, header(1, 1, 80), &[if index == 4 { 7 } else { 1 }]);
        }
        assert!(ring.take(|_| ()).is_some());
        assert!(ring.has(2, is_seven) && !ring.has(1, is_seven) && !ring.has(2, |slot| slot.bytes == [8]));
        assert!(ring.take(|_| ()).is_some());
        assert!(ring.has(2, is_seven) && !ring.has(0, |_| true));
    }

    #[test]
    fn a_slot_says_where_its_frame_arrived_and_what_is_in_front_of_it() {
        let mut ring = ring(1);
        let base = ring.slot(0);
        let address: Vec<u8> = (0..20).chain(100..110).collect();
        // SAFETY: the test writes within one slot, and nobody reads it before the status is set.
        unsafe { base.add(HEADER_LEN).copy_from_nonoverlapping(NonNull::from(&address[..]).cast(), 30) };
        let status = STATUS_USER | STATUS_COPY | STATUS_VLAN_TPID_VALID;
        let header = SlotHeader { vlan_tpid: 0x88a8, ..header(70_000, 3, 62) };
        deliver(&ring, 0, status, header, &[7, 8, 9]);
        let seen = ring.take(|slot| {
            let in_front: Option<&[u8; 10]> = slot.in_front();
            assert_eq!(in_front.map(|bytes| bytes[0]), Some(100));
            assert!(slot.in_front::<40>().is_none());
            (slot.ifindex(), slot.is_in_queue, slot.vlan_tci, slot.vlan_tpid, slot.bytes.to_vec())
        });
        let ifindex = u32::from_ne_bytes([4, 5, 6, 7]);
        assert_eq!(seen, Some((ifindex, true, None, Some(0x88a8), vec![7, 8, 9])));
        // A slot without room for an address.
        deliver(&ring, 0, STATUS_USER, self::header(3, 3, 0), &[]);
        assert_eq!(ring.take(|slot| slot.ifindex()), Some(0));
    }

    #[test]
    fn offsets_beyond_the_slot_are_bounded() {
        let mut ring = ring(1);
        deliver(&ring, 0, STATUS_USER | STATUS_CHECKSUM_NOT_READY, header(9000, u32::MAX, u16::MAX), &[]);
        let seen = ring.take(|slot| (slot.bytes.len(), slot.len, slot.checksum_not_ready, slot.vlan_tci));
        assert_eq!(seen, Some((0, 9000, true, None)));
        deliver(&ring, 0, STATUS_USER, header(9000, u32::MAX, 0), &[]);
        assert_eq!(ring.take(|slot| slot.bytes.len()), Some(256 - HEADER_LEN));
    }

    #[test]
    fn a_layout_beyond_the_mapping_is_refused() {
        let map = || Mapping::of_memfd("ring-test", 4096).expect("memory").0;
        assert!(PacketRing::new(map(), 256, 17).is_err());
        assert!(PacketRing::new(map(), 0, 17).is_err());
        assert!(PacketRing::new(map(), 100, 2).is_err());
        assert!(PacketRing::new(map(), usize::MAX, 2).is_err());
    }
}
