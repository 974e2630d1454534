//! Maps of congested ports.

/// Bytes of a map: a bit for each port.
pub const MAP_LEN: usize = 8192;

/// Which ports of a host are congested: their queues are full, and senders hold back. The bit of a port is in the byte
/// `port / 8`, counted from the lowest bit (Linux: little-endian bit order).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionMap(Box<[u8; MAP_LEN]>);

impl Default for CongestionMap {
    fn default() -> Self {
        Self(Box::new([0; MAP_LEN]))
    }
}

impl CongestionMap {
    /// A map from the payload of a message; `None` if that has another length.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut map = Self::default();
        (payload.len() == MAP_LEN).then(|| map.0.copy_from_slice(payload))?;
        Some(map)
    }

    /// The payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; MAP_LEN] {
        &self.0
    }

    /// Whether the port is congested.
    #[must_use]
    pub fn has(&self, port: u16) -> bool {
        self.0[usize::from(port / 8)] & 1 << (port % 8) != 0
    }

    /// Sets whether the port is congested; returns whether that was otherwise before.
    pub fn set(&mut self, port: u16, is_congested: bool) -> bool {
        let was = self.has(port);
        let (byte, bit) = (&mut self.0[usize::from(port / 8)], 1 << (port % 8));
        if is_congested {
            *byte |= bit
        } else {
            *byte &= !bit
        }
        was != is_congested
    }

    /// The congested ports, in ascending order.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        (0..=u16::MAX).filter(|&port| self.has(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_lowest() {
        let mut map = CongestionMap::default();
        assert!(map.set(4000, true) && !map.set(4000, true) && map.set(u16::MAX, true));
        assert_eq!((map.as_bytes()[500], map.as_bytes()[MAP_LEN - 1]), (1, 0x80));
        assert_eq!(map.ports().collect::<Vec<_>>(), [4000, u16::MAX]);
        assert_eq!(CongestionMap::parse(map.as_bytes()).as_ref(), Some(&map));
        assert!(map.set(4000, false) && !map.has(4000));
        assert_eq!(CongestionMap::parse(&[0; MAP_LEN - 1]), None);
    }
}
