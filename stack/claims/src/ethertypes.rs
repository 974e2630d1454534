//! EtherTypes that may never be claimed, by name: the host, or the network it is part of, stops working without them.
//!
//! The numbers are those of include/uapi/linux/if_ether.h in Linux 6.18, which follows the IEEE's registry.

use twinpath_wire::EtherType;

/// These EtherTypes, their names and what would stop working, in ascending order.
const RESERVED: [(u16, &str, &str); 43] = [
    (0x0800, "IPv4", "IP is claimed by port"),
    (0x0806, "ARP", "no peer would find this host any more"),
    (0x22ea, "SRP (IEEE 802.1Q)", "bridges reserve bandwidth by it"),
    (0x22eb, "ERSPAN type III", "the kernel's tunnels carry it"),
    (0x22f0, "TSN (IEEE 1722)", "streams with a schedule depend on the kernel's stack"),
    (0x4305, "batman-adv", "the mesh that the host is part of is run by it"),
    (0x6558, "Ethernet in a tunnel", "the kernel's tunnels carry it"),
    (0x8035, "RARP", "the addresses of guests that move are told by it"),
    (0x8100, "a VLAN tag (802.1Q)", "tags are claimed by `vlan`"),
    (0x86dd, "IPv6", "IP is claimed by port"),
    (0x8808, "pause frames", "they are the link's flow control"),
    (0x8809, "slow protocols (LACP)", "link aggregation would fall apart"),
    (0x8847, "MPLS", "the kernel routes by it"),
    (0x8848, "MPLS multicast", "the kernel routes by it"),
    (0x8863, "PPPoE discovery", "the host's uplink may be set up by it"),
    (0x8864, "PPPoE sessions", "the host's uplink may be carried by it"),
    (0x886c, "wireless link control", "wireless drivers and their daemons use it"),
    (0x888e, "EAPOL (802.1X)", "the switch would close the port"),
    (0x8892, "PROFINET", "machines are controlled by it"),
    (0x8899, "Realtek switch tags", "the switch's ports are told apart by it"),
    (0x88a2, "ATA over Ethernet", "the host's disks may be behind it"),
    (0x88a4, "EtherCAT", "machines are controlled by it"),
    (0x88a8, "a service VLAN tag (802.1ad)", "tags are claimed by `vlan`"),
    (0x88be, "ERSPAN type II", "the kernel's tunnels carry it"),
    (0x88c7, "802.11 preauthentication", "wireless peers would be refused"),
    (0x88ca, "TIPC", "the kernel's cluster sockets use it"),
    (0x88cc, "LLDP", "the switch's view of the host, and DCB, depend on it"),
    (0x88e3, "MRP", "the ring that the host is part of is kept closed by it"),
    (0x88e5, "MACsec", "all traffic of an encrypted link comes in it"),
    (0x88e7, "a backbone service tag (802.1ah)", "whole networks are carried in it"),
    (0x88f5, "MVRP", "bridges agree on VLANs by it"),
    (0x88f7, "PTP (IEEE 1588)", "the host's clock is set by it"),
    (0x88f8, "NC-SI", "the management controller is reached by it"),
    (0x88fb, "PRP", "it tells which of two redundant networks works"),
    (0x8902, "CFM (802.1ag)", "faults of the network are found by it"),
    (0x8906, "FCoE", "the host's disks may be behind it"),
    (0x8914, "FIP", "FCoE finds the host's disks by it"),
    (0x8915, "RoCE", "the device's own transport comes in it"),
    (0x892f, "HSR", "all traffic of a redundant ring comes in it"),
    (0x9000, "loopback test frames", "switches find loops by them"),
    (0x9100, "a VLAN tag (QinQ)", "tags are claimed by `vlan`"),
    (0x9200, "a VLAN tag (QinQ)", "tags are claimed by `vlan`"),
    (0x9300, "a VLAN tag (QinQ)", "tags are claimed by `vlan`"),
];

/// Switch chips put these in front of every frame between them and the host (`ETH_P_EDSA` and those after it).
const SWITCH_TAGS: [u16; 3] = [0xdada, 0xdadb, 0xe001];

/// The reason why a type cannot be claimed, as the end of a sentence that begins with "it is"; `None` if it can.
#[must_use]
pub fn reserved(ethertype: EtherType) -> Option<String> {
    if ethertype < EtherType::SMALLEST {
        return Some("a length (802.3, spanning tree among them): types begin at 0x0600".to_owned());
    }
    if SWITCH_TAGS.contains(&ethertype.0) {
        return Some("a switch's tag: its ports are told apart by it".to_owned());
    }
    let found = RESERVED.binary_search_by_key(&ethertype.0, |(number, ..)| *number).ok()?;
    let (_, name, lost) = RESERVED[found];
    Some(format!("{name}: {lost}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethertypes_a_host_depends_on_are_refused_and_others_allowed() {
        assert!(RESERVED.is_sorted_by_key(|(number, ..)| *number));
        for (number, name) in [
            (0x0000, "a length"),
            (0x05ff, "a length"),
            (0x0800, "IPv4"),
            (0x0806, "ARP"),
            (0x8035, "RARP"),
            (0x8100, "VLAN"),
            (0x86dd, "IPv6"),
            (0x8809, "LACP"),
            (0x8847, "MPLS"),
            (0x8848, "MPLS"),
            (0x8863, "PPPoE"),
            (0x8864, "PPPoE"),
            (0x888e, "EAPOL"),
            (0x88a8, "VLAN"),
            (0x88cc, "LLDP"),
            (0x88e5, "MACsec"),
            (0x88f7, "PTP"),
            (0x8906, "FCoE"),
            (0x9000, "loopback"),
            (0xdada, "switch"),
        ] {
            let why = reserved(EtherType(number)).unwrap_or_else(|| panic!("{number:#06x} is free"));
            assert!(why.contains(name), "{number:#06x}: {why}");
        }
        // Local experiments (IEEE 802 clause 9.2.3), OUI extended, and numbers that are not assigned.
        for number in [0x0600, 0x88b5, 0x88b6, 0x88b7, 0x1234, 0xffff] {
            assert_eq!(reserved(EtherType(number)), None, "{number:#06x}");
        }
    }
}
