//! TCP options: those a segment carries, and those it is sent with.

use core::num::NonZeroU16;

/// Maximum bytes of options: a header has 60 bytes at most.
pub const OPTIONS_LEN_MAX: usize = 40;

/// Maximum number of blocks in one SACK option (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// The option numbers that IANA has assigned.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MD5: u8 = 19;
    pub(super) const USER_TIMEOUT: u8 = 28;
    pub(super) const AO: u8 = 29;
}

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The receiver's clock, as the sender has last seen it; it has a meaning if ACK is set.
    pub echo: u32,
}

impl Timestamps {
    #[inline]
    const fn read(bytes: &[u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = *bytes;
        Self { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
    }
}

/// The value of the user timeout option: whole seconds or minutes, never zero (RFC 5482 sections 2 and 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserTimeout(NonZeroU16);

impl UserTimeout {
    /// The bit that says that the value counts minutes.
    const MINUTES: u16 = 1 << 15;

    /// The longest time, s: 32,767 minutes.
    pub const SECONDS_MAX: u64 = 60 * (Self::MINUTES as u64 - 1);

    /// The value for a time of `seconds`. What seconds cannot count is rounded up to minutes, and what minutes cannot
    /// count is the longest time. `None` for no time: zero must not be sent.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Option<Self> {
        let bits = if seconds < Self::MINUTES as u64 {
            seconds as u16
        } else if seconds < Self::SECONDS_MAX {
            Self::MINUTES | seconds.div_ceil(60) as u16
        } else {
            u16::MAX
        };
        Self::from_bits(bits)
    }

    /// The time, s.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        let count = (self.0.get() & !Self::MINUTES) as u32;
        if self.0.get() & Self::MINUTES == 0 { count } else { 60 * count }
    }

    const fn from_bits(bits: u16) -> Option<Self> {
        match NonZeroU16::new(bits) {
            Some(value) if bits & !Self::MINUTES != 0 => Some(Self(value)),
            _ => None,
        }
    }
}

/// The options of a segment that has arrived. Unknown ones are left out (RFC 9293 section 3.1, MUST-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// The largest segment that the sender can receive.
    pub mss: Option<u16>,
    /// The shift of the sender's window, not above 14 (RFC 7323 section 2.3).
    pub scale: Option<u8>,
    /// Whether the sender takes SACK options.
    pub sack_permitted: bool,
    /// Whether the segment is authenticated (TCP-AO, RFC 5925; MD5, RFC 2385).
    pub is_authenticated: bool,
    /// How long the sender keeps a connection whose data is not acknowledged.
    pub user_timeout: Option<UserTimeout>,
    /// The blocks of the SACK option, as they came.
    blocks: &'a [u8],
}

impl<'a> Options<'a> {
    /// Reads the options of a header. A malformed option ends the reading: what comes before it is valid.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        Self::usual(bytes).unwrap_or_else(|| Self::parse_any(bytes))
    }

    /// The same for a header with nothing but timestamps, as all segments of an established connection have it
    /// (RFC 7323 appendix A); `None` for any other.
    #[inline]
    #[must_use]
    pub fn usual(bytes: &'a [u8]) -> Option<Self> {
        let (kinds, times) = bytes.split_first_chunk::<4>()?;
        if *kinds != [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10] {
            return None;
        }
        Some(Self { timestamps: Some(Timestamps::read(times.try_into().ok()?)), ..Self::default() })
    }

    #[inline(never)]
    fn parse_any(mut bytes: &'a [u8]) -> Self {
        let mut options = Self::default();
        while let Some((&found, rest)) = bytes.split_first() {
            match found {
                kind::END => break,
                kind::NOP => bytes = rest,
                _ => {
                    let Some(&len) = rest.first() else { break };
                    let Some(value) = bytes.get(2..usize::from(len)) else { break };
                    bytes = &bytes[usize::from(len)..];
                    options.read(found, value);
                }
            }
        }
        options
    }

    fn read(&mut self, found: u8, value: &'a [u8]) {
        match (found, value) {
            (kind::MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (kind::SCALE, &[shift]) => self.scale = Some(shift.min(14)),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, times) => {
                if let Some(times) = times.first_chunk().filter(|_| times.len() == 8) {
                    self.timestamps = Some(Timestamps::read(times));
                }
            }
            (kind::SACK, blocks) => self.blocks = blocks,
            // A value of zero is ignored (RFC 5482 section 2).
            (kind::USER_TIMEOUT, &[a, b]) => {
                self.user_timeout = UserTimeout::from_bits(u16::from_be_bytes([a, b]));
            }
            (kind::MD5 | kind::AO, _) => self.is_authenticated = true,
            _ => {}
        }
    }

    /// Whether there is a SACK option with a block.
    #[inline]
    #[must_use]
    pub const fn has_sack_blocks(&self) -> bool {
        self.blocks.len() >= 8
    }

    /// The blocks of the SACK option: first sequence number, and the number behind the last. They are as the peer has
    /// sent them, and at most [`SACK_BLOCKS_MAX`].
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        self.blocks
            .chunks_exact(8)
            .take(SACK_BLOCKS_MAX)
            .map(move |block| (number(block), number(&block[4..])))
    }
}

