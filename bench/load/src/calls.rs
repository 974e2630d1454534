//! Load of ONC RPC calls (RFC 5531): the xid is the request's number, and every reply is decoded and checked against
//! the call.

use twinpath_rpc::client::{Auth, Call, Reply, ReplyError, handle_arguments};
use twinpath_rpc::nfs3_types::nfs3;
use twinpath_rpc::nfs3_types::rpc::fragment_header;
use twinpath_rpc::record::{MARK_LEN, mark};

use crate::codec::{Answer, Codec, Cut, RequestId};

/// Maximum number of fragments of a record, in either direction.
pub const FRAGMENTS_MAX: usize = 16;
/// The longest valid reply: 24 bytes around a verifier of at most 400 (RFC 5531, 8.2), and the attributes.
const REPLY_MAX: usize = 24 + 400 + GETATTR_RESULTS;
/// The results of GETATTR: a status and a `fattr3` (RFC 1813, 2.6).
const GETATTR_RESULTS: usize = 4 + 84;
/// The shortest reply: accepted, without a verifier and without results.
const REPLY_MIN: usize = 24;
const RECORD_MAX: usize = REPLY_MAX + FRAGMENTS_MAX * MARK_LEN;

/// The procedure of NFS version 3 that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NfsProcedure {
    /// NULL (RFC 1813, 3.3.0).
    Null,
    /// GETATTR (RFC 1813, 3.3.1) of the file with this handle.
    GetAttr {
        /// At most 64 bytes.
        handle: Vec<u8>,
    },
}

/// How a call is transported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As a UDP datagram.
    Datagram,
    /// As a record of this many fragments, 1 to [`FRAGMENTS_MAX`]. The first one carries one byte. With
    /// three or more, the last one does too, and the fragments between them share the rest.
    Record {
        /// Number of fragments.
        fragments: usize,
    },
}

/// The error in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It cannot be decoded, or it reports an error.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The lengths of its fragments do not add up.
    #[error("the reply's fragments are not those of one record")]
    Fragments,
    /// Two replies for one handle describe different files.
    #[error("GETATTR told of file {found}, and before of file {before}, for one handle")]
    AnotherFile {
        /// The file's number in this reply.
        found: u64,
        /// The file's number in the first reply.
        before: u64,
    },
}

/// Calls of one procedure, with one credential.
pub struct Calls {
    auth: Auth,
    procedure: u32,
    args: Vec<u8>,
    framing: Framing,
    request_len: usize,
    /// Length of each fragment, bytes.
    pieces: Vec<usize>,
    /// Distinguishes this run's xids from those of another.
    xids: u32,
    /// Length of the latest reply, marks included, bytes.
    reply_len: usize,
    /// The joined fragments of a reply.
    joined: Vec<u8>,
    /// The file number in the first reply.
    file: Option<u64>,
    complaint: Option<CallError>,
}

impl Calls {
    /// Calls with `auth`, whose xids start at a number derived from `seed`.
    #[must_use]
    pub fn new(procedure_called: &NfsProcedure, auth: Auth, framing: Framing, seed: u64) -> Self {
        let (procedure, args, results) = match procedure_called {
            NfsProcedure::Null => (0, Vec::new(), 0),
            NfsProcedure::GetAttr { handle } => (1, handle_arguments(handle), GETATTR_RESULTS),
        };
        let mut calls = Self {
            auth,
            procedure,
            args,
            framing,
            request_len: 0,
            pieces: Vec::new(),
            xids: (seed ^ seed >> 32) as u32,
            reply_len: REPLY_MIN + results + if framing == Framing::Datagram { 0 } else { MARK_LEN },
            joined: Vec::with_capacity(RECORD_MAX),
            file: None,
            complaint: None,
        };
        let message = calls.call(0).len();
        if let Framing::Record { fragments } = framing {
            calls.pieces = pieces(message, fragments.clamp(1, FRAGMENTS_MAX));
        }
        calls.request_len = message + calls.pieces.len() * MARK_LEN;
        calls
    }

    /// Length of a call without record marks, bytes.
    #[must_use]
    pub fn message_len(&self) -> usize {
        self.request_len - self.pieces.len() * MARK_LEN
    }

