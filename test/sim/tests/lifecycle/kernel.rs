//! The model of the kernel: one interface with the programs on it, and the sockets of ports.

use std::collections::{BTreeMap, BTreeSet};

/// The number of an instance.
pub(crate) type Who = usize;
/// A port; also the part of the workers that serves it.
pub(crate) type Port = usize;

/// Who in an instance has a descriptor of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Control,
    Workers,
    /// A reload that is not in force yet.
    Staged,
}

/// Programs on the interface.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) owner: Who,
    pub(crate) ports: BTreeSet<Port>,
}

/// The kernel's state.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// Whether the interface is there.
    pub(crate) present: bool,
    /// How often it has appeared. An instance attaches to the interface that it knows.
    pub(crate) generation: u32,
    /// Whether packets are to be checked in a way that claimed flows would bypass.
    pub(crate) bypassed: bool,
    pub(crate) programs: Vec<Program>,
    /// Who has descriptors of the socket at each port.
    pub(crate) sockets: BTreeMap<Port, BTreeSet<(Who, Holder)>>,
}

impl Kernel {
    /// The interface is removed, with the programs on it.
    pub(crate) fn remove_interface(&mut self) {
        self.present = false;
        self.programs.clear();
    }

    pub(crate) fn add_interface(&mut self) {
        self.present = true;
        self.generation += 1;
    }

    pub(crate) fn detach(&mut self, owner: Who) {
        self.programs.retain(|program| program.owner != owner);
    }

    /// Whether anybody has a socket at this port.
    pub(crate) fn is_bound(&self, port: Port) -> bool {
        self.sockets.contains_key(&port)
    }

    pub(crate) fn hold(&mut self, port: Port, who: Who, holder: Holder) {
        self.sockets.entry(port).or_default().insert((who, holder));
    }

    pub(crate) fn let_go(&mut self, is: impl Fn(Port, Who, Holder) -> bool) {
        for (port, holders) in &mut self.sockets {
            holders.retain(|(who, holder)| !is(*port, *who, *holder));
        }
        self.sockets.retain(|_, holders| !holders.is_empty());
    }

    /// A process ends: everything that it holds by a descriptor goes with it.
    pub(crate) fn end_process(&mut self, who: Who) {
        self.detach(who);
        self.let_go(|_, holder, _| holder == who);
    }
}
