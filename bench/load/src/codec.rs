//! The protocol of a load: how requests are written and replies checked.

/// The number of a request: its sequence number above [`SLOT_BITS`] bits of window slot.
pub type RequestId = u64;

/// Requests and replies of one service, over one transport.
///
/// A codec neither allocates nor panics, whatever the bytes of a reply are. It is called through a pointer,
/// so that the clients' loops are compiled once for all services. This costs two indirect calls per
/// request.
pub trait Codec: Send {
    /// The number of low bits of its request's number that a reply carries: 32 to 64, where 64 is the whole
    /// number.
    fn id_bits(&self) -> u32;

    /// Length of the longest request, including the transport's framing, bytes.
    fn request_len_max(&self) -> usize;

    /// Length of request `id`, including the transport's framing, bytes.
    fn request_len(&self, id: RequestId) -> usize;

    /// Length of the longest valid reply, bytes. A receive buffer for datagrams has one byte more, so that a longer
    /// one is detected.
    fn reply_len_max(&self) -> usize;

    /// Fills request `id`: [`request_len`](Self::request_len) bytes.
    fn write(&self, id: RequestId, request: &mut [u8]);

    /// Checks a whole reply, including its framing if it arrived in a stream.
    fn check(&mut self, reply: &[u8]) -> Answer;

    /// Finds the end of the first reply in a stream. For an empty stream, returns how many bytes a client
    /// may read without reading a part of the following reply, if that is known.
    fn cut(&self, stream: &[u8]) -> Cut;

    /// A description of the first reply that was refused or wrong; `None` if there is nothing to report.
    fn complaint(&self) -> Option<String> {
        None
    }
}

/// The result of checking a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Every byte is right; it answers the request with these low bits.
    Right(u64),
    /// It is a well-formed refusal of the request with these low bits.
    Refused(u64),
    /// It is anything else.
    Wrong,
}

/// The contents of the start of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A complete reply of this many bytes.
    Whole(usize),
    /// A part of a reply: at least this many bytes are missing.
    Partial {
        /// At least 1.
        missing: usize,
    },
    /// Bytes that are not a reply: the start of the next one cannot be found.
    Broken,
}
