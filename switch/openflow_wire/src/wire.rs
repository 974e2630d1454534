//! Reading and writing the parts of a message. Nothing is read beyond a length, and padding is ignored (section 7.1.1).

use crate::error::ErrorCode;

/// A part of a message.
pub(crate) trait Wire: Sized {
    /// Reads it. On an error the reader's position means nothing.
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode>;

    /// Appends it.
    fn write(&self, out: &mut Vec<u8>);
}

/// Bytes of a message that are not read yet, and the error if there are too few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    too_short: ErrorCode,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(rest: &'a [u8], too_short: impl Into<ErrorCode>) -> Self {
        Self { rest, too_short: too_short.into() }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes that are left.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], ErrorCode> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.too_short)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), ErrorCode> {
        self.take(len).map(|_| ())
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorCode> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.too_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, ErrorCode> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, ErrorCode> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, ErrorCode> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, ErrorCode> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number of up to 16 bytes.
    #[inline]
    pub(crate) fn number(&mut self, len: usize) -> Result<u128, ErrorCode> {
        Ok(match len {
            1 => self.u8()?.into(),
            2 => self.u16()?.into(),
            4 => self.u32()?.into(),
            8 => self.u64()?.into(),
            16 => u128::from_be_bytes(self.array()?),
            _ => self.take(len)?.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)),
        })
    }

    /// A text in a field of fixed length, up to its first zero byte; what is no UTF-8 is replaced.
    pub(crate) fn text(&mut self, len: usize) -> Result<String, ErrorCode> {
        let field = self.take(len)?;
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(len);
        let text = String::from_utf8_lossy(&field[..end]);
        Ok(cut(&text, len).to_owned())
    }

    /// Everything that is left.
    #[inline]
    pub(crate) const fn remaining(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// The next `len` bytes, as a reader with an error of its own; that they are missing is this reader's error.
    #[inline]
    pub(crate) fn part(&mut self, len: usize, too_short: impl Into<ErrorCode>) -> Result<Self, ErrorCode> {
        Ok(Self::new(self.take(len)?, too_short))
    }

    /// A length that counts `counted` bytes read before it too; the bytes behind it, as a reader with that error for
    /// everything: a length below `counted`, one beyond the end.
    #[inline]
    pub(crate) fn counted(
        &mut self,
        len: u16,
        counted: usize,
        error: impl Into<ErrorCode>,
    ) -> Result<Self, ErrorCode> {
        let error = error.into();
        let behind = usize::from(len).checked_sub(counted).ok_or(error)?;
        let (taken, rest) = self.rest.split_at_checked(behind).ok_or(error)?;
        self.rest = rest;
        Ok(Self::new(taken, error))
    }

    /// All that is left, as a reader with an error of its own, where each value is padded to 8 bytes: if it does not fill these,
    /// it is the message that is too short or too long, which is this reader's error.
    #[inline]
    pub(crate) fn padded(&mut self, too_short: impl Into<ErrorCode>) -> Result<Self, ErrorCode> {
        if self.len().is_multiple_of(8) {
            Ok(Self::new(self.remaining(), too_short))
        } else {
            Err(self.too_short)
        }
    }

    /// Reads values to the end.
    pub(crate) fn list<T: Wire>(&mut self) -> Result<Vec<T>, ErrorCode> {
        let mut list = Vec::new();
        if !self.is_empty() {
            // Most lists have one value, which then has no room beside it that would be given back.
            list.reserve_exact(1);
        }
        while !self.is_empty() {
            list.push(T::read(self)?);
        }
        Ok(list)
    }

    /// That everything has been read.
    #[inline]
    pub(crate) const fn end(&self) -> Result<(), ErrorCode> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.too_short) }
    }
}

/// As much of a text as fits a field of `len` bytes with a zero byte behind it.
fn cut(text: &str, len: usize) -> &str {
    let mut end = text.len().min(len - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends a field of bits.
pub(crate) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn zeros(&mut self, count: usize);
    /// The low `len` bytes of a number.
    fn number(&mut self, value: u128, len: usize);
    /// A text in a field of fixed length; it is cut so that a zero byte ends it.
    fn text(&mut self, text: &str, len: usize);
    /// A length in place of the two bytes at `at`, of everything behind `start`.
    fn put_len(&mut self, at: usize, start: usize);
    /// Zeros up to a multiple of 8 bytes behind `start`.
    fn pad(&mut self, start: usize);
    fn list<T: Wire>(&mut self, list: &[T]);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    fn number(&mut self, value: u128, len: usize) {
        self.extend_from_slice(&value.to_be_bytes()[16 - len..]);
    }

    fn text(&mut self, text: &str, len: usize) {
        let shown = cut(text, len);
        self.extend_from_slice(shown.as_bytes());
        self.zeros(len - shown.len());
    }

    fn put_len(&mut self, at: usize, start: usize) {
        let len = self.len() - start;
        // A message that is too long is refused as a whole, by its own length.
        self[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    }

    fn pad(&mut self, start: usize) {
        let len = self.len() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }

    fn list<T: Wire>(&mut self, list: &[T]) {
        for value in list {
            value.write(self);
        }
    }
}