/// Collects the options of a segment that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    bytes: [u8; OPTIONS_LEN_MAX],
    len: u8,
}

impl Default for Writer {
    #[inline]
    fn default() -> Self {
        Self { bytes: [kind::NOP; OPTIONS_LEN_MAX], len: 0 }
    }
}

impl Writer {
    /// The bytes written so far, padded to whole words.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Their number.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.len as usize).next_multiple_of(4)
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the largest segment that can be received.
    pub fn mss(&mut self, mss: u16) {
        self.put(&[kind::MSS, 4]);
        self.put(&mss.to_be_bytes());
    }

    /// Adds the window's shift, behind one byte of padding.
    pub fn scale(&mut self, shift: u8) {
        self.put(&[kind::NOP, kind::SCALE, 3, shift]);
    }

    /// Adds that SACK options are taken. With timestamps behind it both fill whole words, otherwise `padded` does so.
    pub fn sack_permitted(&mut self, padded: bool) {
        if padded {
            self.put(&[kind::NOP, kind::NOP]);
        }
        self.put(&[kind::SACK_PERMITTED, 2]);
    }

    /// Adds the timestamps, behind two bytes of padding if `padded`.
    #[inline]
    pub fn timestamps(&mut self, timestamps: Timestamps, padded: bool) {
        if padded {
            self.put(&[kind::NOP, kind::NOP]);
        }
        self.put(&[kind::TIMESTAMPS, 10]);
        self.put(&timestamps.value.to_be_bytes());
        self.put(&timestamps.echo.to_be_bytes());
    }

    /// Adds how long this end keeps a connection whose data is not acknowledged.
    pub fn user_timeout(&mut self, timeout: UserTimeout) {
        self.put(&[kind::USER_TIMEOUT, 4]);
        self.put(&timeout.0.get().to_be_bytes());
    }

    /// Writes the timestamps, and nothing else, into `target`; returns the length.
    #[inline]
    pub fn timestamps_alone(timestamps: Timestamps, target: &mut [u8; OPTIONS_LEN_MAX]) -> usize {
        let [a, b, c, d] = timestamps.value.to_be_bytes();
        let [e, f, g, h] = timestamps.echo.to_be_bytes();
        if let Some(target) = target.first_chunk_mut() {
            *target = [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10, a, b, c, d, e, f, g, h];
        }
        12
    }

    /// How many SACK blocks still fit.
    #[must_use]
    pub const fn room_for_blocks(&self) -> usize {
        let room = (OPTIONS_LEN_MAX - self.len()).saturating_sub(4) / 8;
        if room > SACK_BLOCKS_MAX { SACK_BLOCKS_MAX } else { room }
    }

