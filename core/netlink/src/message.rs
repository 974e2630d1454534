//! The messages of a datagram, or of an answer (`struct nlmsghdr`, linux/netlink.h).

use netlink_packet_core::NetlinkBuffer;

use crate::Attributes;

/// Length of `struct nlmsghdr`, and the alignment of messages, bytes.
pub(crate) const HEADER_LEN: usize = 16;
pub(crate) const ALIGN: usize = 4;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags (`NLM_F_*`).
    pub flags: u16,
    pub(crate) sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message of that type with that body.
    #[must_use]
    pub const fn new(kind: u16, body: &'a [u8]) -> Self {
        Self { kind, flags: 0, sequence: 0, body }
    }

    /// The fixed header of the body, and the attributes behind it; `None` if the body is shorter.
    #[must_use]
    pub fn parts<const N: usize>(self) -> Option<(&'a [u8; N], Attributes<'a>)> {
        let header = self.body.first_chunk()?;
        Some((header, Attributes::of(self.body.get(N.next_multiple_of(ALIGN)..).unwrap_or_default())))
    }
}

/// Messages one after the other. They end at the first one whose length is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// The messages in `bytes`, from their headers on.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let message = NetlinkBuffer::new_checked(self.0).ok()?;
        let len = (message.length() as usize).next_multiple_of(ALIGN);
        self.0 = self.0.get(len..).unwrap_or_default();
        Some(Message {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            body: message.payload(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_a_wrong_length_are_not_read() {
        let mut bytes = vec![0; 20];
        for len in [0_u32, 15, 21, u32::MAX] {
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Messages::of(&bytes).next(), None, "{len}");
        }
        bytes[..4].copy_from_slice(&20_u32.to_ne_bytes());
        let message = Messages::of(&bytes).next().unwrap();
        assert_eq!(message.body.len(), 4);
        assert_eq!((message.parts::<4>().is_some(), message.parts::<5>().is_some()), (true, false));
        // The last one may end within its padding.
        bytes[..4].copy_from_slice(&17_u32.to_ne_bytes());
        assert_eq!(Messages::of(&bytes[..17]).count(), 1);
    }
}