    fn call(&self, xid: u32) -> Call<'_> {
        Call {
            xid,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: self.procedure,
            auth: &self.auth,
            args: &self.args,
        }
    }

    /// Decodes a message and checks it against its call.
    #[inline]
    fn verify(&mut self, message: &[u8]) -> Answer {
        let reply = match Reply::parse(message) {
            Ok(reply) => reply,
            Err(error) => return self.complain(error.into(), Answer::Wrong),
        };
        let id = u64::from(reply.xid ^ self.xids);
        let verified =
            if self.procedure == 0 { reply.verify_null() } else { return self.verify_file(&reply, id) };
        match verified {
            Ok(()) => Answer::Right(id),
            Err(error) => self.refused_or_wrong(error, id),
        }
    }

    /// Checks that the attributes are those of the file in the first reply.
    fn verify_file(&mut self, reply: &Reply<'_>, id: u64) -> Answer {
        match reply.verify_getattr() {
            Ok(attributes) => {
                let found = attributes.fileid;
                match *self.file.get_or_insert(found) {
                    before if before == found => Answer::Right(id),
                    before => self.complain(CallError::AnotherFile { found, before }, Answer::Wrong),
                }
            }
            Err(error) => self.refused_or_wrong(error, id),
        }
    }

    #[cold]
    fn refused_or_wrong(&mut self, error: ReplyError, id: u64) -> Answer {
        let answer = match error {
            ReplyError::Refused(_) | ReplyError::GetAttr(_) => Answer::Refused(id),
            _ => Answer::Wrong,
        };
        self.complain(error.into(), answer)
    }

    #[cold]
    fn complain(&mut self, error: CallError, answer: Answer) -> Answer {
        self.complaint.get_or_insert(error);
        answer
    }

    /// Checks a record of several fragments, or bytes that are no record.
    #[cold]
    fn verify_joined(&mut self, record: &[u8]) -> Answer {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let answer = if join(record, &mut joined).is_some() {
            self.verify(&joined)
        } else {
            self.complain(CallError::Fragments, Answer::Wrong)
        };
        self.joined = joined;
        answer
    }
}

impl Codec for Calls {
    fn id_bits(&self) -> u32 {
        u32::BITS
    }

    #[inline]
    fn request_len(&self) -> usize {
        self.request_len
    }

    #[inline]
    fn reply_len_max(&self) -> usize {
        if self.framing == Framing::Datagram { REPLY_MAX } else { RECORD_MAX }
    }

    #[inline]
    fn write(&self, id: RequestId, request: &mut [u8]) {
        let call = self.call(id as u32 ^ self.xids);
        let marks = self.pieces.len() * MARK_LEN;
        let written = call.write_to(&mut request[marks..]);
        debug_assert_eq!(written, Some(self.message_len()), "as long as it was when it was counted");
        match *self.pieces.as_slice() {
            [] => {}
            [len] => request[..MARK_LEN].copy_from_slice(&mark(len as u32, true)),
            _ => split(&self.pieces, request),
        }
    }

    #[inline]
    fn check(&mut self, reply: &[u8]) -> Answer {
        if self.framing == Framing::Datagram {
            return self.verify(reply);
        }
        self.reply_len = reply.len();
        match reply.split_first_chunk() {
            Some((first, message)) if *first == mark(message.len() as u32, true) => self.verify(message),
            _ => self.verify_joined(reply),
        }
    }

    #[inline]
    fn cut(&self, stream: &[u8]) -> Cut {
        let mut end = 0;
        for _ in 0..FRAGMENTS_MAX {
            let Some((first, _)) = stream.get(end..).and_then(<[u8]>::split_first_chunk::<MARK_LEN>) else {
                let missing = if stream.is_empty() { self.reply_len } else { end + MARK_LEN - stream.len() };
                return Cut::Partial { missing };
            };
            let mark = fragment_header::from(*first);
            end += MARK_LEN + mark.fragment_length() as usize;
            if end > RECORD_MAX {
                return Cut::Broken;
            }
            if mark.eof() {
                let missing = end.saturating_sub(stream.len());
                return if missing == 0 { Cut::Whole(end) } else { Cut::Partial { missing } };
            }
        }
        Cut::Broken
    }

    fn complaint(&self) -> Option<String> {
        self.complaint.map(|error| error.to_string())
    }
}

/// How many bytes of a message each of its fragments carries.
fn pieces(message: usize, fragments: usize) -> Vec<usize> {
    match fragments {
        1 => vec![message],
        2 => vec![1, message - 1],
        _ => {
            let (between, rest) = (fragments - 2, message - 2);
            let share = |index: usize| rest / between + usize::from(index < rest % between);
            std::iter::once(1).chain((0..between).map(share)).chain([1]).collect()
        }
    }
}

/// Puts a record mark in front of each fragment of a message, which is at the end of `request`, after the room for
/// all marks.
fn split(pieces: &[usize], request: &mut [u8]) {
    let (mut from, mut to) = (pieces.len() * MARK_LEN, 0);
    for (index, &piece) in pieces.iter().enumerate() {
        request[to..to + MARK_LEN].copy_from_slice(&mark(piece as u32, index + 1 == pieces.len()));
        request.copy_within(from..from + piece, to + MARK_LEN);
        from += piece;
        to += MARK_LEN + piece;
    }
}

/// Joins the fragments of a record into `message`; `None` if the bytes are not exactly one record.
fn join(mut record: &[u8], message: &mut Vec<u8>) -> Option<()> {
    loop {
        let (first, rest) = record.split_first_chunk()?;
        let mark = fragment_header::from(*first);
        let (piece, rest) = rest.split_at_checked(mark.fragment_length() as usize)?;
        // Within the capacity, so nothing is allocated: `cut` accepts nothing longer.
        if message.len() + piece.len() > message.capacity() {
            return None;
        }
        message.extend_from_slice(piece);
        record = rest;
        if mark.eof() {
            return record.is_empty().then_some(());
        }
    }
}

#[cfg(test)]
mod tests;
