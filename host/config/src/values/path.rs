//! Paths: the requested one, the one that an interface is on, and how a program at tc ingress is attached.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The path that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathAsked {
    /// The best one that is safe here.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// AF_XDP in copy mode: native where the driver can, else generic.
    #[serde(rename = "xdp")]
    Xdp,
    /// AF_XDP in zero-copy mode.
    #[serde(rename = "xdp-zerocopy")]
    XdpZeroCopy,
    /// The packet ring, with the claim at tc ingress.
    #[serde(rename = "packet")]
    Packet,
    /// The kernel's sockets only.
    #[serde(rename = "kernel")]
    Kernel,
}

impl PathAsked {
    /// All of them, in the order of the help text.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Xdp, Self::XdpZeroCopy, Self::Packet, Self::Kernel];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::XdpZeroCopy => "xdp-zerocopy",
            Self::Packet => "packet",
            Self::Kernel => "kernel",
        }
    }
}

impl fmt::Display for PathAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no path.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no path: use auto, xdp, xdp-zerocopy, packet or kernel")]
pub struct UnknownPath(String);

impl FromStr for PathAsked {
    type Err = UnknownPath;

    fn from_str(text: &str) -> Result<Self, UnknownPath> {
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or_else(|| UnknownPath(text.to_owned()))
    }
}

/// How the program at tc ingress is attached, on the packet path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachAsked {
    /// By a BPF link where the kernel has them for tc, else by a classic filter.
    #[default]
    Auto,
    /// By a BPF link.
    Tcx,
    /// By a classic filter.
    Clsact,
}

impl AttachAsked {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Tcx, Self::Clsact];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// The text names no kind of attaching.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no way to attach: use auto, tcx or clsact")]
pub struct UnknownAttach(String);

impl FromStr for AttachAsked {
    type Err = UnknownAttach;

    fn from_str(text: &str) -> Result<Self, UnknownAttach> {
        Self::ALL.into_iter().find(|how| how.name() == text).ok_or_else(|| UnknownAttach(text.to_owned()))
    }
}

/// Whether the kernel's programs answer requests by themselves, where a service allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReflexAsked {
    /// Yes, except while many requests wait at a time, which a worker that is awake can answer faster.
    #[default]
    Auto,
    /// Yes, at any load, so no CPU is given to a worker for them.
    Always,
    /// None.
    Off,
}

impl ReflexAsked {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Off];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Off => "off",
        }
    }
}

impl FromStr for ReflexAsked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|asked| asked.name() == text);
        known.ok_or_else(|| format!("`{text}` is no choice of reflexes: use auto, always or off"))
    }
}

/// The path of a service's TCP connections, where both are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpPathAsked {
    /// The better one. At present that is always the kernel's.
    #[default]
    Auto,
    /// The fast path, and the kernel's for what it does not take.
    Fast,
    /// The kernel's.
    Kernel,
}

impl TcpPathAsked {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Fast, Self::Kernel];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fast => "fast",
            Self::Kernel => "kernel",
        }
    }
}

impl FromStr for TcpPathAsked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|asked| asked.name() == text);
        known.ok_or_else(|| format!("`{text}` is no path of TCP: use auto, fast or kernel"))
    }
}

/// The path of an interface, best-ranked first on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// AF_XDP, the device writes into our frames.
    XdpZeroCopy,
    /// AF_XDP by the driver's own XDP hook, copying.
    XdpNative,
    /// AF_XDP by the stack's XDP hook, copying.
    XdpGeneric,
    /// Packet ring, claim at tc ingress.
    Packet,
    /// Kernel sockets.
    Kernel,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::XdpZeroCopy, Self::XdpNative, Self::XdpGeneric, Self::Packet, Self::Kernel];

    /// The name that `show` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XdpZeroCopy => "xdp-zerocopy",
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
            Self::Packet => "packet",
            Self::Kernel => "kernel",
        }
    }

    /// Whether frames come through AF_XDP sockets.
    #[must_use]
    pub const fn is_xdp(self) -> bool {
        matches!(self, Self::XdpZeroCopy | Self::XdpNative | Self::XdpGeneric)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
