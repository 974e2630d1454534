//! Record marking (RFC 5531, section 11): messages in a byte stream, each in one or several fragments.

use nfs3_types::rpc::fragment_header;

/// Length of a record mark, in front of each fragment: the fragment's length, and whether it is the last one; bytes.
pub const MARK_LEN: usize = 4;

/// Bytes of its buffers that a reader keeps between records, so that joining the parts of a small record needs no
/// allocation.
const KEPT_MAX: usize = 1024;

/// Limits on the memory that a peer can make a reader hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Maximum length of a record without its marks, bytes.
    pub record_bytes: u32,
    /// Maximum number of fragments of a record, including empty ones. Together, the two limits bound the
    /// length of a record with its marks.
    pub fragments: u32,
}

/// Why a stream cannot be read any further: the start of the next record is unknown, or too costly to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The fragments' lengths add up to more than the limit.
    #[error("a record of {len} bytes or more; at most {max} are taken")]
    TooLarge {
        /// Bytes announced so far.
        len: u64,
        /// The limit.
        max: u32,
    },
    /// The record has more fragments than the limit.
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

/// Whether a fragment with this mark ends its record.
#[must_use]
pub const fn is_last(mark: [u8; MARK_LEN]) -> bool {
    u32::from_be_bytes(mark) & fragment_header::EOF_FLAG != 0
}

/// How much of the first record of a stream has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it, in one fragment of this many bytes.
    Whole(usize),
    /// All of it, in several fragments of this many bytes in all, marks included.
    InFragments(usize),
    /// A part: at least this many bytes are missing.
    Missing(usize),
}

/// How far the marks of the first record of a stream have been read while it is incomplete. Each mark is
/// read once, regardless of their number and of the size of the pieces that arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Where the next mark begins, or will, in bytes from the start of the record.
    at: usize,
    /// Bytes of the record so far, without marks.
    len: u64,
    /// Fragments so far.
    fragments: u32,
}

/// Measures the first record of `stream`, mark by mark, continuing at `walked`. After [`Extent::Missing`]
/// the next call must pass the same bytes, followed by more.
#[inline]
fn measure(stream: &[u8], limits: RecordLimits, walked: &mut Walked) -> Result<Extent, RecordError> {
    if walked.at == 0
        && let Some((bytes, rest)) = stream.split_first_chunk::<MARK_LEN>()
    {
        let mark = fragment_header::from(*bytes);
        let len = mark.fragment_length();
        if mark.eof() && len <= limits.record_bytes && limits.fragments > 0 && len as usize <= rest.len() {
            return Ok(Extent::Whole(len as usize));
        }
    }
    measure_fragments(stream, limits, walked)
}

#[inline(never)]
fn measure_fragments(
    stream: &[u8],
    limits: RecordLimits,
    walked: &mut Walked,
) -> Result<Extent, RecordError> {
    let Walked { mut at, mut len, mut fragments } = *walked;
    let missing = loop {
        let Some(bytes) = stream.get(at..).and_then(<[u8]>::first_chunk::<MARK_LEN>) else {
            break at + MARK_LEN - stream.len();
        };
        let mark = fragment_header::from(*bytes);
        if fragments == limits.fragments {
            return Err(RecordError::TooManyFragments { max: limits.fragments });
        }
        let total = len + u64::from(mark.fragment_length());
        if total > u64::from(limits.record_bytes) {
            return Err(RecordError::TooLarge { len: total, max: limits.record_bytes });
        }
        let end = at + MARK_LEN + mark.fragment_length() as usize;
        if !mark.eof() {
            (at, len, fragments) = (end, total, fragments + 1);
        } else if end <= stream.len() {
            *walked = Walked::default();
            return Ok(Extent::InFragments(end));
        } else {
            break end - stream.len();
        }
    };
    *walked = Walked { at, len, fragments };
    Ok(Extent::Missing(missing))
}

