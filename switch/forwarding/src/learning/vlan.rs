//! Sets of VLANs.

use core::fmt;

/// The highest VLAN identifier that a network may use (IEEE 802.1Q, table 9-2: 4095 is reserved).
pub const VLAN_MAX: u16 = 4094;

/// The VLAN of a port that has no VLAN configuration (IEEE 802.1Q, 9.6: the default PVID).
pub const VLAN_DEFAULT: u16 = 1;

/// Words of the bitmap.
const WORDS: usize = 4096 / 64;

/// A set of VLANs, as a bitmap: 512 bytes, one load per question.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; WORDS]>);

impl VlanSet {
    /// The empty set.
    #[must_use]
    pub fn none() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// Every VLAN, 1 to [`VLAN_MAX`].
    #[must_use]
    pub fn all() -> Self {
        (1..=VLAN_MAX).collect()
    }

    /// Adds a VLAN. Numbers outside 1 to [`VLAN_MAX`] are ignored: no frame can be in them.
    pub fn insert(&mut self, vlan: u16) {
        if (1..=VLAN_MAX).contains(&vlan) {
            self.0[usize::from(vlan) / 64] |= 1 << (vlan % 64);
        }
    }

    /// Whether it has this VLAN.
    #[inline]
    #[must_use]
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.get(usize::from(vlan) / 64).is_some_and(|word| word >> (vlan % 64) & 1 != 0)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Its VLANs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (1..=VLAN_MAX).filter(|vlan| self.contains(*vlan))
    }
}

impl FromIterator<u16> for VlanSet {
    fn from_iter<I: IntoIterator<Item = u16>>(vlans: I) -> Self {
        let mut set = Self::none();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

/// As ranges: `1,10-19`.
impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut vlans = self.iter().peekable();
        while let Some(first) = vlans.next() {
            let mut last = first;
            while let Some(next) = vlans.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_inserted_and_nothing_that_no_frame_can_be_in() {
        let set: VlanSet = [0, 1, 63, 64, 65, 4094, 4095, u16::MAX].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 63, 64, 65, 4094]);
        assert_eq!(set.to_string(), "1,63-65,4094");
        for absent in [0, 2, 4095, 4096, u16::MAX] {
            assert!(!set.contains(absent), "{absent}");
        }
        assert_eq!(VlanSet::all().to_string(), "1-4094");
        assert!(VlanSet::none().is_empty() && !set.is_empty());
    }
}
