//! Meters (sections 5.7, 7.3.4.4, and 7.3.5.12 to 7.3.5.14).

use crate::error::{BadRequest, ErrorCode, MeterModFailed};
use crate::group::Count;
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// What a meter-mod does (section 7.3.4.4, `ofp_meter_mod_command`).
    MeterModCommand: u16 {
        /// A new meter.
        Add = 0,
        /// Other flags and bands for a meter.
        Modify = 1,
        /// Removes a meter, or all.
        Delete = 2,
    }
}

/// Flags of a meter (section 7.3.4.4, `ofp_meter_flags`).
pub mod meter_flags {
    /// Rates in kilobits per second.
    pub const KBPS: u16 = 1;
    /// Rates in packets per second.
    pub const PKTPS: u16 = 1 << 1;
    /// The bursts of the bands count.
    pub const BURST: u16 = 1 << 2;
    /// Statistics are kept.
    pub const STATS: u16 = 1 << 3;
    /// All of them.
    pub const ALL: u16 = 0xf;
}

/// A band of a meter (section 7.3.4.4, `ofp_meter_band_header`). The meter's flags say in which unit rate and burst are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Band {
    /// Drops what exceeds the rate.
    Drop {
        /// Kilobits or packets per second.
        rate: u32,
        /// Kilobits or packets.
        burst: u32,
    },
    /// Raises the drop precedence in the DSCP of what exceeds the rate.
    DscpRemark {
        /// Kilobits or packets per second.
        rate: u32,
        /// Kilobits or packets.
        burst: u32,
        /// By how many levels.
        prec_level: u8,
    },
    /// One that the specification does not define.
    Experimenter {
        /// Kilobits or packets per second.
        rate: u32,
        /// Kilobits or packets.
        burst: u32,
        /// The experimenter that defines it.
        experimenter: u32,
        /// The data that follow.
        data: Box<[u8]>,
    },
}

impl Band {
    /// Its rate, kilobits or packets per second.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        match self {
            Self::Drop { rate, .. } | Self::DscpRemark { rate, .. } | Self::Experimenter { rate, .. } => {
                *rate
            }
        }
    }

    /// Its burst, kilobits or packets.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        match self {
            Self::Drop { burst, .. } | Self::DscpRemark { burst, .. } | Self::Experimenter { burst, .. } => {
                *burst
            }
        }
    }
}

wire_enum! {
    /// The type of a band (section 7.3.4.4, `ofp_meter_band_type`).
    BandType: u16 {
        /// [`Band::Drop`].
        Drop = 1,
        /// [`Band::DscpRemark`].
        DscpRemark = 2,
        /// [`Band::Experimenter`].
        Experimenter = 0xffff,
    }
}

impl Wire for Band {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let mut part = reader.counted(len, 4, BadRequest::BadLen)?;
        let kind = BandType::from_number(kind).ok_or(MeterModFailed::BadBand)?;
        let (rate, burst) = (part.u32()?, part.u32()?);
        let this = match kind {
            BandType::Drop => {
                part.skip(4)?;
                Self::Drop { rate, burst }
            }
            BandType::DscpRemark => {
                let prec_level = part.u8()?;
                part.skip(3)?;
                Self::DscpRemark { rate, burst, prec_level }
            }
            BandType::Experimenter => {
                Self::Experimenter { rate, burst, experimenter: part.u32()?, data: part.remaining().into() }
            }
        };
        part.end()?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let kind = match self {
            Self::Drop { .. } => BandType::Drop,
            Self::DscpRemark { .. } => BandType::DscpRemark,
            Self::Experimenter { .. } => BandType::Experimenter,
        };
        out.u16(kind.number());
        out.u16(0);
        out.u32(self.rate());
        out.u32(self.burst());
        match self {
            Self::Drop { .. } => out.zeros(4),
            Self::DscpRemark { prec_level, .. } => {
                out.u8(*prec_level);
                out.zeros(3);
            }
            Self::Experimenter { experimenter, data, .. } => {
                out.u32(*experimenter);
                out.extend_from_slice(data);
            }
        }
        out.put_len(start + 2, start);
    }
}

/// A change of meters (section 7.3.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What is done.
    pub command: MeterModCommand,
    /// Of [`meter_flags`].
    pub flags: u16,
    /// Its number, or [`crate::number::meter::ALL`] to delete all.
    pub meter_id: u32,
    /// Its bands.
    pub bands: Box<[Band]>,
}

impl Wire for MeterMod {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let command = MeterModCommand::from_number(reader.u16()?).ok_or(MeterModFailed::BadCommand)?;
        Ok(Self { command, flags: reader.u16()?, meter_id: reader.u32()?, bands: reader.list()?.into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u16(self.command.number());
        out.u16(self.flags);
        out.u32(self.meter_id);
        out.list(&self.bands);
    }
}

/// The counters of a meter (section 7.3.5.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// Its number.
    pub meter_id: u32,
    /// Flows that name it.
    pub flows: u32,
    /// What has come to it.
    pub count: Count,
    /// Seconds that it has been there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
    /// What each of its bands was applied to.
    pub bands: Box<[Count]>,
}

impl Wire for MeterStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let meter_id = reader.u32()?;
        let len = reader.u16()?;
        let mut part = reader.counted(len, 6, BadRequest::BadLen)?;
        part.skip(6)?;
        Ok(Self {
            meter_id,
            flows: part.u32()?,
            count: Count::read(&mut part)?,
            duration_s: part.u32()?,
            duration_ns: part.u32()?,
            bands: part.list()?.into(),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(self.meter_id);
        out.zeros(8);
        out.u32(self.flows);
        self.count.write(out);
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
        out.list(&self.bands);
        out.put_len(start + 4, start);
    }
}

/// A meter as it was made (section 7.3.5.13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Of [`meter_flags`].
    pub flags: u16,
    /// Its number.
    pub meter_id: u32,
    /// Its bands.
    pub bands: Box<[Band]>,
}

impl Wire for MeterConfig {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        let mut part = reader.counted(len, 2, BadRequest::BadLen)?;
        Ok(Self { flags: part.u16()?, meter_id: part.u32()?, bands: part.list()?.into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u16(self.flags);
        out.u32(self.meter_id);
        out.list(&self.bands);
        out.put_len(start, start);
    }
}

/// What a switch can do with meters (section 7.3.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub max_meter: u32,
    /// A bit for each type of band.
    pub band_types: u32,
    /// A bit for each of [`meter_flags`].
    pub capabilities: u32,
    /// Maximum number of bands in a meter.
    pub max_bands: u8,
    /// Maximum number of colours.
    pub max_color: u8,
}

impl Wire for MeterFeatures {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let this = Self {
            max_meter: reader.u32()?,
            band_types: reader.u32()?,
            capabilities: reader.u32()?,
            max_bands: reader.u8()?,
            max_color: reader.u8()?,
        };
        reader.skip(2)?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.max_meter);
        out.u32(self.band_types);
        out.u32(self.capabilities);
        out.u8(self.max_bands);
        out.u8(self.max_color);
        out.zeros(2);
    }
}
