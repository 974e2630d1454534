//! The parameters of NAPI, by their kernel names.

use serde::{Deserialize, Serialize};

/// A parameter of NAPI (Documentation/networking/napi.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parameter {
    /// Empty polls before interrupts are enabled again.
    DeferHardIrqs,
    /// Pause before the next such poll, ns.
    GroFlushTimeout,
    /// How long interrupts stay off while a program polls, ns. The device has no value of its own.
    IrqSuspendTimeout,
    /// Whether a kernel thread polls.
    Threaded,
}

impl Parameter {
    /// The device's file in its directory of /sys.
    pub(crate) const fn file(self) -> Option<&'static str> {
        match self {
            Self::DeferHardIrqs => Some("napi_defer_hard_irqs"),
            Self::GroFlushTimeout => Some("gro_flush_timeout"),
            Self::IrqSuspendTimeout => None,
            Self::Threaded => Some("threaded"),
        }
    }

    /// The instance's attribute (linux/netdev.h, `NETDEV_A_NAPI_...`).
    pub(crate) const fn attribute(self) -> u16 {
        match self {
            Self::DeferHardIrqs => 5,
            Self::GroFlushTimeout => 6,
            Self::IrqSuspendTimeout => 7,
            Self::Threaded => 8,
        }
    }
}
