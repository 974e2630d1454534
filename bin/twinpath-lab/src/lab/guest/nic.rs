//! Network cards that a guest is given: two of a kind, joined by a cable.

/// What qemu emulates and Debian's kernels drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Nic {
    VirtioNet,
    Igb,
    E1000e,
}

impl Nic {
    /// The module of its driver.
    pub(super) fn driver(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio_net",
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
        }
    }

    fn model(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio-net-pci",
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
        }
    }

    /// The first major version of qemu that has it.
    pub(super) fn oldest_qemu(self) -> u32 {
        if self == Self::Igb { 8 } else { 0 }
    }

    /// What qemu is told.
    pub(super) fn args(self) -> Vec<String> {
        let mut args = vec![("-machine", "q35".to_owned())];
        for end in [1, 2] {
            args.extend([
                // Each in a slot of its own, as an igb keeps places on its bus for its virtual functions.
                ("-device", format!("pcie-root-port,id=slot-{end},chassis={end}")),
                ("-netdev", format!("hubport,id=cable-{end},hubid=0")),
                // No code of its own to boot from.
                ("-device", format!("{},bus=slot-{end},netdev=cable-{end},romfile=", self.model())),
            ]);
        }
        args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}
