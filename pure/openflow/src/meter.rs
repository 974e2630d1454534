//! Meters (sections 5.7 and 7.3.4.4).

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
        /// Who defines it.
        experimenter: u32,
        /// What stands behind.
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
