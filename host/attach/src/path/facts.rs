//! The facts about an interface and this process on which the choice of a path depends. [`collect`] reads
//! most of them, and never attaches anything to do so.

use std::fmt;

use twinpath_bpf::{TcAttach, XdpHolder};
use twinpath_sys::ethtool as ioctl;

use crate::mirror::table::{Link, Tables};

pub use crate::path::ethtool::queues;
pub use crate::path::xdp_features::XdpFeatures;

use crate::path::ethtool::{active_features, takes_tags_off};
use crate::path::privileges::Capabilities;
use crate::path::xdp_features;

/// Whether this kernel supports a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does, as far as this can be known without using the feature.
    Yes,
    /// It does not, for this reason.
    No(String),
}

impl From<Result<(), String>> for Support {
    fn from(probed: Result<(), String>) -> Self {
        probed.map_or_else(Self::No, |()| Self::Yes)
    }
}

/// The kernel's BPF support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// AF_XDP sockets and XDP programs.
    pub af_xdp: Support,
    /// How the program at tc ingress would be attached, or the reason that the packet path is not possible.
    pub tc: Result<TcAttach, String>,
}

/// A foreign program on the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignXdp {
    /// Id of the program.
    pub id: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The process that holds it, as `xdp-filter (pid 12)`, if known.
    pub held_by: Option<String>,
    /// How it is attached: `native`, `generic`, ...; empty if unknown.
    pub mode: &'static str,
    /// The programs that it calls, if it is libxdp's dispatcher.
    pub parts: Vec<String>,
    /// The average time of one run, ns, if the kernel measures it.
    pub run_ns: Option<u64>,
}

impl ForeignXdp {
    /// Its cost, as far as known without a measurement.
    #[must_use]
    pub fn cost(&self) -> String {
        match self.run_ns {
            Some(ns) => format!("every packet passes it first, and it takes {ns} ns of each"),
            None => "every packet passes it first; how long it takes is told once sysctl \
                     kernel.bpf_stats_enabled is 1"
                .to_owned(),
        }
    }

    /// The program with the tool that loads it: `xdpfilt_alw_udp of xdp-filter`.
    fn with_tool(name: &str) -> String {
        twinpath_bpf::tool_of(name).map_or_else(|| name.to_owned(), |tool| format!("{name} of {tool}"))
    }
}

impl fmt::Display for ForeignXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match &self.name {
            Some(name) => write!(f, "the XDP program {} (id {id}", Self::with_tool(name))?,
            None => write!(f, "the XDP program with id {id}")?,
        }
        match (&self.name, self.mode) {
            (Some(_), "") => f.write_str(")")?,
            (Some(_), mode) => write!(f, ", {mode})")?,
            (None, "") => {}
            (None, mode) => write!(f, " ({mode})")?,
        }
        if !self.parts.is_empty() {
            let parts: Vec<String> = self.parts.iter().map(|part| Self::with_tool(part)).collect();
            write!(f, ", which runs {},", parts.join(", "))?;
        }
        self.held_by.as_ref().map_or(Ok(()), |holder| write!(f, " of {holder}"))
    }
}

impl From<XdpHolder> for ForeignXdp {
    fn from(holder: XdpHolder) -> Self {
        let held_by = holder.processes.first().map(|(pid, name)| format!("{name} (pid {pid})"));
        Self {
            id: holder.program_id,
            name: holder.name,
            held_by,
            mode: holder.mode.name(),
            parts: holder.parts,
            run_ns: holder.run_ns,
        }
    }
}

/// All facts on which the choice of a path depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Name of the interface.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Kind of software device (`veth`, `vlan`, ...) or name of the driver (`virtio_net`, `ice`, ...); may be empty.
    pub kind: String,
    /// Whether it is a software device: the kernel reports a kind for it.
    pub software: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Whether it carries Ethernet frames.
    pub ethernet: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// The bridge or bond that it is a port of: name and kind. A VRF does not count, because it takes no
    /// frames.
    pub port_of: Option<(String, String)>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// The driver's XDP features; `None` if the kernel does not report them (before 6.3).
    pub xdp_features: Option<XdpFeatures>,
    /// Whether VLAN tags of received frames are removed from the frame; `None` if unknown.
    pub vlan_rx_offload: Option<bool>,
    /// A foreign XDP program on it.
    pub foreign_xdp: Option<ForeignXdp>,
    /// Whether the kernel redirects frames here from the device of an exception port, and the sockets
    /// support what is needed.
    pub crossed: bool,
    /// Whether it has a usable address.
    pub has_addresses: bool,
    /// AF_XDP sockets.
    pub af_xdp: Support,
    /// How the program at tc ingress would be attached, or the reason that the packet path is not possible.
    pub tc: Result<TcAttach, String>,
    /// The capabilities of this process.
    pub capabilities: Capabilities,
    /// The name of this program, for advice.
    pub program: String,
}

/// Paravirtual drivers, whose other end is another system's network stack, not a wire.
pub(crate) const PARAVIRTUAL: [&str; 5] = ["virtio_net", "vif", "vmxnet3", "hv_netvsc", "netvsc"];

impl InterfaceFacts {
    /// Whether it is a software or paravirtual device. No XDP mode is faster than the packet ring there,
    /// and the other side may send frames that its own sender left to hardware to segment.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.software || PARAVIRTUAL.contains(&self.kind.as_str())
    }

    /// How the program at tc ingress is attached, if the packet path is possible.
    #[must_use]
    pub fn tc_attach(&self) -> TcAttach {
        self.tc.clone().unwrap_or(TcAttach::Tcx)
    }
}

/// Collects the facts of one link. Facts that cannot be read are unknown, which the choice treats with
/// care.
///
/// `foreign_xdp` is the program that the kernel reports for the link, without its name and holder, which the caller
/// adds; the caller also sets `crossed`.
pub fn collect(link: &Link, tables: &Tables, kernel: KernelSupport) -> InterfaceFacts {
    let driver = ioctl::driver(&link.name).ok().map(|driver| driver.name);
    let (rx_queues, tx_queues) = queues(&link.name).unwrap_or((link.rx_queues, link.tx_queues));
    let port_of = link.master.filter(|_| link.port_kind != "vrf").map(|master| {
        let master = tables.link(master);
        let name = master.map_or_else(|| "another device".to_owned(), |master| master.name.clone());
        let kind = if link.port_kind.is_empty() { "bridge".to_owned() } else { link.port_kind.clone() };
        (name, kind)
    });
    InterfaceFacts {
        name: link.name.clone(),
        ifindex: link.ifindex,
        kind: if link.kind.is_empty() { driver.unwrap_or_default() } else { link.kind.clone() },
        software: !link.kind.is_empty(),
        loopback: link.loopback,
        ethernet: link.ethernet,
        mtu: link.mtu,
        port_of,
        rx_queues,
        tx_queues,
        xdp_features: xdp_features::query(link.ifindex),
        vlan_rx_offload: active_features(&link.name).map(|on| takes_tags_off(&on)),
        foreign_xdp: link.xdp_program.map(|id| ForeignXdp { id, ..ForeignXdp::default() }),
        crossed: false,
        has_addresses: tables.addresses(link.ifindex).next().is_some(),
        af_xdp: kernel.af_xdp,
        tc: kernel.tc,
        capabilities: Capabilities::held(),
        program: "twinpath".to_owned(),
    }
}
