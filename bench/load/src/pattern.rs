//! The requests of an echo load: the request number, then words derived from it and a seed, so that any wrong byte is
//! detected.

use crate::codec::{Answer, Codec, Cut, RequestId};
use crate::config::{LoadError, PAYLOAD_MAX, PAYLOAD_MIN};

/// Added from word to word. It is odd, so that the words of one payload differ, and the addition is cheap
/// enough to be vectorised.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The codec of echo requests, all of one length, each with different bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    len: usize,
    seed: u64,
}

impl Echo {
    /// Requests of `len` bytes, [`PAYLOAD_MIN`] to [`PAYLOAD_MAX`]; `seed` determines every one of them.
    ///
    /// # Errors
    /// The length is out of range.
    pub fn new(len: usize, seed: u64) -> Result<Self, LoadError> {
        if (PAYLOAD_MIN..=PAYLOAD_MAX).contains(&len) {
            Ok(Self { len, seed })
        } else {
            Err(LoadError::PayloadLen(len))
        }
    }
}

impl Codec for Echo {
    fn id_bits(&self) -> u32 {
        u64::BITS
    }

    #[inline]
    fn request_len_max(&self) -> usize {
        self.len
    }

    #[inline]
    fn request_len(&self, _: RequestId) -> usize {
        self.len
    }

    #[inline]
    fn reply_len_max(&self) -> usize {
        self.len
    }

    #[inline]
    fn write(&self, id: RequestId, request: &mut [u8]) {
        debug_assert_eq!(request.len(), self.len);
        fill(self.seed, id, request);
    }

    #[inline]
    fn check(&mut self, reply: &[u8]) -> Answer {
        if reply.len() == self.len
            && let Some(id) = check(self.seed, reply)
        {
            Answer::Right(id)
        } else {
            Answer::Wrong
        }
    }

    #[inline]
    fn cut(&self, stream: &[u8]) -> Cut {
        match self.len.checked_sub(stream.len()) {
            None | Some(0) => Cut::Whole(self.len),
            Some(missing) => Cut::Partial { missing },
        }
    }
}

/// Fills `payload` for request `id`. The payload holds at least 8 bytes.
pub(crate) fn fill(seed: u64, id: u64, payload: &mut [u8]) {
    let mut word = first_word(seed, id);
    let (number, rest) = payload.split_at_mut(8);
    number.copy_from_slice(&id.to_le_bytes());
    let (words, tail) = rest.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    tail.copy_from_slice(&word.to_le_bytes()[..tail.len()]);
}

/// The request number, if every byte after it is as [`fill`] wrote it.
pub(crate) fn check(seed: u64, payload: &[u8]) -> Option<u64> {
    let (number, rest) = payload.split_first_chunk::<8>()?;
    let id = u64::from_le_bytes(*number);
    let mut word = first_word(seed, id);
    let mut difference = 0;
    let (words, tail) = rest.as_chunks::<8>();
    for chunk in words {
        difference |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    (difference == 0 && tail == &word.to_le_bytes()[..tail.len()]).then_some(id)
}

/// A bijection of `seed ^ id` (splitmix64's finaliser), so that no two requests of a run begin with the same word.
fn first_word(seed: u64, id: u64) -> u64 {
    let mut mixed = seed ^ id;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_shows() {
        for len in [16, 17, 23, 24, 64, 1471] {
            let mut payload = vec![0; len];
            fill(7, 0x1234_5678, &mut payload);
            assert_eq!(check(7, &payload), Some(0x1234_5678));
            assert_eq!(check(8, &payload), None);
            for bit in 0..len * 8 {
                payload[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(check(7, &payload), None, "bit {bit} of {len} bytes");
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(check(7, &[0; 7]), None);
    }
}