/// Joins the fragments of a complete record, marks included, in `joined`.
fn join(mut fragments: &[u8], joined: &mut Vec<u8>) {
    joined.clear();
    while let Some((bytes, rest)) = fragments.split_first_chunk::<MARK_LEN>() {
        let (fragment, rest) = rest.split_at(fragment_header::from(*bytes).fragment_length() as usize);
        joined.extend_from_slice(fragment);
        fragments = rest;
    }
}

/// Takes the next record from `input`. If it is incomplete, returns `None` and leaves `input` unchanged; it
/// must be passed again with `walked` once more bytes have arrived. A record in one fragment is returned in
/// place; one in several fragments is joined in `joined`.
///
/// # Errors
/// A limit is exceeded, which the marks show before the bytes arrive: the stream cannot be read any
/// further.
#[inline]
pub fn next<'r, 'i: 'r>(
    input: &mut &'i [u8],
    limits: RecordLimits,
    joined: &'r mut Vec<u8>,
    walked: &mut Walked,
) -> Result<Option<&'r [u8]>, RecordError> {
    match measure(input, limits, walked)? {
        Extent::Whole(len) => {
            let (record, rest) = input[MARK_LEN..].split_at(len);
            *input = rest;
            Ok(Some(record))
        }
        Extent::InFragments(len) => {
            let (fragments, rest) = input.split_at(len);
            *input = rest;
            join(fragments, joined);
            Ok(Some(joined))
        }
        Extent::Missing(_) => Ok(None),
    }
}

/// Takes records from a stream that arrives in pieces of any size, for a caller that does not buffer the stream: it
/// keeps the received part of an incomplete record, and nothing else.
///
/// A record that is complete in one piece and one fragment is returned in place. The memory kept grows with the bytes
/// received, never with the length announced.
#[derive(Debug)]
pub struct RecordReader {
    limits: RecordLimits,
    /// The received part of an incomplete record, marks included; or the record returned last.
    kept: Vec<u8>,
    joined: Vec<u8>,
    walked: Walked,
    handed_out: bool,
}

impl RecordReader {
    /// A reader at the start of a stream.
    #[must_use]
    pub const fn new(limits: RecordLimits) -> Self {
        let walked = Walked { at: 0, len: 0, fragments: 0 };
        Self { limits, kept: Vec::new(), joined: Vec::new(), walked, handed_out: false }
    }

    /// The next record. It consumes the part of `input` that it reads: after `None`, `input` is empty, and
    /// the rest of the record has not arrived yet.
    ///
    /// # Errors
    /// A limit is exceeded: the stream cannot be read any further.
    #[inline]
    pub fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<&'r [u8]>, RecordError> {
        if self.kept.is_empty()
            && let Extent::Whole(len) = measure(input, self.limits, &mut Walked::default())?
        {
            let (record, rest) = input[MARK_LEN..].split_at(len);
            *input = rest;
            return Ok(Some(record));
        }
        self.next_copied(input)
    }

    /// Whether part of a record has been received.
    #[inline]
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        !self.handed_out && !self.kept.is_empty()
    }

    /// Like [`Self::next`], but copies.
    #[inline(never)]
    fn next_copied<'r>(&'r mut self, input: &mut &[u8]) -> Result<Option<&'r [u8]>, RecordError> {
        if std::mem::take(&mut self.handed_out) {
            self.kept.clear();
            self.kept.shrink_to(KEPT_MAX);
            self.joined.clear();
            self.joined.shrink_to(KEPT_MAX);
        }
        loop {
            match measure(&self.kept, self.limits, &mut self.walked)? {
                Extent::Missing(_) if input.is_empty() => return Ok(None),
                Extent::Missing(missing) => {
                    let (more, rest) = input.split_at(missing.min(input.len()));
                    *input = rest;
                    self.kept.extend_from_slice(more);
                }
                Extent::Whole(len) => {
                    self.handed_out = true;
                    return Ok(Some(&self.kept[MARK_LEN..MARK_LEN + len]));
                }
                Extent::InFragments(_) => {
                    self.handed_out = true;
                    join(&self.kept, &mut self.joined);
                    return Ok(Some(&self.joined));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
