//! XDR (RFC 4506), limited to the needs of headers and short arguments: a cursor that never copies and
//! never panics.

/// Number of zero bytes that follow `len` bytes of opaque data (RFC 4506, 4.10).
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Why XDR could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end before the value does.
    #[error("the message ends {0} bytes too early")]
    Short(usize),
    /// A length exceeds the type's maximum.
    #[error("a length of {len} where the protocol allows {max}")]
    TooLong {
        /// The length received.
        len: u32,
        /// The type's maximum.
        max: u32,
    },
    /// Bytes follow the end of the value.
    #[error("{0} bytes follow where nothing should")]
    Trailing(usize),
}

/// Decodes XDR from a slice, front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// Bytes are left.
    #[inline]
    pub const fn finish(&self) -> Result<(), XdrError> {
        match self.0.len() {
            0 => Ok(()),
            len => Err(XdrError::Trailing(len)),
        }
    }

    /// The next `N` bytes, unchanged.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        let (read, rest) = self.0.split_first_chunk().ok_or_else(|| XdrError::Short(N - self.0.len()))?;
        self.0 = rest;
        Ok(read)
    }

    /// The next `count` words, unchanged: each is big-endian.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn words(&mut self, count: usize) -> Result<&'a [[u8; 4]], XdrError> {
        let (words, rest) =
            self.0.split_at_checked(4 * count).ok_or_else(|| XdrError::Short(4 * count - self.0.len()))?;
        self.0 = rest;
        Ok(words.as_chunks().0)
    }

    /// An unsigned integer (RFC 4506, 4.2).
    ///
    /// # Errors
    /// The bytes end before it does.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Opaque data of variable length (RFC 4506, 4.10), borrowed. The padding's content is ignored.
    ///
    /// # Errors
    /// It is longer than `max`, or than the bytes there are.
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8], XdrError> {
        let len = self.u32()?;
        self.padded(len, max)
    }

    /// The bytes of opaque data whose length was read before, and their padding.
    #[inline]
    pub(crate) fn padded(&mut self, len: u32, max: u32) -> Result<&'a [u8], XdrError> {
        if len > max {
            return Err(XdrError::TooLong { len, max });
        }
        let len = len as usize;
        let padded = len + padding(len);
        if padded > self.0.len() {
            return Err(XdrError::Short(padded - self.0.len()));
        }
        let (read, rest) = self.0.split_at(padded);
        self.0 = rest;
        Ok(&read[..len])
    }
}

/// Appends opaque data of variable length with its padding. `bytes` is at most 2^32 - 1 long.
pub fn write_opaque(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_is_read_with_its_padding() {
        let bytes = [0, 0, 0, 5, 1, 2, 3, 4, 5, 9, 9, 9, 0, 0, 0, 7];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.opaque(5), Ok(&bytes[4..9]));
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u32(), Err(XdrError::Short(4)));
        assert_eq!(Reader::new(&bytes).opaque(4), Err(XdrError::TooLong { len: 5, max: 4 }));
        assert_eq!(Reader::new(&bytes[..10]).opaque(5), Err(XdrError::Short(2)), "padding is part of it");
        assert_eq!(Reader::new(&[0xff; 8]).opaque(u32::MAX), Err(XdrError::Short(0x1_0000_0000 - 4)));
    }

    #[test]
    fn what_is_written_is_read() {
        for len in 0..9 {
            let data: Vec<u8> = (1..=len).collect();
            let mut bytes = Vec::new();
            write_opaque(&data, &mut bytes);
            assert_eq!(bytes.len() % 4, 0);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.opaque(8), Ok(data.as_slice()));
            assert_eq!(reader.finish(), Ok(()));
            bytes.push(0);
            let mut longer = Reader::new(&bytes);
            assert_eq!(longer.opaque(8), Ok(data.as_slice()));
            assert_eq!(longer.finish(), Err(XdrError::Trailing(1)));
        }
    }

    #[test]
    fn words_and_arrays_are_read_whole_or_not_at_all() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 3];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.words(3), Err(XdrError::Short(3)));
        assert_eq!(reader.array::<12>(), Err(XdrError::Short(3)));
        assert_eq!(reader.rest(), bytes, "nothing was read");
        assert_eq!(reader.words(2), Ok(&[[0, 0, 0, 1], [0, 0, 0, 2]][..]));
        assert_eq!(reader.rest(), [3]);
        assert_eq!(reader.words(0), Ok(&[][..]));
        assert_eq!(reader.array(), Ok(&[3]));
        assert_eq!(reader.finish(), Ok(()));
    }
}