    /// Adds as many of `blocks` as fit.
    pub fn sack(&mut self, blocks: &[(u32, u32)]) {
        let count = blocks.len().min(self.room_for_blocks());
        if count == 0 {
            return;
        }
        self.put(&[kind::NOP, kind::NOP, kind::SACK, 2 + 8 * count as u8]);
        for (start, end) in &blocks[..count] {
            self.put(&start.to_be_bytes());
            self.put(&end.to_be_bytes());
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        if let Some(place) = self.bytes.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len() as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };

    #[test]
    fn a_syn_has_the_layout_that_linux_sends() {
        let mut options = Writer::default();
        options.mss(1460);
        options.sack_permitted(false);
        options.timestamps(TIMES, false);
        options.scale(7);
        assert_eq!(options.bytes(), [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7]);
        let read = Options::parse(options.bytes());
        assert_eq!((read.mss, read.scale, read.sack_permitted), (Some(1460), Some(7), true));
        assert_eq!(read.timestamps, Some(TIMES));
    }

    #[test]
    fn beside_timestamps_three_blocks_fit_and_four_alone() {
        let blocks = [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)];
        for (timestamps, fit) in [(true, 3), (false, 4)] {
            let mut options = Writer::default();
            if timestamps {
                options.timestamps(TIMES, true);
            }
            options.sack(&blocks);
            let read = Options::parse(options.bytes());
            assert_eq!(read.sack_blocks().collect::<Vec<_>>(), blocks[..fit]);
            assert_eq!(read.timestamps.is_some(), timestamps);
            assert!(options.len() <= OPTIONS_LEN_MAX && options.len().is_multiple_of(4));
        }
    }

    #[test]
    fn what_comes_before_a_malformed_option_is_valid() {
        for rest in [&[8, 10, 1][..], &[8], &[8, 0], &[8, 1], &[5, 255], &[0, 8, 10]] {
            let bytes = [&[2, 4, 5, 180, 1], rest].concat();
            let read = Options::parse(&bytes);
            assert_eq!((read.mss, read.timestamps), (Some(1460), None), "{rest:?}");
        }
        assert!(Options::parse(&[29, 4, 1, 2]).is_authenticated);
        assert_eq!(Options::parse(&[3, 3, 200]).scale, Some(14));
    }

    #[test]
    fn a_user_timeout_is_in_seconds_and_above_32_767_of_them_in_minutes() {
        // RFC 5482 section 3.2.
        for (seconds, bytes, read) in [
            (1, [28, 4, 0, 1], 1),
            (32_767, [28, 4, 0x7f, 0xff], 32_767),
            (32_768, [28, 4, 0x82, 0x23], 32_820),
            (60 * 32_767 - 1, [28, 4, 0xff, 0xff], 60 * 32_767),
            (u64::MAX, [28, 4, 0xff, 0xff], 60 * 32_767),
        ] {
            let mut options = Writer::default();
            options.user_timeout(UserTimeout::from_seconds(seconds).expect("a time"));
            assert_eq!(options.bytes(), bytes, "{seconds}");
            let found = Options::parse(options.bytes()).user_timeout;
            assert_eq!(found.map(UserTimeout::seconds), Some(read));
        }
        assert_eq!(UserTimeout::from_seconds(0), None);
    }

    #[test]
    fn a_user_timeout_of_zero_or_of_another_length_is_ignored() {
        // RFC 5482 section 2: a value of zero, in whatever unit.
        for bytes in
            [&[28, 4, 0, 0][..], &[28, 4, 0x80, 0], &[28, 3, 1], &[28, 5, 0, 1, 0], &[28, 2], &[28, 4, 1]]
        {
            assert_eq!(Options::parse(bytes).user_timeout, None, "{bytes:?}");
        }
        // What follows is read.
        assert!(Options::parse(&[28, 3, 1, 4, 2]).sack_permitted);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..41)) {
            let read = Options::parse(&bytes);
            prop_assert!(read.sack_blocks().count() <= SACK_BLOCKS_MAX);
        }
    }
}
