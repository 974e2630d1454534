//! Which frames a flow takes: fields with values and masks (section 7.2.3).

use std::borrow::Cow;

use crate::error::{BadMatch, ErrorCode};
use crate::field::{Field, Prerequisite, requires_tag};
use crate::wire::{Put, Reader, Wire};

/// One field of a match. Values are numbers: the first byte on the wire is the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchField {
    /// The field.
    pub field: Field,
    /// Its value; 0 where the mask is 0.
    pub value: u128,
    /// The mask as it was sent; `None` if there was none.
    pub mask: Option<u128>,
}

impl MatchField {
    /// A field with all its bits.
    #[must_use]
    pub const fn exact(field: Field, value: u128) -> Self {
        Self { field, value, mask: None }
    }

    /// A field with a mask.
    #[must_use]
    pub const fn masked(field: Field, value: u128, mask: u128) -> Self {
        Self { field, value, mask: Some(mask) }
    }

    /// The bits that are compared.
    #[inline]
    #[must_use]
    pub const fn effective_mask(&self) -> u128 {
        match self.mask {
            Some(mask) => mask & self.field.full_mask(),
            None => self.field.full_mask(),
        }
    }

    /// Whether some of its bits are compared, and others are not.
    fn is_partly_masked(&self) -> bool {
        let mask = self.effective_mask();
        mask != 0 && mask != self.field.full_mask()
    }

    /// Whether it has a mask only if it needs one, and no bit in it that does not count.
    fn is_canonical(&self) -> bool {
        self.mask.is_none_or(|mask| mask == self.effective_mask() && self.is_partly_masked())
    }

    /// Checks value and mask by themselves.
    ///
    /// # Errors
    /// As section 7.2.3.5 says: a mask where none may be, a value bit where the mask is 0, bits that the field does
    /// not have.
    pub fn check(&self) -> Result<(), ErrorCode> {
        if let Some(mask) = self.mask {
            // All bits of it are the same as no mask (section 7.2.3.5).
            if !self.field.maskable() && self.effective_mask() != self.field.full_mask() {
                return Err(BadMatch::BadMask.into());
            }
            if self.value & !mask != 0 {
                return Err(BadMatch::BadWildcards.into());
            }
        }
        if self.field.accepts(self.value) { Ok(()) } else { Err(BadMatch::BadValue.into()) }
    }
}

/// A match: fields in the order in which they were sent, each once, each with its prerequisites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    fields: Box<[MatchField]>,
}

impl Match {
    /// A match of these fields; without any, it takes every frame.
    ///
    /// # Errors
    /// A field that is there twice, a bad value or mask, a prerequisite that is not met by the fields before it (section 7.2.3.6).
    pub fn new(fields: impl Into<Box<[MatchField]>>) -> Result<Self, ErrorCode> {
        let this = Self { fields: fields.into() };
        let mut seen = 0_u64;
        for (place, entry) in this.fields.iter().enumerate() {
            entry.check()?;
            let bit = 1 << entry.field.number();
            if seen & bit != 0 {
                return Err(BadMatch::DupField.into());
            }
            seen |= bit;
            // What a field needs comes before it.
            if !meets(&this.fields[..place], entry.field.prerequisite()) {
                return Err(BadMatch::BadPrereq.into());
            }
        }
        Ok(this)
    }

