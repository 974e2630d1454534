//! The attributes of a message: a type of 16 bits and a value, each at a multiple of four bytes (`struct nlattr`, linux/netlink.h).

use netlink_packet_core::{NLA_ALIGNTO, NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator};

/// Attributes that are read. They end at the first one whose length is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Type and value of each attribute, in order. Flags are not part of the type.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(Result::ok).map(|attribute| {
            let (kind, len) = (attribute.kind(), usize::from(attribute.length()));
            (kind, attribute.into_inner().get(NLA_HEADER_SIZE..len).unwrap_or_default())
        })
    }

    /// The value of the first attribute of a type.
    #[must_use]
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// The attributes in the value of another one; none if that is not there.
    #[must_use]
    pub fn inside(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    /// The value of an attribute that has this many bytes, or more.
    #[must_use]
    pub fn array<const N: usize>(self, kind: u16) -> Option<[u8; N]> {
        self.get(kind)?.first_chunk().copied()
    }

    /// The value of an attribute of 32 bits, in the machine's byte order.
    #[must_use]
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_ne_bytes)
    }

    /// As [`Self::u32`], signed.
    #[must_use]
    pub fn i32(self, kind: u16) -> Option<i32> {
        self.array(kind).map(i32::from_ne_bytes)
    }

    /// The value of an unsigned attribute of exactly 32 or 64 bits.
    #[must_use]
    pub fn unsigned(self, kind: u16) -> Option<u64> {
        let bytes = self.get(kind)?;
        match bytes.len() {
            4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// The text of an attribute, up to its zero byte; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(self, kind: u16) -> Option<String> {
        let text = self.get(kind)?.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// The body of a request: a fixed header, and attributes behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(Vec<u8>);

impl Body {
    /// A body that begins with a fixed header. Without one (`[]`), it holds the attributes nested in another
    /// attribute.
    #[must_use]
    pub fn new(header: impl Into<Vec<u8>>) -> Self {
        Self(header.into())
    }

    /// Adds an attribute; one without bytes is a flag. A value of 64 KiB or more does not fit into a message and is
    /// truncated.
    #[must_use]
    pub fn bytes(mut self, kind: u16, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let len = u16::try_from(NLA_HEADER_SIZE + value.len()).unwrap_or(u16::MAX);
        self.0.resize(self.0.len().next_multiple_of(NLA_ALIGNTO), 0);
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(&value[..usize::from(len) - NLA_HEADER_SIZE]);
        self.0.resize(self.0.len().next_multiple_of(NLA_ALIGNTO), 0);
        self
    }

    /// Adds an attribute with a text, which ends with a zero byte.
    #[must_use]
    pub fn text(self, kind: u16, text: &str) -> Self {
        self.bytes(kind, [text.as_bytes(), b"\0"].concat())
    }

    /// Adds an attribute of 32 bits.
    #[must_use]
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, value.to_ne_bytes())
    }

    /// Adds an unsigned attribute in the width that it needs. Most attributes accept 32 or 64 bits (`NLA_UINT`),
    /// the others only 32.
    #[must_use]
    pub fn uint(self, kind: u16, value: u64) -> Self {
        match u32::try_from(value) {
            Ok(small) => self.u32(kind, small),
            Err(_) => self.bytes(kind, value.to_ne_bytes()),
        }
    }

    /// Adds an attribute that contains others.
    #[must_use]
    pub fn nested(self, kind: u16, inside: &Self) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inside.0)
    }

    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inside = Body::new([]).text(1, "fq").bytes(2, [7]);
        let body = Body::new([9; 4]).u32(3, 70).nested(4, &inside).bytes(5, []).uint(6, 1 << 32);
        assert_eq!(body.as_slice().len() % NLA_ALIGNTO, 0);
        let attributes = Attributes::of(&body.as_slice()[4..]);
        assert_eq!(
            (attributes.u32(3), attributes.i32(3), attributes.unsigned(3)),
            (Some(70), Some(70), Some(70))
        );
        assert_eq!(attributes.inside(4).text(1).as_deref(), Some("fq"), "the flag is not part of the type");
        assert_eq!(attributes.inside(4).get(2), Some(&[7][..]));
        assert_eq!((attributes.get(5), attributes.get(7)), (Some(&[][..]), None));
        assert_eq!((attributes.unsigned(6), attributes.unsigned(4)), (Some(1 << 32), None));
        assert_eq!(attributes.inside(7).iter().count(), 0);
    }

    #[test]
    fn attributes_with_a_wrong_length_are_not_read() {
        for len in [0_u16, 3, 9, u16::MAX] {
            let bytes = [&len.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[1; 4]].concat();
            assert_eq!(Attributes::of(&bytes).get(1), None, "{len}");
        }
        let bytes = [8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9, 0, 0, 0, 12, 0, 3, 0, 1];
        let attributes = Attributes::of(&bytes);
        assert_eq!((attributes.get(1), attributes.get(2)), (Some(&[1, 2, 3, 4][..]), Some(&[9][..])));
        assert_eq!((attributes.get(3), attributes.array::<5>(1)), (None, None));
    }

    #[test]
    fn a_value_that_is_too_long_for_its_length_is_cut() {
        let body = Body::new([]).bytes(1, vec![1; 1 << 17]);
        assert_eq!(Attributes::of(body.as_slice()).get(1).map(<[u8]>::len), Some(usize::from(u16::MAX) - 4));
    }
}
