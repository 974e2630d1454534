//! A setting: its name, its location and its owner.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::form::Form;
use super::parameter::Parameter;
use super::system::{At, Group, System};

/// Longest name of an interface, bytes: IFNAMSIZ of linux/if.h, less its end.
const NAME_LEN_MAX: usize = 15;

/// The subject of a line. The names are stable: `--only`, `--json` and the journal use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is described in the table of knowledge.rs")]
pub enum Id {
    Rings,
    IrqAffinity,
    Coalescing,
    DeferredIrqs,
    GroFlushTimeout,
    IrqSuspension,
    ThreadedNapi,
    Rps,
    Xps,
    Qdisc,
    NtupleFilters,
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
    RmemMax,
    WmemMax,
    NetdevBacklog,
    ListenBacklog,
    Preemption,
    ThreadedIrqs,
    IdleAtBoot,
    Smt,
    Mitigations,
}

impl Id {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 31] = [
        Self::Rings,
        Self::IrqAffinity,
        Self::Coalescing,
        Self::DeferredIrqs,
        Self::GroFlushTimeout,
        Self::IrqSuspension,
        Self::ThreadedNapi,
        Self::Rps,
        Self::Xps,
        Self::Qdisc,
        Self::NtupleFilters,
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
        Self::RmemMax,
        Self::WmemMax,
        Self::NetdevBacklog,
        Self::ListenBacklog,
        Self::Preemption,
        Self::ThreadedIrqs,
        Self::IdleAtBoot,
        Self::Smt,
        Self::Mitigations,
    ];

    /// Whether it concerns the machine as a whole, and not an interface.
    #[must_use]
    pub const fn is_of_machine(self) -> bool {
        !matches!(
            self,
            Self::Rings
                | Self::IrqAffinity
                | Self::Coalescing
                | Self::DeferredIrqs
                | Self::GroFlushTimeout
                | Self::IrqSuspension
                | Self::ThreadedNapi
                | Self::Rps
                | Self::Xps
                | Self::Qdisc
                | Self::NtupleFilters
                | Self::NumaNode
                | Self::Irqbalance
        )
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rings => "rings",
            Self::IrqAffinity => "irq-affinity",
            Self::Coalescing => "coalescing",
            Self::DeferredIrqs => "deferred-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
            Self::IrqSuspension => "irq-suspension",
            Self::ThreadedNapi => "threaded-napi",
            Self::Rps => "rps",
            Self::Xps => "xps",
            Self::Qdisc => "qdisc",
            Self::NtupleFilters => "ntuple-filters",
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
            Self::RmemMax => "rmem-max",
            Self::WmemMax => "wmem-max",
            Self::NetdevBacklog => "netdev-backlog",
            Self::ListenBacklog => "listen-backlog",
            Self::Preemption => "preemption",
            Self::ThreadedIrqs => "threaded-irqs",
            Self::IdleAtBoot => "idle-at-boot",
            Self::Smt => "smt",
            Self::Mitigations => "mitigations",
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

/// An interface, distinguished from a later one with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Its name at the time.
    pub name: String,
    /// Its index; a new interface gets another one.
    pub ifindex: u32,
    /// Its link-layer address, as the kernel writes it.
    pub address: String,
    /// The network namespace, as `net:[4026531840]`.
    pub namespace: String,
}

impl Owner {
    /// Whether a kernel could have reported it. Nothing else becomes part of a path.
    pub(crate) fn is_sound(&self) -> bool {
        let address = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
        let inode = self.namespace.strip_prefix("net:[").and_then(|rest| rest.strip_suffix(']'));
        is_interface_name(&self.name)
            && self.address.bytes().all(address)
            && (self.namespace.is_empty()
                || inode.is_some_and(|inode| inode.bytes().all(|byte| byte.is_ascii_digit())))
    }
}

/// Whether the kernel would accept it as an interface's name: `dev_valid_name` in net/core/dev.c.
pub(crate) fn is_interface_name(name: &str) -> bool {
    let no_part =
        |byte: u8| byte == b'/' || byte == b':' || byte.is_ascii_whitespace() || byte.is_ascii_control();
    !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name != "."
        && name != ".."
        && !name.bytes().any(no_part)
}

