//! Reads what there is to tune: the interface's queues and interrupts, the CPUs, and other tuning tools.

use twinpath_sys::affinity::parse_cpu_list;

use super::boot::{self, Boot};
use super::setting::{Owner, is_interface_name};
use super::system::{At, Group, System};

/// Everything that advice depends on, except the settings' values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The interface, if one was named.
    pub interface: Option<Interface>,
    /// CPUs that run.
    pub cpus: Vec<Cpu>,
    /// CPUs that the scheduler does not use (`isolcpus=`, or an isolated cpuset partition).
    pub isolated: Vec<usize>,
    /// CPUs without a tick while one thread runs there (`nohz_full=`).
    pub tickless: Vec<usize>,
    /// The driver of the idle states; empty without one.
    pub idle_driver: String,
    /// The process id of irqbalance, if it runs.
    pub irqbalance: Option<u32>,
    /// The memory that a process started from here may lock.
    pub memlock: Memlock,
    /// Frames dropped since the machine started because a CPU's queue of received frames was full.
    pub backlog_drops: u64,
    /// Connections that may wait to be accepted, for one socket (`net.core.somaxconn`).
    pub listen_backlog: Option<u64>,
    /// Decisions made when the machine started.
    pub boot: Boot,
}

/// An interface and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its identity.
    pub owner: Owner,
    /// Receive queues.
    pub rx_queues: usize,
    /// Transmit queues.
    pub tx_queues: usize,
    /// Interrupts of its queues.
    pub interrupts: Vec<Interrupt>,
    /// Interfaces below it: those of a VLAN, bond or bridge.
    pub stands_on: Vec<String>,
    /// The memory node to which its device is attached, if there are several.
    pub node: Option<u32>,
    /// Its queueing disciplines: `mq, fq_codel`; empty: not known.
    pub qdiscs: String,
    /// The largest sizes of its rings: `rx 4096, tx 4096`; empty: it has none, or they are not known.
    pub ring_limits: String,
    /// Frames lost since it came up because its receive ring was full.
    pub ring_drops: u64,
    /// The offloads of interest that it lets anybody change: `ntuple-filters off`; empty for none.
    pub features: String,
}

/// An interrupt of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// Its name.
    pub name: String,
    /// The queue, by the number at the end of the name.
    pub queue: usize,
}

/// A CPU that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// Its memory node, if known.
    pub node: Option<u32>,
    /// CPUs on the same core, including itself; empty if not known.
    pub siblings: Vec<usize>,
    /// The governors available for its frequency; empty if the frequency cannot be governed.
    pub governors: Vec<String>,
    /// Its idle states, shallowest first.
    pub idle_states: Vec<IdleState>,
}

/// An idle state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Its exit latency, us, as reported by the driver.
    pub exit_us: u64,
    /// Whether it has been disabled.
    pub disabled: bool,
}

/// The limit of locked memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memlock {
    /// The soft limit as in /proc: `unlimited`, or bytes.
    pub limit: String,
    /// CAP_IPC_LOCK: the limit does not apply.
    pub exempt: bool,
}

/// Reads the topology. `interface` must exist.
///
/// # Errors
/// The name, if there is no such interface.
pub fn look(system: &dyn System, interface: Option<&str>) -> Result<Topology, NoInterface> {
    let interface = match interface {
        Some(name) => Some(look_at(system, name).ok_or_else(|| NoInterface {
            name: name.to_owned(),
            there: system.list("sys/class/net").join(", "),
        })?),
        None => None,
    };
    let list = |file: &str| cpus_in(system, &format!("sys/devices/system/cpu/{file}"));
    Ok(Topology {
        interface,
        cpus: list("online").into_iter().map(|number| cpu(system, number)).collect(),
        isolated: list("isolated"),
        tickless: list("nohz_full"),
        idle_driver: system
            .file("sys/devices/system/cpu/cpuidle/current_driver")
            .filter(|driver| driver != "none")
            .unwrap_or_default(),
        irqbalance: process(system, "irqbalance"),
        memlock: memlock(system),
        backlog_drops: backlog_drops(system),
        listen_backlog: system.file("proc/sys/net/core/somaxconn").and_then(|most| most.parse().ok()),
        boot: boot::look(system),
    })
}

