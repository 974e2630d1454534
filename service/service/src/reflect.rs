//! Reflect: every frame returns to its sender with its addresses swapped. It is the smallest service, and
//! can be used as a template.

use std::net::SocketAddr;

use crate::{Answer, EthernetFrame, Instant, Reason, Reflex, Service};

/// The reflecting service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reflect;

impl Service for Reflect {
    type Connection = ();

    #[inline]
    fn frame(&mut self, frame: &mut EthernetFrame<'_>) -> Answer {
        frame.swap_addresses();
        frame.echo()
    }

    fn reflex(&self) -> Reflex {
        Reflex::Mirror
    }

    /// Frames have no connections.
    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Err(Reason::ServiceRefused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_back_to_its_sender() {
        let mut buffer = *b"ddddddssssss\x88\xb5payload, and room";
        let mut frame = EthernetFrame::new(&mut buffer, 21);
        assert_eq!(Reflect.frame(&mut frame), Answer::Reply { len: 21 });
        assert_eq!(frame.request(), b"ssssssdddddd\x88\xb5payload");
    }

    #[test]
    fn a_frame_without_addresses_is_left_alone() {
        let mut buffer = *b"short, in a longer buffer";
        let mut frame = EthernetFrame::new(&mut buffer, 5);
        frame.swap_addresses();
        assert_eq!(frame.request(), b"short");
    }

    #[test]
    fn there_are_no_connections() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        assert_eq!(Reflect.accept(Instant::ZERO, peer), Err(Reason::ServiceRefused));
    }
}
