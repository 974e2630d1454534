//! Settings of an interface, from the generic netlink family `ethtool` (linux/ethtool_netlink.h,
//! Documentation/netlink/specs/ethtool.yaml), in the calling thread's network namespace.

use twinpath_netlink::generic::{Answers, Family, command};
use twinpath_netlink::{Attributes, Body};

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;

/// The header is the first attribute of each request.
const HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;

const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
/// `SPEED_UNKNOWN` of linux/ethtool.h.
const SPEED_UNKNOWN: u64 = u32::MAX as u64;

const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// Queues in use: (receive, transmit). `None` if the driver does not report them.
pub fn queues(name: &str) -> Option<(u32, u32)> {
    let answer = ask(name, ETHTOOL_MSG_CHANNELS_GET)?;
    let answer = answer.first()?;
    let count = |kind| answer.unsigned(kind).unwrap_or(0) as u32;
    let combined = count(ETHTOOL_A_CHANNELS_COMBINED_COUNT);
    let receive = count(ETHTOOL_A_CHANNELS_RX_COUNT) + combined;
    let transmit = count(ETHTOOL_A_CHANNELS_TX_COUNT) + combined;
    (receive > 0 && transmit > 0).then_some((receive, transmit))
}

/// Names of the features that are on, such as `rx-gro`; `None` if the kernel does not report them.
pub(crate) fn active_features(name: &str) -> Option<Vec<String>> {
    let answer = ask(name, ETHTOOL_MSG_FEATURES_GET)?;
    // A set without a mask: it lists what is on.
    let bits = answer.first()?.inside(ETHTOOL_A_FEATURES_ACTIVE).get(ETHTOOL_A_BITSET_BITS)?;
    let each = Attributes::of(bits).iter();
    Some(each.filter_map(|(_, bit)| Attributes::of(bit).text(ETHTOOL_A_BITSET_BIT_NAME)).collect())
}

/// Whether a device with these features on strips VLAN tags (customer or service tags) from received
/// frames.
pub(crate) fn takes_tags_off(active: &[String]) -> bool {
    active.iter().any(|name| matches!(name.as_str(), "rx-vlan-hw-parse" | "rx-vlan-stag-hw-parse"))
}

/// Speed of the link, Mbit/s; `None` if there is no link, or the driver does not report it.
pub(crate) fn speed(name: &str) -> Option<u32> {
    let speed = ask(name, ETHTOOL_MSG_LINKMODES_GET)?.first()?.unsigned(ETHTOOL_A_LINKMODES_SPEED)?;
    (speed != SPEED_UNKNOWN).then_some(speed as u32)
}

/// The answer to a request about one interface.
fn ask(name: &str, message: u8) -> Option<Answers> {
    let header = Body::new([]).text(ETHTOOL_A_HEADER_DEV_NAME, name);
    let body = command(message).nested(HEADER, &header);
    Family::find("ethtool").ok()?.ask("tell about the interface", &body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_and_neither_queues_nor_a_speed() {
        let active = active_features("lo").expect("the kernel has the family since Linux 5.6");
        assert!(active.iter().any(|name| name == "loopback"), "{active:?}");
        assert_eq!((queues("lo"), speed("lo")), (None, None));
    }

    #[test]
    fn tags_of_customers_and_of_services_are_taken_off() {
        let takes = |name: &str| takes_tags_off(&["rx-checksum".to_owned(), name.to_owned()]);
        assert!(takes("rx-vlan-hw-parse") && takes("rx-vlan-stag-hw-parse"));
        assert!(!takes("tx-vlan-stag-hw-insert") && !takes("rx-vlan-filter"));
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_settings() {
        assert!(active_features("tp-nonesuch").is_none() && queues("tp-nonesuch").is_none());
    }
}
