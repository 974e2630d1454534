//! Record marking (RFC 5531, section 11): messages in a stream of bytes, each in one fragment or several.

use nfs3_types::rpc::fragment_header;

/// Bytes before each fragment: its length, and whether it is the record's last.
pub const MARK_LEN: usize = 4;

/// What a reader keeps of its buffer between records: calls that come cut in two are joined without a new allocation,
/// and ten thousand idle connections hold little.
const KEPT_MAX: usize = 1024;

/// How much a peer may make a reader hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Bytes of a record, its marks apart.
    pub record_bytes: u32,
    /// Fragments of a record, empty ones included.
    pub fragments: u32,
}

/// Why a stream is not read any further: where the next record begins is no longer known, or too costly to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record's fragments add up to more than the limit.
    #[error("a record of {len} bytes or more; at most {max} are taken")]
    TooLarge {
        /// Bytes announced so far.
        len: u64,
        /// The limit.
        max: u32,
    },
    /// The record's last fragment has not come within the limit.
    #[error("a record of more than {max} fragments")]
    TooManyFragments {
        /// The limit.
        max: u32,
    },
}

/// The mark of a fragment of `len` bytes.
#[inline]
#[must_use]
pub const fn mark(len: u32, last: bool) -> [u8; MARK_LEN] {
    let end = if last { fragment_header::EOF_FLAG } else { 0 };
    (len & fragment_header::MASK | end).to_be_bytes()
}

/// Where in a record a reader is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes of a mark are known.
    Mark { bytes: [u8; MARK_LEN], known: u8 },
    /// So many bytes of a fragment are to come.
    Fragment { rest: u32, last: bool },
}

const NEW_MARK: Place = Place::Mark { bytes: [0; MARK_LEN], known: 0 };

/// Takes records out of a stream that comes in pieces of any size.
///
/// A record that lies in one piece in one fragment is handed out where it lies. Others are joined in a buffer that
/// grows with what has come, never with what was announced.
#[derive(Debug)]
pub struct RecordReader {
    limits: RecordLimits,
    place: Place,
    /// Fragments of the record under way, begun.
    fragments: u32,
    /// What has come of the record under way; or the record last handed out.
    joined: Vec<u8>,
    handed_out: bool,
}

impl RecordReader {
    /// A reader at the start of a stream.
    #[must_use]
    pub const fn new(limits: RecordLimits) -> Self {
        Self { limits, place: NEW_MARK, fragments: 0, joined: Vec::new(), handed_out: false }
    }

    /// The next record. Takes what it reads off `input`: after `None` that is empty, and the rest of the record has not
    /// come yet.
    ///
    /// # Errors
    /// A limit is passed: the stream can't be read any further.
    #[inline]
    pub fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<&'r [u8]>, RecordError> {
        if let Some((bytes, rest)) = input.split_first_chunk::<MARK_LEN>()
            && !self.is_unfinished()
            && !self.handed_out
        {
            let mark = fragment_header::from(*bytes);
            let len = mark.fragment_length();
            if mark.eof()
                && len <= self.limits.record_bytes
                && self.limits.fragments > 0
                && let Some((record, rest)) = rest.split_at_checked(len as usize)
            {
                *input = rest;
                return Ok(Some(record));
            }
        }
        self.join(input)
    }

    /// Whether part of a record has come.
    #[inline]
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        self.fragments > 0 || !matches!(self.place, Place::Mark { known: 0, .. })
    }

    /// Bytes of memory held, for whoever watches over it.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.joined.capacity()
    }

    /// As [`Self::next`], byte by byte if it must be.
    #[inline(never)]
    fn join<'r>(&'r mut self, input: &mut &[u8]) -> Result<Option<&'r [u8]>, RecordError> {
        if std::mem::take(&mut self.handed_out) {
            self.joined.clear();
            self.joined.shrink_to(KEPT_MAX);
        }
        while !input.is_empty() {
            match &mut self.place {
                Place::Mark { bytes, known } => {
                    let at = usize::from(*known);
                    let taken = input.len().min(MARK_LEN - at);
                    bytes[at..at + taken].copy_from_slice(&input[..taken]);
                    *known += taken as u8;
                    *input = &input[taken..];
                    if usize::from(*known) == MARK_LEN {
                        let mark = fragment_header::from(*bytes);
                        self.begin_fragment(mark)?;
                    }
                }
                Place::Fragment { rest, .. } => {
                    let taken = input.len().min(*rest as usize);
                    *rest -= taken as u32;
                    let (more, left) = input.split_at(taken);
                    *input = left;
                    self.append(more);
                }
            }
            if let Place::Fragment { rest: 0, last } = self.place {
                self.place = NEW_MARK;
                if last {
                    self.fragments = 0;
                    self.handed_out = true;
                    return Ok(Some(&self.joined));
                }
            }
        }
        Ok(None)
    }

    fn begin_fragment(&mut self, mark: fragment_header) -> Result<(), RecordError> {
        let RecordLimits { record_bytes, fragments } = self.limits;
        if self.fragments >= fragments {
            return Err(RecordError::TooManyFragments { max: fragments });
        }
        let len = self.joined.len() as u64 + u64::from(mark.fragment_length());
        if len > u64::from(record_bytes) {
            return Err(RecordError::TooLarge { len, max: record_bytes });
        }
        self.fragments += 1;
        self.place = Place::Fragment { rest: mark.fragment_length(), last: mark.eof() };
        Ok(())
    }

    /// Appends without ever holding more than the limit: the buffer doubles, but not past it.
    fn append(&mut self, more: &[u8]) {
        let needed = self.joined.len() + more.len();
        if needed > self.joined.capacity() {
            let doubled = (2 * self.joined.capacity()).min(self.limits.record_bytes as usize);
            self.joined.reserve_exact(doubled.max(needed) - self.joined.len());
        }
        self.joined.extend_from_slice(more);
    }
}

#[cfg(test)]
mod tests;
