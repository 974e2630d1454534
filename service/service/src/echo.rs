//! Echo (RFC 862): every byte comes back.

use std::net::SocketAddr;

use crate::{Answer, Datagram, Instant, Output, Reason, Reflex, Service};

/// The echo service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Service for Echo {
    type Connection = ();

    #[inline]
    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        datagram.echo()
    }

    fn reflex(&self) -> Reflex {
        Reflex::Mirror
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    #[inline]
    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let len = input.len().min(output.room());
        let written = output.write(&input[..len]);
        debug_assert!(written, "room was asked for");
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_what_fits_and_leaves_the_rest() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4);
        assert_eq!(Echo.stream(Instant::ZERO, &mut (), b"abcdef", &mut output), 4);
        assert_eq!(Echo.stream(Instant::ZERO, &mut (), b"ef", &mut output), 0);
        assert_eq!(bytes, b"abcd");
    }

    #[test]
    fn a_datagram_comes_back_as_it_is() {
        let address = "192.0.2.1:9".parse().expect("an address");
        let mut buffer = *b"hello, and room";
        let mut datagram = Datagram::new(Instant::ZERO, address, address, &mut buffer, 5);
        assert_eq!(Echo.datagram(&mut datagram), Answer::Reply { len: 5 });
        assert_eq!(datagram.request(), b"hello");
        assert_eq!(datagram.answer(&[7; 15]), Answer::Reply { len: 15 });
        assert_eq!(datagram.answer(&[7; 16]), Answer::Drop(Reason::ReplyTooLarge), "never cut");
        let mut beside = crate::Beside::default();
        let mut datagram = Datagram::new(Instant::ZERO, address, address, &mut buffer, 5).with(&mut beside);
        assert_eq!(datagram.answer(&[7; 65_527]), Answer::Long);
        assert_eq!(datagram.answer(&[7; 65_528]), Answer::Drop(Reason::ReplyTooLarge));
        assert_eq!(datagram.later(Vec::new), Answer::Drop(Reason::HandlersBusy), "nobody allowed it");
        assert_eq!(beside.reply, [7; 65_527]);
        beside.later.allow(1);
        let mut datagram = Datagram::new(Instant::ZERO, address, address, &mut buffer, 5).with(&mut beside);
        assert_eq!(datagram.later(|| b"later".to_vec()), Answer::Later);
        assert!(!datagram.may_defer());
        let works: Vec<_> = beside.later.take().map(|job| job.work.run()).collect();
        assert_eq!(works, [b"later"]);
    }
}