/// All settings. Each setting's location follows from this type alone, so a journal cannot name a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Place {
    /// `net.core.busy_poll`.
    BusyPoll,
    /// `net.core.busy_read`.
    BusyRead,
    /// The governor of a CPU's frequency.
    Governor {
        /// The CPU.
        cpu: u32,
    },
    /// A CPU's latency request. Only shown.
    CpuLatency {
        /// The CPU.
        cpu: u32,
    },
    /// How long a guest's CPU polls before it halts, ns. Only shown.
    HaltPolling,
    /// `net.core.rmem_max`.
    RmemMax,
    /// `net.core.wmem_max`.
    WmemMax,
    /// `net.core.netdev_max_backlog`.
    NetdevBacklog,
    /// Transparent huge pages.
    HugePages,
    /// CPUs to which a receive queue's packets are handed.
    Rps {
        /// The queue.
        queue: u32,
    },
    /// CPUs that use a transmit queue.
    Xps {
        /// The queue.
        queue: u32,
    },
    /// The CPUs that take an interrupt.
    Interrupt {
        /// Its number, valid until the machine or the driver restarts.
        irq: u32,
        /// Its name, which shows whether the number still has the same meaning.
        name: String,
    },
    /// Interrupt coalescing of the interface.
    Coalescing,
    /// Sizes of the rings of the device.
    Rings,
    /// A parameter of NAPI, of the device and its instances.
    Napi {
        /// The parameter.
        parameter: Parameter,
    },
}

impl Place {
    /// The line that it belongs to.
    pub(crate) const fn id(&self) -> Id {
        match self {
            Self::BusyPoll => Id::BusyPoll,
            Self::BusyRead => Id::BusyRead,
            Self::Governor { .. } => Id::Governor,
            Self::CpuLatency { .. } => Id::CpuLatency,
            Self::HaltPolling => Id::HaltPolling,
            Self::HugePages => Id::Thp,
            Self::Rps { .. } => Id::Rps,
            Self::Xps { .. } => Id::Xps,
            Self::Interrupt { .. } => Id::IrqAffinity,
            Self::Coalescing => Id::Coalescing,
            Self::Rings => Id::Rings,
            Self::RmemMax => Id::RmemMax,
            Self::WmemMax => Id::WmemMax,
            Self::NetdevBacklog => Id::NetdevBacklog,
            Self::Napi { parameter: Parameter::DeferHardIrqs } => Id::DeferredIrqs,
            Self::Napi { parameter: Parameter::GroFlushTimeout } => Id::GroFlushTimeout,
            Self::Napi { parameter: Parameter::IrqSuspendTimeout } => Id::IrqSuspension,
            Self::Napi { parameter: Parameter::Threaded } => Id::ThreadedNapi,
        }
    }

    /// The format of its value there.
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::BusyPoll
            | Self::BusyRead
            | Self::HaltPolling
            | Self::RmemMax
            | Self::WmemMax
            | Self::NetdevBacklog => Form::Number,
            Self::CpuLatency { .. } | Self::Governor { .. } => Form::Word,
            Self::HugePages => Form::Choice,
            Self::Rps { .. } | Self::Xps { .. } => Form::CpuMask,
            Self::Interrupt { .. } => Form::CpuList,
            Self::Coalescing | Self::Rings => Form::Named,
            Self::Napi { .. } => Form::Napi,
        }
    }

    /// Whether it belongs to an interface, and not to the machine.
    const fn is_of_an_interface(&self) -> bool {
        matches!(
            self,
            Self::Rps { .. }
                | Self::Xps { .. }
                | Self::Interrupt { .. }
                | Self::Coalescing
                | Self::Rings
                | Self::Napi { .. }
        )
    }
}

/// A setting that can be read, and written with the necessary privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The kind of setting.
    pub place: Place,
    /// Its interface; none if it belongs to the machine.
    pub owner: Option<Owner>,
}

