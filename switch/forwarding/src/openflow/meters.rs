//! The meters of a switch (sections 5.7, 6.6 and 7.3.4.4).

use std::collections::BTreeMap;

use crate::openflow::pipeline::{MeterConfig, MeterUnit};
use twinpath_openflow_wire::{Band, ErrorCode, MeterMod, MeterModFailed, meter_flags, number};
use twinpath_time::Instant;

/// Maximum number of bands in a meter.
pub(crate) const BANDS_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct MeterEntry {
    pub(crate) flags: u16,
    pub(crate) bands: Box<[Band]>,
    pub(crate) created: Instant,
    /// Flows that name it.
    pub(crate) flows: u32,
}

/// A meter as workers have it.
pub(crate) fn for_workers(change: &MeterMod) -> MeterConfig {
    // Without a flag that says so, rates are in kilobits (section 7.3.4.4).
    let in_packets = change.flags & meter_flags::PKTPS != 0;
    MeterConfig {
        unit: if in_packets { MeterUnit::Packets } else { MeterUnit::Kilobits },
        has_burst: change.flags & meter_flags::BURST != 0,
        bands: change.bands.to_vec(),
    }
}

/// All meters of a switch.
pub(crate) type Meters = BTreeMap<u32, MeterEntry>;

/// Checks a meter that is to be made or changed, except whether it is there.
///
/// # Errors
/// As section 7.4.4 says.
pub(crate) fn check(change: &MeterMod) -> Result<(), ErrorCode> {
    // The meters of the slow path and of packet-in cannot be made: there is no slow path, and packet-in has its own
    // limit.
    if change.meter_id == 0 || change.meter_id > number::meter::MAX {
        return Err(MeterModFailed::InvalidMeter.into());
    }
    let units = meter_flags::KBPS | meter_flags::PKTPS;
    if change.flags & !meter_flags::ALL != 0 || change.flags & units == units {
        return Err(MeterModFailed::BadFlags.into());
    }
    if change.bands.len() > BANDS_MAX {
        return Err(MeterModFailed::OutOfBands.into());
    }
    for band in &change.bands {
        if matches!(band, Band::Experimenter { .. }) {
            return Err(MeterModFailed::BadBand.into());
        }
        if band.rate() == 0 {
            return Err(MeterModFailed::BadRate.into());
        }
        if change.flags & meter_flags::BURST != 0 && band.burst() == 0 {
            return Err(MeterModFailed::BadBurst.into());
        }
        // A packet has three levels of drop precedence (RFC 2597, section 2).
        if matches!(band, Band::DscpRemark { prec_level, .. } if *prec_level == 0 || *prec_level > 3) {
            return Err(MeterModFailed::BadBandValue.into());
        }
    }
    Ok(())
}
