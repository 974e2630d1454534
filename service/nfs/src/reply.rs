//! Results of procedures, written into the buffer that is sent.

use twinpath_rpc::nfs3_types::nfs3::{fattr3, nfsstat3, nfstime3, wcc_attr};
use twinpath_rpc::xdr::{padding, write_opaque};

/// Length of encoded attributes, `fattr3` (RFC 1813, 2.6), bytes.
const ATTRIBUTES_LEN: usize = 84;
/// The word in front of an optional value that is there (RFC 4506, 4.19).
const PRESENT: u32 = 1;
/// The word instead of an optional value that is not.
const ABSENT: u32 = 0;

/// Attributes of an object before and after a change (`wcc_data`: RFC 1813, 2.6).
#[derive(Debug, Default)]
pub struct Wcc {
    /// Before it.
    pub before: Option<wcc_attr>,
    /// After it.
    pub after: Option<fattr3>,
}

/// Nothing is known about the object.
pub const NO_WCC: Wcc = Wcc { before: None, after: None };

/// The results of one call: the end of a buffer, behind the header of the reply.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

/// Room in a reply for a value that is known only after what follows it.
#[derive(Debug)]
pub struct Reserved {
    at: usize,
}

impl<'a> Reply<'a> {
    /// Results that begin at the end of `buffer`.
    pub const fn new(buffer: &'a mut Vec<u8>) -> Self {
        let start = buffer.len();
        Self { buffer, start }
    }

    /// Forgets all that was written: an error reply has no bytes of a success.
    pub fn restart(&mut self) {
        self.buffer.truncate(self.start);
    }

    /// The number of bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether nothing is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(self.start + len);
    }

    /// The buffer, for data that is appended by others.
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer
    }

    /// Appends encoded bytes.
    pub fn write(&mut self, encoded: &[u8]) {
        self.buffer.extend_from_slice(encoded);
    }

    /// Appends an unsigned integer.
    pub fn write_u32(&mut self, value: u32) {
        self.write(&value.to_be_bytes());
    }

    /// Appends an unsigned hyper integer.
    pub fn write_u64(&mut self, value: u64) {
        self.write(&value.to_be_bytes());
    }

    /// Appends opaque data of variable length.
    pub fn write_opaque(&mut self, bytes: &[u8]) {
        write_opaque(bytes, self.buffer);
    }

    /// Appends a status.
    pub fn write_status(&mut self, status: nfsstat3) {
        self.write_u32(status as u32);
    }

    /// Appends a time.
    pub fn write_time(&mut self, time: nfstime3) {
        self.write_u32(time.seconds);
        self.write_u32(time.nseconds);
    }

    /// Appends attributes (`fattr3`).
    pub fn write_attributes(&mut self, attributes: &fattr3) {
        self.write(&encode(attributes));
    }

    /// Appends attributes after an operation (`post_op_attr`).
    pub fn write_post_op(&mut self, attributes: Option<&fattr3>) {
        match attributes {
            Some(attributes) => {
                self.write_u32(PRESENT);
                self.write_attributes(attributes);
            }
            None => self.write_u32(ABSENT),
        }
    }

    /// Appends a handle that is there (`post_op_fh3`).
    pub fn write_post_op_handle(&mut self, handle: &[u8]) {
        self.write_u32(PRESENT);
        self.write_opaque(handle);
    }

    /// Appends the end of a list, or an absent value.
    pub fn write_absent(&mut self) {
        self.write_u32(ABSENT);
    }

    /// Appends the word in front of an entry of a list.
    pub fn write_present(&mut self) {
        self.write_u32(PRESENT);
    }

    /// Appends attributes before and after a change (`wcc_data`).
    pub fn write_wcc(&mut self, wcc: &Wcc) {
        match &wcc.before {
            Some(before) => {
                self.write_u32(PRESENT);
                self.write_u64(before.size);
                self.write_time(before.mtime);
                self.write_time(before.ctime);
            }
            None => self.write_u32(ABSENT),
        }
        self.write_post_op(wcc.after.as_ref());
    }

    /// Leaves room for `post_op_attr` that is there, and for `words` words after it.
    pub fn reserve(&mut self, words: usize) -> Reserved {
        let at = self.buffer.len();
        self.buffer.resize(at + 4 + ATTRIBUTES_LEN + 4 * words, 0);
        Reserved { at }
    }

    /// Writes what room was left for: attributes and the words after them.
    pub fn fill(&mut self, reserved: &Reserved, attributes: &fattr3, words: &[u32]) {
        let words = words.iter().flat_map(|word| word.to_be_bytes());
        let bytes = PRESENT.to_be_bytes().into_iter().chain(encode(attributes)).chain(words);
        self.buffer[reserved.at..].iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    }

    /// Pads the `len` bytes of opaque data that were appended last.
    pub fn pad(&mut self, len: usize) {
        self.buffer.extend_from_slice(&[0; 3][..padding(len)]);
    }
}

/// Attributes as XDR (RFC 1813, 2.6).
fn encode(attributes: &fattr3) -> [u8; ATTRIBUTES_LEN] {
    let mut encoded = [0; ATTRIBUTES_LEN];
    let a = attributes;
    let high = |value: u64| (value >> 32) as u32;
    let words = [
        a.type_ as u32,
        a.mode,
        a.nlink,
        a.uid,
        a.gid,
        high(a.size),
        a.size as u32,
        high(a.used),
        a.used as u32,
        a.rdev.specdata1,
        a.rdev.specdata2,
        high(a.fsid),
        a.fsid as u32,
        high(a.fileid),
        a.fileid as u32,
        a.atime.seconds,
        a.atime.nseconds,
        a.mtime.seconds,
        a.mtime.nseconds,
        a.ctime.seconds,
        a.ctime.nseconds,
    ];
    for (place, word) in encoded.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    encoded
}

#[cfg(test)]
mod tests;
