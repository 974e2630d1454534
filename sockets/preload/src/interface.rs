//! The interface of a socket for which no rule names one.
#![allow(unsafe_code, reason = "the C library lists interfaces by pointers")]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{c_int, c_uint, ifaddrs};
use twinpath_calls::WhyKernel;

/// The interface that has the address, or for sockets that are bound to none the only one beside the loopback that is up.
///
/// # Errors
/// Why there is none.
pub(crate) fn of(address: IpAddr) -> Result<String, WhyKernel> {
    let mut found: Vec<String> = Vec::new();
    for (name, has) in list() {
        let matches = if address.is_unspecified() { true } else { has == Some(address) };
        if matches && !found.contains(&name) {
            found.push(name);
        }
    }
    match found.len() {
        1 => Ok(found.swap_remove(0)),
        0 if address.is_unspecified() => Err(WhyKernel::NoInterface),
        0 => Err(WhyKernel::NoInterfaceHas(address)),
        _ => Err(WhyKernel::SeveralInterfaces(found.join(", "))),
    }
}

/// The name of an interface, or its index if it has none any more.
pub(crate) fn named(ifindex: u32) -> String {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: there is room for a name.
    let named = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if named.is_null() {
        return ifindex.to_string();
    }
    // SAFETY: the call has written a string of C.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
}

/// The interfaces that are up, without the loopback, with each of their addresses.
fn list() -> Vec<(String, Option<IpAddr>)> {
    let mut first: *mut ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills the pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = first;
    // SAFETY: the list is valid until it is freed below.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        let flags = one.ifa_flags;
        if flags & libc::IFF_UP as c_uint == 0 || flags & libc::IFF_LOOPBACK as c_uint != 0 {
            continue;
        }
        // SAFETY: the name is a string of C.
        let name = unsafe { CStr::from_ptr(one.ifa_name) }.to_string_lossy().into_owned();
        all.push((name, address_of(one)));
    }
    // SAFETY: it is the list of the call above.
    unsafe { libc::freeifaddrs(first) };
    all
}

fn address_of(one: &ifaddrs) -> Option<IpAddr> {
    // SAFETY: the address is null, or valid as long as the list.
    let family = c_int::from(unsafe { one.ifa_addr.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let address = unsafe { one.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let address = unsafe { one.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}
