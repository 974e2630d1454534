//! Source ports from which no request is served, so that two services do not answer each other for ever.

/// Well-known UDP services that answer any datagram. A datagram from such a port is refused: a forged one could make
/// two services answer each other for ever (CERT CA-1996-01). Sorted.
///
/// echo 7, discard 9, daytime 13, qotd 17, chargen 19, time 37, DNS 53, TFTP 69, portmap 111, NTP 123, NetBIOS 137,
/// SNMP 161, kpasswd 464, SSDP 1900, mDNS 5353, memcached 11211.
pub const ANSWERING_PORTS: [u16; 16] =
    [7, 9, 13, 17, 19, 37, 53, 69, 111, 123, 137, 161, 464, 1900, 5353, 11211];

/// Whether a request from `source` to `destination` is refused because of its ports: the sender would answer the
/// reply, or cannot receive it.
#[inline]
#[must_use]
pub fn answers_by_itself(source: u16, destination: u16) -> bool {
    // Port 0 cannot be answered (RFC 768); our own port belongs to another instance of the same service.
    source == 0 || source == destination || ANSWERING_PORTS.binary_search(&source).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_answer_are_refused() {
        assert!(ANSWERING_PORTS.is_sorted());
        for source in ANSWERING_PORTS.into_iter().chain([0, 7000]) {
            assert!(answers_by_itself(source, 7000), "{source}");
        }
        assert!(!answers_by_itself(4000, 7000) && !answers_by_itself(8, 7000));
    }
}