    /// Its fields, as they were sent.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> &[MatchField] {
        &self.fields
    }

    /// One field of it.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<&MatchField> {
        self.fields.iter().find(|entry| entry.field == field)
    }

    /// What it means, however it was written: fields by number, without those whose mask is 0, and without masks that
    /// have every bit. Two matches take the same frames exactly if this is the same (sections 6.4 and 7.2.3.5).
    #[must_use]
    pub fn canonical(&self) -> Cow<'_, [MatchField]> {
        // Most controllers write them so.
        let is_ordered = self.fields.is_sorted_by(|one, two| one.field < two.field);
        if is_ordered && self.fields.iter().all(MatchField::is_canonical) {
            return Cow::Borrowed(&self.fields);
        }
        let mut fields: Vec<_> = self
            .fields
            .iter()
            .filter(|entry| entry.effective_mask() != 0)
            .map(|entry| MatchField {
                mask: entry.is_partly_masked().then(|| entry.effective_mask()),
                ..*entry
            })
            .collect();
        fields.sort_unstable_by_key(|entry| entry.field);
        Cow::Owned(fields)
    }

    /// Whether both mean the same: [`Self::canonical`] of them is equal.
    #[must_use]
    pub fn means(&self, other: &Self) -> bool {
        self.fields == other.fields || self.canonical() == other.canonical()
    }

    /// Whether a frame can be taken by both (section 6.4, overlapping entries).
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.fields.iter().all(|one| {
            other
                .get(one.field)
                .is_none_or(|two| (one.value ^ two.value) & one.effective_mask() & two.effective_mask() == 0)
        })
    }

    /// Whether it takes every frame that `other` takes: its fields are all in `other`, with the same value and at
    /// least the same mask (section 6.4, non-strict).
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        self.fields.iter().all(|wide| {
            let mask = wide.effective_mask();
            mask == 0
                || other.get(wide.field).is_some_and(|narrow| {
                    narrow.effective_mask() & mask == mask && (narrow.value ^ wide.value) & mask == 0
                })
        })
    }
}

/// Whether a frame that has these fields meets a prerequisite.
fn meets(fields: &[MatchField], prerequisite: Prerequisite) -> bool {
    let get = |field| fields.iter().find(|entry| entry.field == field);
    match prerequisite {
        Prerequisite::None => true,
        Prerequisite::InPort => get(Field::InPort).is_some(),
        Prerequisite::Tagged => {
            get(Field::VlanVid).is_some_and(|entry| requires_tag(entry.value, entry.effective_mask()))
        }
        Prerequisite::OneOf(field, values) => {
            get(field).is_some_and(|entry| values.iter().any(|value| u128::from(*value) == entry.value))
        }
    }
}

/// Class of the fields that the specification defines (section 7.2.3.3, `OFPXMC_OPENFLOW_BASIC`).
pub(crate) const BASIC: u16 = 0x8000;
/// Type of a match in fields (section 7.2.3.1, `OFPMT_OXM`).
const OXM: u16 = 1;

/// The head of a field (section 7.2.3.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct OxmHead {
    /// The field; `None` if the specification does not define it.
    pub(crate) field: Option<Field>,
    pub(crate) has_mask: bool,
    /// Bytes of value and mask.
    pub(crate) len: usize,
}

impl OxmHead {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let class = reader.u16()?;
        let [kind, len] = reader.array()?;
        let field = (class == BASIC).then(|| Field::from_number(kind >> 1)).flatten();
        Ok(Self { field, has_mask: kind & 1 != 0, len: usize::from(len) })
    }

    pub(crate) fn write(field: Field, has_mask: bool, out: &mut Vec<u8>) {
        out.u16(BASIC);
        out.u8(field.number() << 1 | u8::from(has_mask));
        out.u8((field.wire_len() << u8::from(has_mask)) as u8);
    }
}

impl Wire for MatchField {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let head = OxmHead::read(reader)?;
        let field = head.field.ok_or(BadMatch::BadField)?;
        let len = field.wire_len();
        if head.len != len << u8::from(head.has_mask) {
            return Err(BadMatch::BadLen.into());
        }
        let value = reader.number(len)?;
        let mask = if head.has_mask { Some(reader.number(len)?) } else { None };
        Ok(Self { field, value, mask })
    }

    fn write(&self, out: &mut Vec<u8>) {
        OxmHead::write(self.field, self.mask.is_some(), out);
        out.number(self.value, self.field.wire_len());
        if let Some(mask) = self.mask {
            out.number(mask, self.field.wire_len());
        }
    }
}

/// The heads of fields, as far as they can be read.
fn heads(mut part: Reader<'_>) -> impl Iterator<Item = OxmHead> {
    std::iter::from_fn(move || {
        let head = OxmHead::read(&mut part).ok()?;
        part.skip(head.len).ok()?;
        Some(head)
    })
}

