//! What a load speaks: the bytes of a request, and what a reply says.

use crate::load::RequestId;

/// Requests and replies of one service, over one transport. All requests are equally long.
///
/// A codec neither allocates nor panics, whatever the bytes of a reply are.
pub trait Codec {
    /// A reply names its request by so many low bits of its number; 64: by the whole number. At least 32.
    const ID_BITS: u32;

    /// Bytes of each request, the framing of its transport included.
    fn request_len(&self) -> usize;

    /// The longest reply that can be right. What holds datagrams has room for one byte more, so that a longer one shows.
    fn reply_len_max(&self) -> usize;

    /// Fills request `id`, [`request_len`](Self::request_len) bytes.
    fn write(&self, id: RequestId, request: &mut [u8]);

    /// What a whole reply says; with its framing if it came in a stream.
    fn check(&mut self, reply: &[u8]) -> Answer;

    /// Where the first reply of a stream ends. Of an empty stream it lacks what a client may take at once without taking
    /// a part of the reply after it, as far as that can be told.
    fn cut(&self, stream: &[u8]) -> Cut;

    /// What the first reply was that was refused or wrong, in words; `None` where there is nothing to say about it.
    fn complaint(&self) -> Option<String> {
        None
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is right in every byte, and answers the request with these low bits.
    Right(u64),
    /// It answers that request, and says in due form that the service won't do it.
    Refused(u64),
    /// Anything else.
    Wrong,
}

/// How a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a reply of so many bytes.
    Whole(usize),
    /// With a part of one: it takes at least so many bytes more.
    Partial {
        /// At least 1.
        missing: usize,
    },
    /// With nothing that could be one: where the next begins is not to be told.
    Broken,
}
