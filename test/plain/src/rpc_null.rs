//! The little that the bare RPC servers implement of ONC RPC: where a call's record ends, its xid, and one fixed
//! reply. They check nothing.

/// The whole reply to a NULL call, after its record mark: xid, REPLY, MSG_ACCEPTED, a verifier of AUTH_NONE without a
/// body, SUCCESS (RFC 5531, section 9). The xid is written over the first four bytes.
pub(crate) const REPLY: [u8; 24] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The bit of a record mark that marks the last fragment (RFC 5531, section 11).
pub const LAST_FRAGMENT: u32 = 1 << 31;
/// Length of a record mark, and of the xid.
const WORD: usize = 4;
/// A reply over TCP: the mark of its one fragment, then [`REPLY`].
pub(crate) const RECORD_BYTES: usize = WORD + REPLY.len();
/// Most replies that are sent with one system call.
pub(crate) const REPLIES_MAX: usize = 1024;

/// A NULL call of NFSv3 without credentials, as one record (RFC 5531, section 9): xid, CALL, version 2, the program and its
/// version, procedure 0, AUTH_NONE twice.
#[must_use]
pub fn null_call(xid: u32) -> Vec<u8> {
    let words = [xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let mark = LAST_FRAGMENT | (WORD * words.len()) as u32;
    std::iter::once(mark).chain(words).flat_map(u32::to_be_bytes).collect()
}

/// The replies of one connection. All their bytes are written in advance, except the xid of each.
pub(crate) struct Replies {
    bytes: Box<[u8]>,
    count: usize,
}

impl Replies {
    pub(crate) fn new() -> Self {
        let mut record = [0; RECORD_BYTES];
        record[..WORD].copy_from_slice(&(LAST_FRAGMENT | REPLY.len() as u32).to_be_bytes());
        record[WORD..].copy_from_slice(&REPLY);
        Self { bytes: record.repeat(REPLIES_MAX).into(), count: 0 }
    }

    /// The replies not yet sent, as bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count * RECORD_BYTES]
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    #[inline]
    fn add(&mut self, xid: [u8; WORD]) {
        self.bytes[self.count * RECORD_BYTES + WORD..][..WORD].copy_from_slice(&xid);
        self.count += 1;
    }
}

/// The position in a stream of records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The xid of the present record, and how many of its bytes have come: the first fragment may be shorter.
    xid: [u8; WORD],
    come: usize,
}

impl Records {
    /// Adds a reply for every record that ends within `input`, as far as there is room; returns the number of bytes
    /// consumed: whole fragments only.
    #[inline]
    pub(crate) fn answer(&mut self, input: &[u8], replies: &mut Replies) -> usize {
        let mut used = 0;
        while replies.count < REPLIES_MAX
            && let Some((mark, rest)) = input[used..].split_first_chunk::<WORD>()
        {
            let mark = u32::from_be_bytes(*mark);
            let Some(fragment) = rest.get(..(mark & !LAST_FRAGMENT) as usize) else { break };
            match fragment.first_chunk() {
                Some(first) if self.come == 0 => (self.xid, self.come) = (*first, WORD),
                _ => self.gather(fragment),
            }
            if mark & LAST_FRAGMENT != 0 {
                replies.add(self.xid);
                self.come = 0;
            }
            used += WORD + fragment.len();
        }
        used
    }

    /// Takes what is missing of the xid.
    fn gather(&mut self, fragment: &[u8]) {
        for (place, byte) in self.xid[self.come..].iter_mut().zip(fragment) {
            *place = *byte;
            self.come += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = bytes.len() as u32 | if last { LAST_FRAGMENT } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn every_record_gets_its_xid_back_wherever_the_stream_is_cut() {
        let call = |xid: u8| [&[1, 2, 3, xid][..], &[0; 36]].concat();
        let stream = [
            fragment(true, &call(1)),
            fragment(false, &call(2)[..12]),
            fragment(false, &[]),
            fragment(true, &call(2)[12..]),
            fragment(false, &call(3)[..1]),
            fragment(false, &call(3)[1..39]),
            fragment(true, &call(3)[39..]),
            fragment(true, &call(4)),
        ]
        .concat();
        let expected: Vec<u8> = [1_u8, 2, 3, 4]
            .iter()
            .flat_map(|xid| [&[0x80, 0, 0, 24], &[1, 2, 3, *xid], &REPLY[4..]].concat())
            .collect();
        for step in 1..=stream.len() {
            let (mut records, mut replies, mut from) = (Records::default(), Replies::new(), 0);
            for to in (step..stream.len()).step_by(step).chain([stream.len()]) {
                from += records.answer(&stream[from..to], &mut replies);
            }
            assert_eq!((from, replies.bytes()), (stream.len(), &expected[..]), "{step}");
        }
    }

    #[test]
    fn a_full_reply_buffer_leaves_the_rest_for_the_next_one() {
        let stream = fragment(true, &[7; 40]).repeat(REPLIES_MAX + 3);
        let (mut records, mut replies) = (Records::default(), Replies::new());
        let used = records.answer(&stream, &mut replies);
        assert_eq!((used, replies.bytes().len()), (44 * REPLIES_MAX, RECORD_BYTES * REPLIES_MAX));
        replies.clear();
        assert_eq!(records.answer(&stream[used..], &mut replies), 3 * 44);
        assert_eq!(replies.bytes().len(), 3 * RECORD_BYTES);
    }
}
