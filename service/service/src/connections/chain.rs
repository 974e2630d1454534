//! Output in pieces, so that a long reply is moved to where it is sent from, and not copied.

use std::collections::VecDeque;

use twinpath_stream::{Broken, Transport};

/// Up to this many bytes, output is joined to what waits before it: short replies leave in one call of the transport.
const JOINED_MAX: usize = 64 << 10;

/// Bytes that wait to be sent, in order.
#[derive(Default)]
pub(crate) struct Chain {
    /// None is empty.
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    /// Bytes that wait.
    len: usize,
}

impl Chain {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.iter().map(Vec::capacity).sum()
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.len += bytes.len();
        if !self.join(&bytes) && !bytes.is_empty() {
            // A buffer that is half empty at least does not stay.
            let is_tight = bytes.capacity() / 2 <= bytes.len();
            self.pieces.push_back(if is_tight { bytes } else { bytes.as_slice().to_vec() });
        }
    }

    /// Appends bytes of another place.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        if !self.join(bytes) && !bytes.is_empty() {
            self.pieces.push_back(bytes.to_vec());
        }
    }

    /// Appends bytes to the last piece, if it is short with them.
    fn join(&mut self, bytes: &[u8]) -> bool {
        let last = self.pieces.back_mut().filter(|last| last.len() + bytes.len() <= JOINED_MAX);
        last.map(|last| last.extend_from_slice(bytes)).is_some()
    }

    /// Appends all of another one, of which nothing has been sent, and leaves that empty.
    pub(crate) fn append(&mut self, other: &mut Self) {
        debug_assert_eq!(other.sent, 0, "what is half sent stays where it is");
        std::mem::take(other).pieces.into_iter().for_each(|piece| self.push(piece));
    }

    /// Sends what waits; returns the number of bytes that the transport took.
    pub(crate) fn send(&mut self, transport: &mut impl Transport) -> Result<usize, Broken> {
        let waiting = self.len;
        while let Some(first) = self.pieces.front() {
            let rest = &first[self.sent..];
            let (sent, is_all) = transport.send(rest).map(|sent| (sent, sent == rest.len()))?;
            self.len -= sent;
            self.sent += sent;
            if !is_all {
                break;
            }
            self.sent = 0;
            self.pieces.pop_front();
        }
        Ok(waiting - self.len)
    }
}

#[cfg(test)]
mod tests {
    use twinpath_stream::{Lent, Received};

    use super::*;

    /// Takes so many bytes in each call.
    struct Narrow {
        calls: Vec<usize>,
        taken: Vec<u8>,
    }

    impl Transport for Narrow {
        fn receive(&mut self, _: usize) -> Result<Received, Broken> {
            Ok(Received::Nothing)
        }

        fn lend(&mut self, _: usize) -> Lent<'_> {
            Lent { received: &[], room: &mut [] }
        }

        fn consume(&mut self, _: usize) {}

        fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
            Ok(bytes)
        }

        fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
            let sent = self.calls.pop().unwrap_or_default().min(bytes.len());
            self.taken.extend_from_slice(&bytes[..sent]);
            Ok(sent)
        }

        fn finish(&mut self) -> Result<(), Broken> {
            Ok(())
        }

        fn acknowledged(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_long_reply_is_moved_and_short_ones_are_joined() {
        let long = vec![1; 1 << 20];
        let place = long.as_ptr();
        let mut ready = Chain::default();
        for piece in [vec![0; 100], long, vec![2; 100], Vec::new(), vec![3; 100]] {
            ready.push(piece);
        }
        ready.push_copy(&[4; 100]);
        let mut unsent = Chain::default();
        unsent.append(&mut ready);
        assert!(ready.is_empty() && ready.capacity() == 0);
        assert_eq!((unsent.pieces.len(), unsent.len()), (3, (1 << 20) + 400));
        assert_eq!(unsent.pieces[1].as_ptr(), place);
        // The room for a whole block behind the end of a file.
        let mut sparse = Vec::with_capacity(1 << 20);
        sparse.extend_from_slice(&[5; 70_000]);
        unsent.push(sparse);
        assert!(unsent.capacity() < (1 << 20) + 150_000, "{}", unsent.capacity());
    }

    #[test]
    fn what_the_transport_does_not_take_waits() {
        let mut chain = Chain::default();
        let wanted: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        let (mut narrow, mut done) = (Narrow { calls: vec![], taken: vec![] }, 0);
        wanted.chunks(100_000).for_each(|piece| chain.push(piece.to_vec()));
        for calls in [vec![], vec![10], vec![99_990], vec![70_000, 100_000], vec![usize::MAX; 2]] {
            narrow.calls = calls;
            done += chain.send(&mut narrow).expect("it never breaks");
            assert_eq!((narrow.taken.len(), chain.len()), (done, wanted.len() - done));
        }
        assert!(chain.is_empty() && chain.send(&mut narrow) == Ok(0));
        assert_eq!(narrow.taken, wanted);
    }
}
