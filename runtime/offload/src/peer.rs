//! The other end of a veth pair.

use std::io;

use twinpath_netlink::Netlink;

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h
const NETLINK_ROUTE: isize = 0;
const RTM_GETLINK: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
const IFLA_LINK: u16 = 5;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_TARGET_NETNSID: u16 = 46;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Bytes of `struct ifinfomsg`, and of the header of an attribute.
const INFO_LEN: usize = 16;
const ATTRIBUTE_LEN: usize = 4;

/// The address of the other end of a veth pair, if that end is in another network namespace and the kernel tells; `None` for
/// all other interfaces. The interface is one of the calling thread's namespace.
///
/// # Errors
/// There is no such interface, or the kernel does not answer.
pub fn peer_of(ifindex: u32) -> io::Result<Option<[u8; 6]>> {
    let netlink = Netlink::connect(NETLINK_ROUTE)?;
    let own = attributes_of(&netlink, ifindex, None)?;
    let kind = attribute(&own, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND));
    let number = |kind| attribute(&own, kind)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    let (Some(peer), Some(namespace)) = (number(IFLA_LINK), number(IFLA_LINK_NETNSID)) else {
        return Ok(None);
    };
    if kind.is_none_or(|kind| !kind.starts_with(b"veth")) || namespace < 0 {
        return Ok(None);
    }
    let Ok(peer) = attributes_of(&netlink, peer as u32, Some(namespace)) else { return Ok(None) };
    Ok(attribute(&peer, IFLA_ADDRESS).and_then(|address| address.try_into().ok()))
}

/// The attributes of a link; `namespace` is the number that the calling thread's namespace has for another one.
fn attributes_of(netlink: &Netlink, ifindex: u32, namespace: Option<i32>) -> io::Result<Vec<u8>> {
    let mut request = vec![0; INFO_LEN];
    request[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    if let Some(namespace) = namespace {
        request.extend((ATTRIBUTE_LEN as u16 + 4).to_ne_bytes());
        request.extend(IFLA_TARGET_NETNSID.to_ne_bytes());
        request.extend(namespace.to_ne_bytes());
    }
    let mut attributes = Vec::new();
    netlink.request(RTM_GETLINK, 0, &request, |_, body| {
        attributes = body.get(INFO_LEN..).unwrap_or_default().to_vec();
    })?;
    Ok(attributes)
}

/// The value of the first attribute of that type.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let value = bytes.get(ATTRIBUTE_LEN..len)?;
        if kind & NLA_TYPE_MASK == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_with_a_wrong_length_are_not_read() {
        for len in [0_u16, 3, 9, u16::MAX] {
            let bytes = [&len.to_ne_bytes()[..], &IFLA_ADDRESS.to_ne_bytes(), &[1; 4]].concat();
            assert_eq!(attribute(&bytes, IFLA_ADDRESS), None);
        }
        let bytes = [&8_u16.to_ne_bytes()[..], &IFLA_ADDRESS.to_ne_bytes(), &[1; 4]].concat();
        assert_eq!(attribute(&bytes, IFLA_ADDRESS), Some(&[1; 4][..]));
        assert_eq!(attribute(&bytes, IFLA_LINK), None);
    }
}
