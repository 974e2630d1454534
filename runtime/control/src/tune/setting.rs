//! A setting: its name, where it is kept, and whose it is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::form::Form;
use super::napi::Parameter;
use super::system::{At, System};

/// What a line is about. The names are stable: `--only`, `--json` and the journal use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is described in the table of knowledge.rs")]
pub enum Id {
    IrqAffinity,
    Coalescing,
    DeferredIrqs,
    GroFlushTimeout,
    IrqSuspension,
    ThreadedNapi,
    Rps,
    Xps,
    NumaNode,
    BusyPoll,
    BusyRead,
    Governor,
    IdleStates,
    CpuLatency,
    HaltPolling,
    IsolatedCpus,
    Irqbalance,
    Thp,
    Memlock,
}

impl Id {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 19] = [
        Self::IrqAffinity,
        Self::Coalescing,
        Self::DeferredIrqs,
        Self::GroFlushTimeout,
        Self::IrqSuspension,
        Self::ThreadedNapi,
        Self::Rps,
        Self::Xps,
        Self::NumaNode,
        Self::BusyPoll,
        Self::BusyRead,
        Self::Governor,
        Self::IdleStates,
        Self::CpuLatency,
        Self::HaltPolling,
        Self::IsolatedCpus,
        Self::Irqbalance,
        Self::Thp,
        Self::Memlock,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IrqAffinity => "irq-affinity",
            Self::Coalescing => "coalescing",
            Self::DeferredIrqs => "deferred-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
            Self::IrqSuspension => "irq-suspension",
            Self::ThreadedNapi => "threaded-napi",
            Self::Rps => "rps",
            Self::Xps => "xps",
            Self::NumaNode => "numa-node",
            Self::BusyPoll => "busy-poll",
            Self::BusyRead => "busy-read",
            Self::Governor => "governor",
            Self::IdleStates => "idle-states",
            Self::CpuLatency => "cpu-latency",
            Self::HaltPolling => "halt-polling",
            Self::IsolatedCpus => "isolated-cpus",
            Self::Irqbalance => "irqbalance",
            Self::Thp => "thp",
            Self::Memlock => "memlock",
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|id| id.name() == text).ok_or_else(|| {
            format!("there is no line {text:?}; there are: {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// An interface, told apart from one that later has the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its name when it was looked at.
    pub name: String,
    /// Its index: a new interface gets another one.
    pub ifindex: u32,
    /// Its link-layer address, as the kernel writes it.
    pub address: String,
    /// The network namespace, as `net:[4026531840]`.
    pub namespace: String,
}

/// Where a setting is kept. What belongs to an interface is found by the interface's present name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Place {
    /// A file of the machine's, its path from the root without the leading slash.
    File {
        /// The path.
        path: String,
    },
    /// A file of the interface's directory in /sys.
    Device {
        /// The path from there.
        file: String,
    },
    /// On which CPUs an interrupt is taken.
    Interrupt {
        /// Its number, good until the next start of the machine or driver.
        irq: u32,
        /// Its name, which tells whether the number still means the same.
        name: String,
    },
    /// Interrupt coalescing of the interface.
    Coalescing,
    /// A parameter of NAPI, of the device and its instances.
    Napi {
        /// Which.
        parameter: Parameter,
    },
}

/// A setting that can be read, and written by who may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Where it is kept.
    pub place: Place,
    /// How it is written there.
    pub form: Form,
    /// Whose it is; none: the machine's.
    pub owner: Option<Owner>,
}

impl Setting {
    /// Where it is now, with the interface's present name; none if it is not there any more.
    pub(crate) fn at(&self, system: &dyn System) -> Option<At> {
        let name = match &self.owner {
            Some(owner) => present_name(owner, system)?,
            None => String::new(),
        };
        let ifindex = self.owner.as_ref().map_or(0, |owner| owner.ifindex);
        Some(match &self.place {
            Place::File { path } => At::File(path.clone()),
            Place::Device { file } => At::File(format!("sys/class/net/{name}/{file}")),
            Place::Interrupt { irq, name } => {
                system.list(&format!("proc/irq/{irq}")).contains(name).then_some(())?;
                At::File(format!("proc/irq/{irq}/smp_affinity_list"))
            }
            Place::Coalescing => At::Coalescing { interface: name },
            Place::Napi { parameter } => At::Napi { interface: name, ifindex, parameter: *parameter },
        })
    }

    /// It is of a device and each of its NAPI instances.
    pub(crate) const fn is_of_napi(&self) -> bool {
        matches!(self.place, Place::Napi { .. })
    }

    /// A device may take a value near the one it was given.
    pub(crate) const fn rounds(&self) -> bool {
        matches!(self.place, Place::Coalescing)
    }
}

/// The name under which that very interface is known now.
pub(crate) fn present_name(owner: &Owner, system: &dyn System) -> Option<String> {
    let same = |name: &str| {
        let file = |file: &str| system.file(&format!("sys/class/net/{name}/{file}"));
        let index = file("ifindex").and_then(|index| index.parse().ok());
        // An index can be given by hand to a new interface: then name or address tell.
        index == Some(owner.ifindex)
            && (name == owner.name || file("address").as_ref() == Some(&owner.address))
    };
    if same(&owner.name) {
        return Some(owner.name.clone());
    }
    system.list("sys/class/net").into_iter().find(|name| same(name))
}
