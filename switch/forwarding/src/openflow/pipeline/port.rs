//! The ports of a switch, as its tables need them.

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its OpenFlow number; the local port's is [`number::port::LOCAL`](twinpath_openflow_wire::number::port::LOCAL).
    pub number: u32,
    /// Whether frames that arrive are dropped (`OFPPC_NO_RECV`, or the port is down).
    pub no_receive: bool,
    /// Whether frames to it are dropped (`OFPPC_NO_FWD`, or the port is down).
    pub no_forward: bool,
    /// Whether frames that match nothing are not sent to controllers (`OFPPC_NO_PACKET_IN`).
    pub no_packet_in: bool,
    /// Whether buckets that watch it are live (`OFPPS_LIVE`).
    pub is_live: bool,
}

impl Port {
    /// A port that is live and does everything.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self { number, no_receive: false, no_forward: false, no_packet_in: false, is_live: true }
    }
}

/// The ports of a version, by ascending number.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    sorted: Vec<Port>,
}

impl Ports {
    pub(crate) fn new(mut ports: Vec<Port>) -> Self {
        ports.sort_by_key(|port| port.number);
        ports.dedup_by_key(|port| port.number);
        Self { sorted: ports }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Port> {
        // Most switches have ports 1, 2, 3 and so on.
        let guess = self.sorted.get((number as usize).wrapping_sub(1)).filter(|port| port.number == number);
        guess.or_else(|| {
            let at = self.sorted.binary_search_by_key(&number, |port| port.number).ok()?;
            self.sorted.get(at)
        })
    }

    /// Whether frames to this port are dropped; not if nothing is known of the port.
    #[inline]
    #[must_use]
    pub fn is_closed(&self, number: u32) -> bool {
        self.get(number).is_some_and(|port| port.no_forward)
    }

    pub(crate) fn all(&self) -> &[Port] {
        &self.sorted
    }
}