/// The CPUs to which the interrupts of an interface's queues go now, ascending; empty for a device without interrupts.
#[must_use]
pub fn interrupt_cpus(system: &dyn System, interface: &str) -> Vec<usize> {
    let interrupts = look_at(system, interface).map(|interface| interface.interrupts).unwrap_or_default();
    let file = |irq: u32| format!("proc/irq/{irq}/effective_affinity_list");
    let mut cpus: Vec<usize> =
        interrupts.iter().flat_map(|interrupt| cpus_in(system, &file(interrupt.irq))).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// No interface of that name.
#[derive(Debug, thiserror::Error)]
#[error("there is no interface {name:?} in this network namespace; there are: {there}")]
pub struct NoInterface {
    name: String,
    there: String,
}

fn look_at(system: &dyn System, name: &str) -> Option<Interface> {
    // The name becomes one part of a path.
    is_interface_name(name).then_some(())?;
    let directory = format!("sys/class/net/{name}");
    let file = |file: &str| system.file(&format!("{directory}/{file}"));
    let queues = system.list(&format!("{directory}/queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    let ifindex = file("ifindex")?.parse().ok()?;
    let counter = |name: &str| -> u64 {
        file(&format!("statistics/{name}")).and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let device =
        |group: Group| system.read(&At::Ethtool { interface: name.to_owned(), group }).unwrap_or_default();
    Some(Interface {
        owner: Owner {
            name: name.to_owned(),
            ifindex,
            address: file("address").unwrap_or_default(),
            namespace: system.link("proc/thread-self/ns/net").unwrap_or_default(),
        },
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        interrupts: interrupts(system, &directory),
        stands_on: system
            .list(&directory)
            .iter()
            .filter_map(|name| name.strip_prefix("lower_").map(str::to_owned))
            .collect(),
        node: file("device/numa_node").and_then(|node| node.parse().ok()),
        qdiscs: system.read(&At::Qdisc { ifindex }).unwrap_or_default(),
        ring_limits: device(Group::RingLimits),
        // Drivers count them as one or the other (Documentation/networking/statistics.rst).
        ring_drops: counter("rx_missed_errors") + counter("rx_fifo_errors"),
        features: device(Group::Features),
    })
}

/// Interrupts of the device's queues. For a virtio device they belong to its PCI device.
fn interrupts(system: &dyn System, directory: &str) -> Vec<Interrupt> {
    let mut numbers = system.list(&format!("{directory}/device/msi_irqs"));
    if numbers.is_empty()
        && system.link(&format!("{directory}/device/subsystem")).as_deref() == Some("virtio")
    {
        numbers = system.list(&format!("{directory}/device/../msi_irqs"));
    }
    let mut numbers: Vec<u32> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    let mut found = Vec::new();
    for irq in numbers {
        // The directory /proc/irq/N has a subdirectory named after its handler, if it has one.
        let named = |name: &String| system.file(&format!("proc/irq/{irq}/{name}")).is_none();
        let Some(name) = system.list(&format!("proc/irq/{irq}")).into_iter().find(named) else { continue };
        if !serves_no_queue(&name) {
            found.push(Interrupt { irq, queue: number_at_end(&name).unwrap_or(0), name });
        }
    }
    found
}

/// Whether an interrupt is for configuration, link changes or mailboxes, by the names that drivers use.
fn serves_no_queue(name: &str) -> bool {
    const OTHERS: [&str; 10] =
        ["config", "control", "ctrl", "async", "mgmnt", "misc", "event", "mbx", "adminq", "pages"];
    let name = name.to_ascii_lowercase();
    OTHERS.iter().any(|other| name.contains(other))
}

fn number_at_end(name: &str) -> Option<usize> {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().ok()
}

fn cpu(system: &dyn System, number: usize) -> Cpu {
    let directory = format!("sys/devices/system/cpu/cpu{number}");
    let file = |file: &str| system.file(&format!("{directory}/{file}"));
    let mut states: Vec<(usize, IdleState)> = system
        .list(&format!("{directory}/cpuidle"))
        .into_iter()
        .filter_map(|state| {
            let value = |name: &str| file(&format!("cpuidle/{state}/{name}"));
            let idle = IdleState {
                name: value("name")?,
                exit_us: value("latency")?.parse().ok()?,
                disabled: value("disable").is_some_and(|disable| disable != "0"),
            };
            Some((number_at_end(&state)?, idle))
        })
        .collect();
    states.sort_by_key(|(depth, _)| *depth);
    let governors = file("cpufreq/scaling_available_governors").unwrap_or_default();
    Cpu {
        number,
        node: system.list(&directory).iter().find_map(|name| name.strip_prefix("node")?.parse().ok()),
        siblings: cpus_in(system, &format!("{directory}/topology/thread_siblings_list")),
        governors: governors.split_whitespace().map(str::to_owned).collect(),
        idle_states: states.into_iter().map(|(_, state)| state).collect(),
    }
}

fn cpus_in(system: &dyn System, path: &str) -> Vec<usize> {
    system.file(path).and_then(|list| parse_cpu_list(&list).ok()).unwrap_or_default()
}

fn process(system: &dyn System, name: &str) -> Option<u32> {
    let processes = system.list("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let mut named = processes.filter(|pid| system.file(&format!("proc/{pid}/comm")).as_deref() == Some(name));
    named.next()
}

/// The second column of each CPU's line (net/core/net-procfs.c).
fn backlog_drops(system: &dyn System) -> u64 {
    let counts = system.file("proc/net/softnet_stat").unwrap_or_default();
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    counts.lines().filter_map(dropped).sum()
}

fn memlock(system: &dyn System) -> Memlock {
    /// linux/capability.h
    const CAP_IPC_LOCK: u32 = 14;
    let limits = system.file("proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let status = system.file("proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    Memlock {
        limit: limit.and_then(|limit| limit.split_whitespace().next()).unwrap_or_default().to_owned(),
        exempt: effective >> CAP_IPC_LOCK & 1 == 1,
    }
}
