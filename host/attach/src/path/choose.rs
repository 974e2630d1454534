//! Chooses the path of an interface, as a pure function of the facts and the request.
//!
//! The ranking comes from measurements on this kind of host. On virtual links the packet ring is at least
//! as fast as any XDP mode, and does not disable the peer's segmentation offload. On hardware with native
//! XDP, copy mode is faster. Nothing is attached to find out.

use twinpath_bpf::TcAttach;
use twinpath_config::{AttachAsked, Path, PathAsked};
use twinpath_observe::report;

use crate::path::facts::{InterfaceFacts, Support, XdpFeatures};

/// Decides how the program at tc ingress is attached; `best` is the better kind that the kernel supports.
///
/// # Errors
/// The reason that the requested kind is impossible.
pub fn settle(asked: AttachAsked, best: TcAttach) -> Result<TcAttach, String> {
    match (asked, best) {
        (AttachAsked::Tcx, TcAttach::Clsact) => {
            Err("this kernel has no BPF links at tc (tcx), which interface.attach asks for: leave \
                 that key out, or set it to clsact"
                .to_owned())
        }
        (AttachAsked::Clsact, _) => Ok(TcAttach::Clsact),
        (AttachAsked::Auto | AttachAsked::Tcx, best) => Ok(best),
    }
}

/// A path that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNot {
    /// The path.
    pub path: Path,
    /// The reason: one sentence.
    pub reason: String,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The path to take.
    pub path: Path,
    /// The reason for it.
    pub why: String,
    /// The reasons against each other path that could seem better.
    pub why_not: Vec<WhyNot>,
}

impl Choice {
    /// The reasons in the form of the report.
    #[must_use]
    pub fn report_why_not(&self) -> Vec<report::WhyNot> {
        let row = |not: &WhyNot| report::WhyNot { path: not.path.to_string(), reason: not.reason.clone() };
        self.why_not.iter().map(row).collect()
    }
}

/// The requested path is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--path {asked} on {interface} is not possible: {reason}")]
pub struct Refusal {
    /// The request.
    pub asked: &'static str,
    /// The interface.
    pub interface: String,
    /// The reason, and what to do.
    pub reason: String,
}

/// Chooses the path of an interface.
///
/// # Errors
/// [`Refusal`] if a specific path was requested and is not possible, or would claim packets that are not
/// ours. `auto` and `kernel` are never refused.
pub fn choose(facts: &InterfaceFacts, asked: PathAsked) -> Result<Choice, Refusal> {
    choose_without(facts, asked, &[])
}

/// Like [`choose`], but `auto` avoids the paths that were ruled out after the facts were collected.
///
/// # Errors
/// As for [`choose`].
pub fn choose_without(
    facts: &InterfaceFacts,
    asked: PathAsked,
    ruled_out: &[WhyNot],
) -> Result<Choice, Refusal> {
    let refuse = |reason: String| Refusal { asked: asked.name(), interface: facts.name.clone(), reason };
    let asked_for = |path, why: &str| Choice { path, why: with_notes(facts, why), why_not: Vec::new() };
    match asked {
        PathAsked::Kernel => Ok(asked_for(Path::Kernel, "asked for")),
        PathAsked::Auto => Ok(best(facts, ruled_out)),
        PathAsked::Packet => match packet_obstacle(facts) {
            Some(reason) => Err(refuse(reason)),
            None => Ok(asked_for(Path::Packet, "asked for")),
        },
        PathAsked::XdpZeroCopy => match xdp_obstacle(facts).or_else(|| zero_copy_obstacle(facts)) {
            Some(reason) => Err(refuse(reason)),
            None => Ok(asked_for(Path::XdpZeroCopy, &with_cautions(facts, "asked for"))),
        },
        PathAsked::Xdp => {
            if let Some(reason) = xdp_obstacle(facts) {
                return Err(refuse(reason));
            }
            let Some(native) = native_obstacle(facts) else {
                return Ok(asked_for(Path::XdpNative, &with_cautions(facts, "asked for")));
            };
            match generic_obstacle(facts) {
                Some(generic) => Err(refuse(format!("{native}, and {generic}"))),
                None => Ok(Choice {
                    why_not: vec![WhyNot { path: Path::XdpNative, reason: native }],
                    ..asked_for(Path::XdpGeneric, "asked for")
                }),
            }
        }
    }
}

