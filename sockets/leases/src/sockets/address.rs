//! The address of a sender, as the kernel's socket would report it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// How a socket sees addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// It is an IPv6 socket, to which IPv4 addresses are mapped (RFC 4291 section 2.5.5.2).
    pub(crate) is_v6: bool,
    /// The interface, which is part of a link-local address.
    pub(crate) ifindex: u32,
}

impl View {
    /// `source` was read from a frame.
    pub(crate) fn of(self, source: SocketAddr) -> SocketAddr {
        match source.ip() {
            IpAddr::V4(v4) if self.is_v6 => {
                SocketAddr::V6(SocketAddrV6::new(v4.to_ipv6_mapped(), source.port(), 0, 0))
            }
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddr::V6(SocketAddrV6::new(v6, source.port(), 0, self.ifindex))
            }
            _ => source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_both_families_sees_mapped_addresses_and_link_local_ones_have_a_scope() {
        let seen = |is_v6, source: &str| View { is_v6, ifindex: 3 }.of(source.parse().expect("an address"));
        assert_eq!(seen(false, "192.0.2.1:5"), "192.0.2.1:5".parse().expect("an address"));
        assert_eq!(seen(true, "192.0.2.1:5"), "[::ffff:192.0.2.1]:5".parse().expect("an address"));
        assert_eq!(seen(true, "[2001:db8::1]:5"), "[2001:db8::1]:5".parse().expect("an address"));
        assert_eq!(seen(true, "[fe80::1]:5"), "[fe80::1%3]:5".parse().expect("an address"));
    }
}
