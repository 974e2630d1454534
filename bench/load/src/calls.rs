//! Load of ONC RPC calls (RFC 5531): the xid is the request's number, and every reply is decoded and checked against
//! the call.

use twinpath_rpc::client::{Auth, Call, Reply, ReplyError};
use twinpath_rpc::nfs3_types::nfs3;
use twinpath_rpc::nfs3_types::rpc::fragment_header;
use twinpath_rpc::record::{MARK_LEN, mark};

use crate::codec::{Answer, Codec, Cut, RequestId};
use crate::nfs::{Nfs, NfsFault, NfsProcedure};

/// Maximum number of fragments of a call's record.
pub const FRAGMENTS_MAX: usize = 16;
/// Bytes of the shortest fragment that a server may divide long replies into.
const FRAGMENT_MIN: usize = 1024;
/// The longest reply without results: 24 bytes around a verifier of at most 400 (RFC 5531, 8.2).
const HEAD_MAX: usize = 24 + 400;
/// The shortest reply: accepted, without a verifier and without results.
const REPLY_MIN: usize = 24;

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
    /// It cannot be decoded.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The lengths of its fragments do not add up.
    #[error("the reply's fragments are not those of one record")]
    Fragments,
    /// It is no right answer to its call.
    #[error(transparent)]
    Nfs(#[from] NfsFault),
}

/// Calls of one procedure, with one credential.
pub struct Calls {
    auth: Auth,
    asked: Nfs,
    framing: Framing,
    /// Length of a call without arguments, bytes.
    head_len: usize,
    /// Fragments of each call; none: it is a datagram.
    fragments: usize,
    /// Distinguishes this run's xids from those of another.
    xids: u32,
    /// Length of the longest valid reply, bytes, and its most fragments.
    reply_max: usize,
    reply_fragments_max: usize,
    /// Length of the latest reply, marks included, bytes.
    reply_len: usize,
    /// The joined fragments of a reply.
    joined: Vec<u8>,
    complaint: Option<CallError>,
}

impl Calls {
    /// Calls with `auth`, whose xids start at a number derived from `seed`.
    #[must_use]
    pub fn new(procedure_called: &NfsProcedure, auth: Auth, framing: Framing, seed: u64) -> Self {
        let asked = Nfs::new(procedure_called.clone());
        let (fragments, first_mark) = match framing {
            Framing::Datagram => (0, 0),
            Framing::Record { fragments } => (fragments.clamp(1, FRAGMENTS_MAX), MARK_LEN),
        };
        let results = asked.results_max();
        let message_max = HEAD_MAX + results;
        let reply_fragments_max = FRAGMENTS_MAX + results / FRAGMENT_MIN;
        let records = if fragments == 0 { 0 } else { reply_fragments_max * MARK_LEN };
        let mut calls = Self {
            auth,
            asked,
            framing,
            head_len: 0,
            fragments,
            xids: (seed ^ seed >> 32) as u32,
            reply_max: message_max + records,
            reply_fragments_max,
            reply_len: REPLY_MIN + results + first_mark,
            joined: Vec::with_capacity(message_max),
            complaint: None,
        };
        calls.head_len = calls.call(0).len();
        calls
    }

    /// Length of the longest call without record marks, bytes.
    #[must_use]
    pub fn message_len(&self) -> usize {
        self.head_len + self.asked.args_max()
    }

    /// Whether all calls have the same length.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.asked.is_uniform()
    }

    /// The call of a request, without its arguments.
    fn call(&self, id: u32) -> Call<'_> {
        Call {
            xid: id ^ self.xids,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: self.asked.procedure(id),
            auth: &self.auth,
            args: &[],
        }
    }

    /// The number of the pattern that request `id` writes: of no other run's, too.
    fn pattern(&self, id: u32) -> u64 {
        u64::from(self.xids) << 32 | u64::from(id)
    }

    /// Decodes a message and checks it against its call.
    #[inline]
    fn verify(&mut self, message: &[u8]) -> Answer {
        let reply = match Reply::parse(message) {
            Ok(reply) => reply,
            Err(error) => return self.complain(error.into(), Answer::Wrong),
        };
        let id = reply.xid ^ self.xids;
        match self.asked.verify(id, self.pattern(id), &reply) {
            Ok(()) => Answer::Right(u64::from(id)),
            Err(fault) => {
                let answer = if fault.is_refusal() { Answer::Refused(u64::from(id)) } else { Answer::Wrong };
                self.complain(fault.into(), answer)
            }
        }
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
    fn request_len_max(&self) -> usize {
        self.message_len() + self.fragments * MARK_LEN
    }

    #[inline]
    fn request_len(&self, id: RequestId) -> usize {
        self.head_len + self.asked.args_len(id as u32) + self.fragments * MARK_LEN
    }

    #[inline]
    fn reply_len_max(&self) -> usize {
        self.reply_max
    }

    #[inline]
    fn write(&self, id: RequestId, request: &mut [u8]) {
        let (id, marks) = (id as u32, self.fragments * MARK_LEN);
        let message = request.len() - marks;
        let (head, args) = request[marks..].split_at_mut(self.head_len);
        let written = self.call(id).write_to(head);
        debug_assert_eq!(written, Some(self.head_len), "as long as it was when it was counted");
        self.asked.write_args(id, self.pattern(id), args);
        match self.fragments {
            0 => {}
            1 => request[..MARK_LEN].copy_from_slice(&mark(message as u32, true)),
            fragments => split(fragments, request),
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
        for _ in 0..self.reply_fragments_max {
            let Some((first, _)) = stream.get(end..).and_then(<[u8]>::split_first_chunk::<MARK_LEN>) else {
                let missing = if stream.is_empty() { self.reply_len } else { end + MARK_LEN - stream.len() };
                return Cut::Partial { missing };
            };
            let mark = fragment_header::from(*first);
            end += MARK_LEN + mark.fragment_length() as usize;
            if end > self.reply_max {
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

/// How many bytes of a message the fragment with this index carries.
fn piece(message: usize, fragments: usize, index: usize) -> usize {
    match (fragments, index) {
        (2, 1) => message - 1,
        (_, 0) => 1,
        (_, last) if last + 1 == fragments => 1,
        _ => {
            let (between, rest) = (fragments - 2, message - 2);
            rest / between + usize::from(index - 1 < rest % between)
        }
    }
}

/// Puts a record mark in front of each fragment of a message, which is at the end of `request`, after the room for
/// all marks.
fn split(fragments: usize, request: &mut [u8]) {
    let message = request.len() - fragments * MARK_LEN;
    let (mut from, mut to) = (fragments * MARK_LEN, 0);
    for index in 0..fragments {
        let piece = piece(message, fragments, index);
        request[to..to + MARK_LEN].copy_from_slice(&mark(piece as u32, index + 1 == fragments));
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
