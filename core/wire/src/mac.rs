//! The Ethernet address.

use core::fmt;
use core::str::FromStr;

/// An Ethernet (MAC) address, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set: multicast or broadcast (IEEE 802.3 clause 3.2.3).
    #[inline]
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not six hexadecimal bytes joined by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six hexadecimal bytes joined by colons, as in 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacError {}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacError)?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let mac: Mac = "02:00:5e:aB:0:fF".parse().unwrap();
        assert_eq!(mac, Mac([2, 0, 0x5e, 0xab, 0, 0xff]));
        assert_eq!(mac.to_string(), "02:00:5e:ab:00:ff");
        for bad in
            ["", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:g", "1:2:3:4:5:+6", "001:2:3:4:5:6", "1:2:3:4:5:"]
        {
            assert_eq!(bad.parse::<Mac>(), Err(MacError), "{bad}");
        }
    }

    #[test]
    fn the_group_bit_is_the_lowest_of_the_first_byte() {
        assert!(Mac::BROADCAST.is_group() && Mac([1, 0, 0x5e, 0, 0, 1]).is_group());
        assert!(!Mac([2, 1, 1, 1, 1, 1]).is_group() && !Mac([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff]).is_group());
    }

    #[test]
    fn a_text_that_is_no_address_gets_an_example() {
        assert!(MacError.to_string().contains("02:00:00:00:00:01"));
    }
}