impl Setting {
    /// Its present location, with the interface's present name; none if it is gone.
    pub(crate) fn at(&self, system: &dyn System) -> Option<At> {
        let name = match &self.owner {
            Some(owner) => present_name(owner, system)?,
            None => String::new(),
        };
        let ifindex = self.owner.as_ref().map_or(0, |owner| owner.ifindex);
        let cpu = |cpu: u32, file: &str| At::File(format!("sys/devices/system/cpu/cpu{cpu}/{file}"));
        Some(match &self.place {
            Place::BusyPoll => At::File("proc/sys/net/core/busy_poll".to_owned()),
            Place::BusyRead => At::File("proc/sys/net/core/busy_read".to_owned()),
            Place::Governor { cpu: number } => cpu(*number, "cpufreq/scaling_governor"),
            Place::CpuLatency { cpu: number } => cpu(*number, "power/pm_qos_resume_latency_us"),
            Place::HaltPolling => At::File("sys/module/haltpoll/parameters/guest_halt_poll_ns".to_owned()),
            Place::HugePages => At::File("sys/kernel/mm/transparent_hugepage/enabled".to_owned()),
            Place::Rps { queue } => At::File(format!("sys/class/net/{name}/queues/rx-{queue}/rps_cpus")),
            Place::Xps { queue } => At::File(format!("sys/class/net/{name}/queues/tx-{queue}/xps_cpus")),
            Place::Interrupt { irq, name } => {
                system.list(&format!("proc/irq/{irq}")).contains(name).then_some(())?;
                At::File(format!("proc/irq/{irq}/smp_affinity_list"))
            }
            Place::Coalescing => At::Ethtool { interface: name, group: Group::Coalescing },
            Place::Rings => At::Ethtool { interface: name, group: Group::Rings },
            Place::RmemMax => At::File("proc/sys/net/core/rmem_max".to_owned()),
            Place::WmemMax => At::File("proc/sys/net/core/wmem_max".to_owned()),
            Place::NetdevBacklog => At::File("proc/sys/net/core/netdev_max_backlog".to_owned()),
            Place::Napi { parameter } => At::Napi { interface: name, ifindex, parameter: *parameter },
        })
    }

    /// The subject as it is shown: `eth0`, `rx-0`, `CPU 1`; empty for the machine.
    pub(crate) fn subject(&self) -> String {
        let interface = || self.owner.as_ref().map(|owner| owner.name.clone()).unwrap_or_default();
        match &self.place {
            Place::BusyPoll
            | Place::BusyRead
            | Place::HaltPolling
            | Place::RmemMax
            | Place::WmemMax
            | Place::NetdevBacklog
            | Place::HugePages => String::new(),
            Place::Governor { cpu } | Place::CpuLatency { cpu } => format!("CPU {cpu}"),
            Place::Rps { queue } => format!("rx-{queue}"),
            Place::Xps { queue } => format!("tx-{queue}"),
            Place::Interrupt { irq, name } => format!("{irq} {name}"),
            Place::Coalescing | Place::Rings | Place::Napi { .. } => interface(),
        }
    }

    /// Whether it is well formed: with an interface exactly if it belongs to one, and an interrupt with a possible name
    /// for a file in /proc.
    pub(crate) fn is_sound(&self) -> bool {
        let named = match &self.place {
            Place::Interrupt { name, .. } => {
                !name.is_empty() && name != "." && name != ".." && !name.contains('/') && is_printable(name)
            }
            _ => true,
        };
        let owned = self.owner.as_ref().map(Owner::is_sound);
        named && owned.unwrap_or(true) && owned.is_some() == self.place.is_of_an_interface()
    }

    /// Whether it belongs to a device and each of its NAPI instances.
    pub(crate) const fn is_of_napi(&self) -> bool {
        matches!(self.place, Place::Napi { .. })
    }

    /// Whether a device may choose a value near the one written.
    pub(crate) const fn rounds(&self) -> bool {
        matches!(self.place, Place::Coalescing | Place::Rings)
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// The present name of this interface.
pub(crate) fn present_name(owner: &Owner, system: &dyn System) -> Option<String> {
    let same = |name: &str| {
        let file = |file: &str| system.file(&format!("sys/class/net/{name}/{file}"));
        let index = file("ifindex").and_then(|index| index.parse().ok());
        // A new interface can be given any index by hand, so name or address must agree.
        index == Some(owner.ifindex)
            && (name == owner.name || file("address").as_ref() == Some(&owner.address))
    };
    if same(&owner.name) {
        return Some(owner.name.clone());
    }
    system.list("sys/class/net").into_iter().find(|name| same(name))
}