/// Chooses for `auto`, with a reason for every path that is not used.
fn best(facts: &InterfaceFacts, ruled_out: &[WhyNot]) -> Choice {
    let ruled_out = |path: Path| ruled_out.iter().find(|not| not.path == path).map(|not| not.reason.clone());
    let no_xdp = xdp_obstacle(facts);
    let no_packet =
        packet_obstacle(facts).or_else(|| slower_than_kernel(facts)).or_else(|| ruled_out(Path::Packet));
    let not = |path, reason: Option<String>| reason.map(|reason| WhyNot { path, reason });

    let zero_copy = no_xdp.clone().or_else(|| zero_copy_obstacle(facts)).or_else(|| {
        Some(
            "it is opt-in, as drivers differ in how well they hold it: ask with --path xdp-zerocopy"
                .to_owned(),
        )
    });
    let native = no_xdp
        .clone()
        .or_else(|| native_obstacle(facts))
        .or_else(|| slower_than_packet(facts))
        .or_else(|| hidden_tags(facts))
        .or_else(|| ruled_out(Path::XdpNative));
    let generic = no_xdp.or_else(|| generic_obstacle(facts)).or_else(|| ruled_out(Path::XdpGeneric));

    let mut why_not: Vec<WhyNot> = [not(Path::XdpZeroCopy, zero_copy), not(Path::XdpNative, native.clone())]
        .into_iter()
        .flatten()
        .collect();
    let (path, why) = if native.is_none() {
        (Path::XdpNative, format!("{} runs XDP in its driver; copy mode", kind(facts)))
    } else if no_packet.is_none() {
        let faster = generic.is_none();
        why_not.extend(not(
            Path::XdpGeneric,
            generic.or_else(|| {
                faster.then(|| "the packet ring is faster and stands beside any XDP program".into())
            }),
        ));
        (Path::Packet, packet_reason(facts))
    } else if generic.is_none() {
        why_not.extend(not(Path::Packet, no_packet));
        (
            Path::XdpGeneric,
            "the packet path cannot be had, and no sender's offload or VLAN tag is hidden here".into(),
        )
    } else {
        why_not.extend(not(Path::XdpGeneric, generic));
        why_not.extend(not(Path::Packet, no_packet));
        (Path::Kernel, kernel_reason(facts))
    };
    Choice { path, why: with_notes(facts, &why), why_not }
}

fn packet_reason(facts: &InterfaceFacts) -> String {
    if let Some(foreign) = &facts.foreign_xdp {
        return format!(
            "{foreign} is on the interface and stays there; the packet ring works beside it: {}",
            foreign.cost()
        );
    }
    if facts.is_virtual() {
        return format!(
            "on a {} the packet ring has the lowest latency and leaves the peer's segmentation offload alone",
            kind(facts)
        );
    }
    "no XDP mode is both available and safe here".to_owned()
}

fn kernel_reason(facts: &InterfaceFacts) -> String {
    if facts.loopback {
        "loopback: its peers are on this host, and reach the kernel's sockets directly".to_owned()
    } else if facts.crossed {
        "frames of a bridge cross here within the kernel, so the kernel's sockets are the fastest way in and out"
            .to_owned()
    } else {
        "no fast path can be had here".to_owned()
    }
}

/// Adds notes that do not prevent the path.
fn with_notes(facts: &InterfaceFacts, why: &str) -> String {
    if facts.has_addresses {
        why.to_owned()
    } else {
        format!("{why}; no address is set on the interface, so nothing is claimed until one is")
    }
}

/// Adds the costs of a requested XDP mode here.
fn with_cautions(facts: &InterfaceFacts, why: &str) -> String {
    let mut text = why.to_owned();
    if facts.kind == "veth" {
        text += "; on a veth native XDP turns off the peer's segmentation offload while it is attached";
    }
    if let Some(reason) = hidden_tags(facts) {
        text += "; beware: ";
        text += &reason;
    }
    text
}

/// The reason against any fast path.
fn common_obstacle(facts: &InterfaceFacts) -> Option<String> {
    if facts.loopback {
        return Some("loopback has no wire, and its peers reach the kernel's sockets directly".to_owned());
    }
    if !facts.ethernet {
        return Some(format!("{} does not carry Ethernet frames", facts.name));
    }
    if let Some((master, kind)) = &facts.port_of {
        return Some(format!(
            "it is a port of the {kind} {master}, which takes its frames: serve on {master}"
        ));
    }
    None
}

fn missing(facts: &InterfaceFacts, needs: &[(&str, bool, &str)]) -> Option<String> {
    let lacking: Vec<String> = needs
        .iter()
        .filter(|(_, held, _)| !held)
        .map(|(name, _, purpose)| format!("{name} is missing ({purpose})"))
        .collect();
    (!lacking.is_empty())
        .then(|| format!("{}; run {} as root or grant it", lacking.join(" and "), facts.program))
}

