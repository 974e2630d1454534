//! Speeds and media of ports, as controllers are told of them.

use twinpath_openflow_wire::{Port, port_features as of};
use twinpath_sys::ethtool::LinkSettings;

/// Modes that ethtool has (`SUPPORTED_...` in linux/ethtool.h), by bits, and what they are here. The first six are the same
/// in both.
const MODES: [(u32, u32); 14] = [
    (0x3f, 0),
    (1 << 6, of::AUTONEG),
    (1 << 7, of::COPPER),
    (1 << 10, of::FIBER),
    (1 << 12, of::FULL_10_GBIT),
    (1 << 13, of::PAUSE),
    (1 << 14, of::PAUSE_ASYM),
    // 1000base-KX.
    (1 << 17, of::FULL_1_GBIT),
    // 10Gbase-KX4, -KR and -R with error correction.
    (1 << 18 | 1 << 19 | 1 << 20, of::FULL_10_GBIT),
    // 2500base-X, 20Gbase.
    (1 << 15 | 1 << 21 | 1 << 22, of::OTHER),
    // 40Gbase.
    (0xf << 23, of::FULL_40_GBIT),
    // 56Gbase.
    (0xf << 27, of::OTHER),
    // AUI, MII, BNC.
    (1 << 8 | 1 << 9 | 1 << 11, 0),
    // Backplane.
    (1 << 16, 0),
];

/// Rates in Mbit/s, with half and full duplex; 0: there is no bit for it.
const RATES: [(u32, [u32; 2]); 7] = [
    (10, [of::HALF_10_MBIT, of::FULL_10_MBIT]),
    (100, [of::HALF_100_MBIT, of::FULL_100_MBIT]),
    (1_000, [of::HALF_1_GBIT, of::FULL_1_GBIT]),
    (10_000, [0, of::FULL_10_GBIT]),
    (40_000, [0, of::FULL_40_GBIT]),
    (100_000, [0, of::FULL_100_GBIT]),
    (1_000_000, [0, of::FULL_1_TBIT]),
];

/// Connectors (`PORT_...` in linux/ethtool.h).
const TWISTED_PAIR: u8 = 0;
const FIBRE: u8 = 3;
const DIRECT_ATTACH: u8 = 5;

fn features(modes: u32) -> u32 {
    let found = MODES.iter().filter(|(bits, _)| modes & bits != 0);
    found.fold(modes & MODES[0].0, |features, (_, own)| features | own)
}

/// The highest rate of some features, Mbit/s; 0 if there is none.
fn rate_max(features: u32) -> u32 {
    let has = |(_, [half, full]): &&(u32, [u32; 2])| features & (half | full) != 0;
    RATES.iter().rev().find(has).map_or(0, |(rate, _)| *rate)
}

/// Says in a port's description how it is connected.
pub(crate) fn describe(port: &mut Port, settings: &LinkSettings) {
    port.supported = features(settings.supported);
    port.advertised = features(settings.advertised);
    port.peer = features(settings.peer);
    let rate = settings.speed_mbit_s.unwrap_or(0);
    if rate > 0 {
        let own = RATES.iter().find(|(known, _)| *known == rate);
        let own = own.map_or(0, |(_, duplex)| duplex[usize::from(settings.is_full_duplex)]);
        port.curr = if own == 0 { of::OTHER } else { own };
        port.curr |= match settings.connector {
            TWISTED_PAIR | DIRECT_ATTACH => of::COPPER,
            FIBRE => of::FIBER,
            _ => 0,
        };
        if settings.autonegotiates {
            port.curr |= of::AUTONEG;
        }
    }
    port.curr_speed = rate.saturating_mul(1000);
    port.max_speed = rate_max(port.supported).max(rate).saturating_mul(1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(settings: &LinkSettings) -> Port {
        let mut port = Port::default();
        describe(&mut port, settings);
        port
    }

    #[test]
    fn a_card_says_what_it_can_and_what_it_has_agreed_on() {
        // 10 to 1000 Mbit/s over twisted pairs, as an Intel 82574 has it; the other end has 100 Mbit/s.
        let settings = LinkSettings {
            supported: 0b10_1111 | 1 << 6 | 1 << 7 | 1 << 13,
            advertised: 0b10_1111 | 1 << 6 | 1 << 7,
            peer: 0b1100 | 1 << 6,
            speed_mbit_s: Some(100),
            is_full_duplex: true,
            connector: TWISTED_PAIR,
            autonegotiates: true,
        };
        let port = described(&settings);
        assert_eq!(port.supported, 0b10_1111 | of::AUTONEG | of::COPPER | of::PAUSE);
        assert_eq!(port.advertised, 0b10_1111 | of::AUTONEG | of::COPPER);
        assert_eq!(port.peer, of::HALF_100_MBIT | of::FULL_100_MBIT | of::AUTONEG);
        assert_eq!(port.curr, of::FULL_100_MBIT | of::COPPER | of::AUTONEG);
        assert_eq!((port.curr_speed, port.max_speed), (100_000, 1_000_000));
    }

    #[test]
    fn a_rate_without_a_name_is_another_one_and_none_is_none() {
        let fast = LinkSettings { speed_mbit_s: Some(25_000), connector: FIBRE, ..LinkSettings::default() };
        let port = described(&fast);
        assert_eq!(
            (port.curr, port.curr_speed, port.max_speed),
            (of::OTHER | of::FIBER, 25_000_000, 25_000_000)
        );
        assert_eq!(described(&LinkSettings::default()), Port::default());
        let faster = LinkSettings { speed_mbit_s: Some(u32::MAX - 1), ..LinkSettings::default() };
        assert_eq!(described(&faster).curr_speed, u32::MAX);
    }
}
