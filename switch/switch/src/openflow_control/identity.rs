//! How a switch identifies itself to controllers.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use twinpath_openflow_wire::Desc;

/// The number of this installation of the system, machine-id(5).
const MACHINE_ID: &str = "/etc/machine-id";

/// The address of a port or switch that has none of its own: locally administered, of one host.
const fn local_address(hash: u64) -> u64 {
    hash & 0xfcff_ffff_ffff | 0x0200_0000_0000
}

fn hash(parts: &[&[u8]]) -> u64 {
    // The keys are fixed, so that the same comes out after each start.
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    for part in parts {
        hasher.write(part);
        hasher.write(&[0]);
    }
    hasher.finish()
}

/// The number by which controllers know a switch that was given none: the same as long as the system is installed and the
/// switch has this name. The lower 48 bits are as a MAC address (section 7.3.1).
pub(crate) fn datapath_id(name: &str) -> u64 {
    let machine = std::fs::read_to_string(MACHINE_ID).ok().map(|id| id.trim().to_owned());
    let machine = machine.filter(|id| !id.is_empty());
    // A container may have none.
    let machine =
        machine.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    local_address(hash(&[machine.as_bytes(), name.as_bytes()]))
}

/// The address of a port that has none of its own.
pub(crate) fn port_address(datapath_id: u64, number: u32) -> [u8; 6] {
    let address = local_address(hash(&[&datapath_id.to_be_bytes(), &number.to_be_bytes()]));
    let [_, _, a, b, c, d, e, f] = address.to_be_bytes();
    [a, b, c, d, e, f]
}

/// What `ovs-ofctl dump-desc` shows.
pub(crate) fn description(name: &str) -> Desc {
    Desc {
        manufacturer: "twinpath".to_owned(),
        hardware: "user-space switch".to_owned(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        serial_number: "none".to_owned(),
        datapath: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_the_same_and_are_addresses_of_one_host() {
        assert_eq!(datapath_id("sw0"), datapath_id("sw0"));
        assert_ne!(datapath_id("sw0"), datapath_id("sw1"));
        assert_eq!(datapath_id("sw0") >> 40 & 3, 2);
        assert_ne!(port_address(1, 2), port_address(1, 3));
        assert_eq!(port_address(1, 2)[0] & 3, 2);
    }
}
