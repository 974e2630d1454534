//! The network cards of a guest: two of a kind, joined by a cable.

/// The cards that qemu emulates and Debian's kernels support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Nic {
    VirtioNet,
    Igb,
    /// A virtual function (SR-IOV) of each of two igb.
    IgbVf,
    E1000e,
}

/// What the guest's kernel calls the two cards, and one virtual function of each, in the order in which they appear.
const CARDS: [&str; 2] = ["eth0", "eth1"];
const FUNCTIONS: [&str; 2] = ["eth2", "eth3"];
/// The driver of an igb's virtual functions.
pub(super) const FUNCTION_DRIVER: &str = "igbvf";

impl Nic {
    /// The modules of its drivers.
    pub(super) fn drivers(self) -> &'static [&'static str] {
        match self {
            Self::VirtioNet => &["virtio_net"],
            Self::Igb => &["igb"],
            Self::IgbVf => &["igb", FUNCTION_DRIVER],
            Self::E1000e => &["e1000e"],
        }
    }

    /// The interfaces that the lab is between.
    pub(super) fn interfaces(self) -> [&'static str; 2] {
        if self == Self::IgbVf { FUNCTIONS } else { CARDS }
    }

    /// The cards that are to have a virtual function each.
    pub(super) fn divided(self) -> &'static [&'static str] {
        if self == Self::IgbVf { &CARDS } else { &[] }
    }

    fn model(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio-net-pci",
            Self::Igb | Self::IgbVf => "igb",
            Self::E1000e => "e1000e",
        }
    }

    /// The first major version of qemu that has it.
    pub(super) fn oldest_qemu(self) -> u32 {
        if matches!(self, Self::Igb | Self::IgbVf) { 8 } else { 0 }
    }

    /// The qemu options.
    pub(super) fn args(self) -> Vec<String> {
        let mut args = vec![("-machine", "q35".to_owned())];
        for end in [1, 2] {
            args.extend([
                // Each in its own slot, because an igb reserves places on its bus for virtual functions.
                ("-device", format!("pcie-root-port,id=slot-{end},chassis={end}")),
                ("-netdev", format!("hubport,id=cable-{end},hubid=0")),
                // No option ROM to boot from.
                ("-device", format!("{},bus=slot-{end},netdev=cable-{end},romfile=", self.model())),
            ]);
        }
        args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}
