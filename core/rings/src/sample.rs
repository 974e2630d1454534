//! A sample of what the kernel sends for a socket: the start of one frame. A BPF program at tc egress
//! (`stack/bpf/bpf/lease.c`, which has the same layout) copies it on request.
//!
//! One thread at a time requests a sample, sends a datagram through the kernel, and reads what was copied
//! meanwhile. A frame that another thread sends for the same socket may be copied instead, so the requesting thread
//! must check the frame's peer. Without a request, a frame costs the program one look at a word that is the same
//! for all sockets.
#![allow(unsafe_code, reason = "samples lie in memory mapped from the kernel, whose program writes it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twinpath_frame::Mapping;

use crate::direct::BadLayout;
use crate::layouts::sample::{ASKED_AT, HEAD_AT, LEN_AT as FRAME_LEN_AT, STATE_AT};
// While it is being written, a sample is the program's.
use crate::layouts::{self, SAMPLE_ASKED as ASKED, SAMPLE_NONE as NONE, SAMPLE_WRITTEN as WRITTEN};

/// Bytes of a sample in the map.
pub const SAMPLE_LEN: usize = layouts::sample::LEN;
/// Bytes of the frame in it: Ethernet, IPv6 and UDP headers, and two more.
pub const HEAD_LEN: usize = layouts::SAMPLE_LEN;

/// The start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its first bytes, as many as the frame has.
    pub bytes: [u8; HEAD_LEN],
    /// Bytes of the whole frame.
    pub frame_len: u32,
}

/// One socket's sample.
#[derive(Debug)]
pub struct Sample {
    samples: Arc<Mapping>,
    at: usize,
}

impl Sample {
    /// The sample with this number, in the mapping of all samples.
    ///
    /// # Errors
    /// [`BadLayout`]: the mapping does not reach as far.
    pub fn new(samples: Arc<Mapping>, number: u32) -> Result<Self, BadLayout> {
        let at = (number as usize).checked_mul(SAMPLE_LEN).ok_or(BadLayout)?;
        let fits = at.checked_add(SAMPLE_LEN).is_some_and(|end| end <= samples.len());
        if fits { Ok(Self { samples, at }) } else { Err(BadLayout) }
    }

    /// Calls `send`, and returns its result with the start of a frame that the kernel sent for the socket
    /// meanwhile, if the program could copy one. Must not be called again within `send`.
    pub fn of<R>(&mut self, send: impl FnOnce() -> R) -> (R, Option<Head>) {
        let state = self.word(self.at + STATE_AT);
        // A delayed program may still be writing the last sample. It is not waited for.
        let free = |found| matches!(found, NONE | WRITTEN).then_some(ASKED);
        if state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, free).is_err() {
            return (send(), None);
        }
        self.word(ASKED_AT).fetch_add(1, Ordering::SeqCst);
        let result = send();
        self.word(ASKED_AT).fetch_sub(1, Ordering::SeqCst);
        let found = state.compare_exchange(ASKED, NONE, Ordering::Acquire, Ordering::Acquire);
        (result, (found == Err(WRITTEN)).then(|| self.read()))
    }

    fn read(&self) -> Head {
        let mut bytes = [0; HEAD_LEN];
        for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = self.long_word(self.at + HEAD_AT + 8 * at).load(Ordering::Relaxed).to_ne_bytes();
        }
        Head { bytes, frame_len: self.word(self.at + FRAME_LEN_AT).load(Ordering::Relaxed) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4) && at + 4 <= self.samples.len());
        // SAFETY: `new` checked that the mapping holds this sample, and the first one; aligned to four. A 32-bit atomic takes any
        // bits, and both sides use only atomics or helpers of the kernel while the other may look.
        unsafe { self.samples.base().add(at).cast::<AtomicU32>().as_ref() }
    }

    fn long_word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.samples.len());
        // SAFETY: as above, aligned to eight.
        unsafe { self.samples.base().add(at).cast::<AtomicU64>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> (Arc<Mapping>, Sample) {
        let (mapping, _) = Mapping::of_memfd("samples", 4096).expect("memory");
        let mapping = Arc::new(mapping);
        let sample = Sample::new(Arc::clone(&mapping), 3).expect("it fits");
        (mapping, sample)
    }

    /// Does what the program does with a frame.
    fn write(sample: &Sample, bytes: &[u8], frame_len: u32) -> bool {
        if sample.word(ASKED_AT).load(Ordering::SeqCst) == 0
            || sample.word(sample.at).load(Ordering::SeqCst) != ASKED
        {
            return false;
        }
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sample.long_word(sample.at + HEAD_AT + 8 * at).store(u64::from_ne_bytes(word), Ordering::SeqCst);
        }
        sample.word(sample.at + FRAME_LEN_AT).store(frame_len, Ordering::SeqCst);
        sample.word(sample.at).store(WRITTEN, Ordering::SeqCst);
        true
    }

    #[test]
    fn what_is_sent_while_somebody_asks_is_copied_once() {
        let (mapping, mut sample) = samples();
        let program = Sample::new(mapping, 3).expect("it fits");
        assert!(!write(&program, b"too early", 60));
        assert_eq!(sample.of(|| 5), (5, None));
        let (wrote, head) = sample.of(|| [write(&program, b"first", 60), write(&program, b"second", 70)]);
        assert_eq!(wrote, [true, false]);
        let head = head.expect("a sample");
        assert_eq!((&head.bytes[..6], head.frame_len), (&b"first\0"[..], 60));
        assert!(!write(&program, b"too late", 60));
        let (_, head) = sample.of(|| write(&program, &[7; HEAD_LEN], 1514));
        assert_eq!(head, Some(Head { bytes: [7; HEAD_LEN], frame_len: 1514 }));
    }

    #[test]
    fn a_program_that_is_held_up_is_not_waited_for() {
        let (_mapping, mut sample) = samples();
        let (_, head) = sample.of(|| ());
        assert_eq!(head, None);
        sample.word(sample.at).store(2, Ordering::SeqCst);
        assert_eq!(sample.of(|| ()), ((), None));
        // The write is done now, but its copy is no longer needed.
        sample.word(sample.at).store(WRITTEN, Ordering::SeqCst);
        assert_eq!(sample.of(|| ()), ((), None));
        assert_eq!(sample.word(ASKED_AT).load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_mapping_that_is_too_short_is_refused() {
        let (mapping, _) = samples();
        assert_eq!(Sample::new(Arc::clone(&mapping), 31).map(|_| ()), Ok(()));
        assert_eq!(Sample::new(mapping, 32).map(|_| ()), Err(BadLayout));
    }
}