impl Wire for Match {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        if reader.u16()? != OXM {
            return Err(BadMatch::BadType.into());
        }
        // The length leaves the padding out (section 7.2.3.1).
        let len = reader.u16()?;
        let mut part = reader.counted(len, 4, BadMatch::BadLen)?;
        let mut fields = Vec::with_capacity(heads(part).take(Field::COUNT).count());
        while !part.is_empty() {
            if fields.len() == Field::COUNT {
                return Err(BadMatch::DupField.into());
            }
            fields.push(MatchField::read(&mut part)?);
        }
        let len = usize::from(len);
        reader.part(len.next_multiple_of(8) - len, BadMatch::BadLen)?;
        Self::new(fields)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(OXM);
        out.u16(0);
        out.list(&self.fields);
        out.put_len(start + 2, start);
        out.pad(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[MatchField]) -> Result<Match, ErrorCode> {
        Match::new(fields)
    }

    #[test]
    fn each_rule_has_its_error() {
        let eth = MatchField::exact(Field::EthType, 0x800);
        let cases = [
            (vec![eth, eth], BadMatch::DupField),
            (vec![MatchField::masked(Field::EthType, 0x800, 0xff00)], BadMatch::BadMask),
            (vec![MatchField::masked(Field::EthDst, 3, 1)], BadMatch::BadWildcards),
            (vec![eth, MatchField::exact(Field::IpDscp, 64)], BadMatch::BadValue),
            (vec![MatchField::exact(Field::IpProto, 6)], BadMatch::BadPrereq),
            (vec![eth, MatchField::exact(Field::Ipv6Src, 6)], BadMatch::BadPrereq),
            (
                vec![MatchField::exact(Field::VlanVid, 0), MatchField::exact(Field::VlanPcp, 1)],
                BadMatch::BadPrereq,
            ),
            (vec![MatchField::exact(Field::InPhyPort, 1)], BadMatch::BadPrereq),
            // Behind what needs it.
            (vec![MatchField::exact(Field::IpDscp, 1), eth], BadMatch::BadPrereq),
        ];
        for (fields, error) in cases {
            assert_eq!(of(&fields), Err(error.into()), "{fields:?}");
        }
    }

    #[test]
    fn a_mask_of_all_bits_is_none_where_none_may_be() {
        let exact =
            of(&[MatchField::exact(Field::EthType, 0x800), MatchField::exact(Field::IpProto, 6)]).unwrap();
        let masked = of(&[
            MatchField::masked(Field::EthType, 0x800, 0xffff),
            MatchField::masked(Field::IpProto, 6, 0xff),
        ]);
        assert!(masked.is_ok_and(|masked| masked.means(&exact)));
    }

    #[test]
    fn a_masked_tag_meets_the_prerequisite_of_its_priority() {
        let any_tag = MatchField::masked(Field::VlanVid, 0x1000, 0x1000);
        assert!(of(&[any_tag, MatchField::exact(Field::VlanPcp, 7)]).is_ok());
    }

    #[test]
    fn order_and_masks_stay_and_the_meaning_is_the_same() {
        let eth = MatchField::exact(Field::EthType, 0x800);
        let port = MatchField::exact(Field::InPort, 1);
        let one = of(&[eth, port, MatchField::masked(Field::Ipv4Src, 0, 0)]).unwrap();
        let two = of(&[port, eth]).unwrap();
        assert_eq!(one.fields()[0], eth);
        assert_ne!(one, two);
        assert_eq!(one.canonical(), two.canonical());
        assert!(one.includes(&two) && two.includes(&one));
    }

    #[test]
    fn overlap_and_inclusion_follow_the_masks() {
        let prefix = |value, mask| {
            of(&[MatchField::exact(Field::EthType, 0x800), MatchField::masked(Field::Ipv4Dst, value, mask)])
                .unwrap()
        };
        let (wide, narrow, other) = (
            prefix(0x0a00_0000, 0xff00_0000),
            prefix(0x0a01_0000, 0xffff_0000),
            prefix(0x0b00_0000, 0xff00_0000),
        );
        assert!(wide.includes(&narrow) && !narrow.includes(&wide));
        assert!(wide.overlaps(&narrow) && !wide.overlaps(&other));
        assert!(Match::default().includes(&wide) && Match::default().overlaps(&wide));
    }
}