/// The reason against any XDP mode.
fn xdp_obstacle(facts: &InterfaceFacts) -> Option<String> {
    let held = facts.capabilities;
    common_obstacle(facts)
        .or_else(|| {
            let foreign = facts.foreign_xdp.as_ref()?;
            Some(format!("{foreign} is on the interface, and we replace no program"))
        })
        .or_else(|| {
            missing(
                facts,
                &[
                    ("CAP_NET_RAW", held.net_raw, "to open an AF_XDP socket"),
                    ("CAP_NET_ADMIN", held.net_admin, "to attach an XDP program"),
                    ("CAP_BPF", held.bpf, "to load an XDP program"),
                ],
            )
        })
        .or_else(|| facts.af_xdp.obstacle("AF_XDP"))
}

/// The reason against the packet ring.
fn packet_obstacle(facts: &InterfaceFacts) -> Option<String> {
    let held = facts.capabilities;
    common_obstacle(facts)
        .or_else(|| {
            missing(
                facts,
                &[
                    ("CAP_NET_RAW", held.net_raw, "to open a packet socket"),
                    ("CAP_NET_ADMIN", held.net_admin, "to attach the claim at tc ingress"),
                    ("CAP_BPF", held.bpf, "to load the claim's program"),
                ],
            )
        })
        .or_else(|| {
            let reason = facts.tc.as_ref().err()?;
            Some(format!("the claim at tc ingress cannot be had: {reason}"))
        })
}

fn native_obstacle(facts: &InterfaceFacts) -> Option<String> {
    match facts.xdp_features {
        Some(XdpFeatures { basic: true, redirect: true, .. }) => None,
        Some(XdpFeatures { basic: true, .. }) => {
            Some(format!("{} runs XDP in its driver but cannot redirect to a socket", kind(facts)))
        }
        Some(_) => Some(format!("{} runs no XDP in its driver", kind(facts))),
        // Kernels before 6.3 do not report it; these drivers have supported it since long before.
        None if matches!(facts.kind.as_str(), "veth" | "virtio_net" | "tun") => None,
        None => Some(format!("this kernel does not say whether {} runs XDP in its driver", kind(facts))),
    }
}

fn zero_copy_obstacle(facts: &InterfaceFacts) -> Option<String> {
    match facts.xdp_features {
        Some(XdpFeatures { zero_copy: true, .. }) => None,
        _ => Some(format!("{} reports no zero-copy mode", kind(facts))),
    }
}

fn slower_than_packet(facts: &InterfaceFacts) -> Option<String> {
    if !facts.is_virtual() {
        return None;
    }
    let kind = kind(facts);
    Some(if facts.kind == "veth" {
        format!(
            "on a {kind} it has more latency than the packet ring, and takes the peer's segmentation offload away"
        )
    } else {
        format!(
            "on a {kind} it has more latency than the packet ring, and costs the device its receive offloads"
        )
    })
}

/// Replies from a ring bypass the queueing discipline, and with it the program that would redirect them. So
/// the bridge's worker would have to be woken for each.
fn slower_than_kernel(facts: &InterfaceFacts) -> Option<String> {
    facts.crossed.then(|| {
        "a bridge redirects what the kernel's sockets send, but what leaves a ring is carried by its worker, which takes longer".to_owned()
    })
}

/// Accelerated VLAN tags are stored outside the frame, where no XDP program sees them.
fn hidden_tags(facts: &InterfaceFacts) -> Option<String> {
    match facts.vlan_rx_offload {
        Some(false) => None,
        Some(true) => Some(format!(
            "VLAN receive offload hides tags from XDP, so that frames of other VLANs would be claimed (off: ethtool -K \
             {} rxvlan off rx-vlan-stag-hw-parse off)",
            facts.name
        )),
        None => Some("it is unknown whether VLAN receive offload hides tags from XDP".to_owned()),
    }
}

fn generic_obstacle(facts: &InterfaceFacts) -> Option<String> {
    if facts.is_virtual() {
        return Some(format!(
            "on a {} generic XDP can be handed a sender's unsegmented frames, which it cannot tell from ordinary ones",
            kind(facts)
        ));
    }
    hidden_tags(facts)
}

fn kind(facts: &InterfaceFacts) -> &str {
    if facts.kind.is_empty() { "this device" } else { &facts.kind }
}

impl Support {
    fn obstacle(&self, what: &str) -> Option<String> {
        match self {
            Self::Yes => None,
            Self::No(reason) => Some(format!("{what} cannot be had: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests;
