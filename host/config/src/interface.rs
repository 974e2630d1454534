//! `[interface]`: the interface that is served, and its path.

use super::key::section;
use super::{AttachAsked, PathAsked, ReflexAsked, SERVE, SERVE_AND_BENCH, Wrong};

/// Longest name of an interface: `IFNAMSIZ` of linux/if.h without its terminator.
const NAME_MAX: usize = 15;

section! {
    /// `[interface]`
    pub struct Interface, InterfaceOverrides in "interface" {
        /// Interface to serve on, as `ip link` shows it
        name: Option<String> = None =>
            values_are("a name of `ip link`"), unset("none: has to be given"),
            option("on", "IFACE", SERVE_AND_BENCH), example("\"eth0\"");

        /// The path: auto (the best one that is safe here), xdp, xdp-zerocopy, packet or kernel (no fast path)
        path: PathAsked = PathAsked::default() => option("path", "PATH", SERVE_AND_BENCH);

        /// How the program at tc is attached: tcx (BPF links), clsact (classic filters) or auto (tcx if the
        /// kernel has it)
        attach: AttachAsked = AttachAsked::default() => option("attach", "HOW", SERVE);

        /// Whether the kernel's programs answer requests without a worker, if a service allows it: auto (except under
        /// loads at which an awake worker answers more), always or off
        reflex: ReflexAsked = ReflexAsked::default() => option("reflex", "WHEN", SERVE);

        /// Measure at start how much attaching slows the kernel's own traffic (some 3 s); path auto takes it into account
        measure_fallback: bool = false => option("measure-fallback", "", SERVE);

        /// The share of that traffic that a path may cost; path auto takes the next path above it
        fallback_loss_max: u32 = 10 => range(0, 100), unit("%"), option("fallback-loss-max", "PERCENT", SERVE);

        // Twice as many small datagrams as a kernel socket's default buffer holds, and few enough that the slots in use
        // stay in the cache: with 2048 a round trip took 2 % longer. At most 16 MiB per ring.
        /// Frames that each receive ring holds while its worker cannot read it, 2 KiB each
        ring_frames: u32 = 512 => range(64, 8192), power_of_two(), unit("frames"), option("ring-frames", "N", SERVE);
    }
}

impl Interface {
    /// What is wrong with the name.
    pub(super) fn name_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("interface.name", sentence));
        let Some(name) = &self.name else {
            return wrong("which interface? Set it here or give --on IFACE".to_owned());
        };
        let is_none = name.is_empty() || name.len() > NAME_MAX || name.contains(['/', ' ', '\0']);
        if is_none { wrong(format!("`{name}` is no name of an interface: see `ip link`")) } else { None }
    }

    /// Everything else that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        self.range_faults()
    }
}
