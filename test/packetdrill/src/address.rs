//! Socket addresses as C has them (`ip(7)`, `ipv6(7)`).

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use crate::errno::{Answer, Errno};

/// The family of an address, in its first bytes.
///
/// # Errors
/// `EINVAL`: the address is too short to have one.
pub(crate) fn family(bytes: &[u8]) -> Answer<i32> {
    let family: [u8; 2] = bytes.first_chunk().copied().ok_or(Errno::EINVAL)?;
    Ok(i32::from(u16::from_ne_bytes(family)))
}

/// Reads a `sockaddr_in` or a `sockaddr_in6`. An IPv4 address that is mapped into IPv6 is one of IPv4.
///
/// # Errors
/// `EINVAL`, `EAFNOSUPPORT`.
pub(crate) fn from_c(bytes: &[u8]) -> Answer<SocketAddr> {
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match family(bytes)? {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8).and_then(|ip| ip.try_into().ok()).ok_or(Errno::EINVAL)?;
            Ok(SocketAddr::from((Ipv4Addr::from(ip), port(bytes))))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24).and_then(|ip| ip.try_into().ok()).ok_or(Errno::EINVAL)?;
            Ok(SocketAddr::from((IpAddr::from(ip).to_canonical(), port(bytes))))
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Writes a `sockaddr_in` or a `sockaddr_in6`.
pub(crate) fn to_c(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(it) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(it.port().to_be_bytes());
            bytes.extend(it.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(it) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(it.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(it.ip().octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// As a socket of the given family shows it: one of IPv6 shows an IPv4 address as a mapped one.
pub(crate) fn shown_by(family: i32, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(it) if family == libc::AF_INET6 => {
            SocketAddrV6::new(it.ip().to_ipv6_mapped(), it.port(), 0, 0).into()
        }
        other => other,
    }
}
