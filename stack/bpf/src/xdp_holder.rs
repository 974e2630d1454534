//! The program on an interface's XDP hook, as a value.

use std::fmt;

/// The mode in which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// In the driver (native).
    Native,
    /// On socket buffers (generic).
    Generic,
    /// In the device.
    Offloaded,
    /// In several of these.
    Several,
}

impl Attachment {
    /// The name of the mode.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
            Self::Several => "in several modes",
        }
    }
}

/// The program on an interface's XDP hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpHolder {
    /// The program's ID; 0 if it could not be read.
    pub program_id: u32,
    /// The program's name, if we may read it and it has one.
    pub name: Option<String>,
    /// The hash of its instructions, as `bpftool prog` shows it.
    pub tag: Option<u64>,
    /// How it is attached.
    pub mode: Attachment,
    /// The processes that hold the program or its link, if we may see them: process ID and command.
    pub processes: Vec<(u32, String)>,
    /// The programs that it calls in turn, if it is libxdp's dispatcher and its pins can be read.
    pub parts: Vec<String>,
    /// Average time of one run, ns, if the kernel keeps count (`kernel.bpf_stats_enabled`).
    pub run_ns: Option<u64>,
}

/// Known tools, by the beginning of their programs' names: (beginning of the name, tool).
const TOOLS: [(&str, &str); 4] = [
    ("xdpfilt_", "xdp-filter"),
    ("xdpdump", "xdpdump"),
    ("xdp_dispatcher", "libxdp"),
    ("cil_xdp_", "Cilium"),
];

/// The tool that loads programs of this name, if it is a known one.
#[must_use]
pub fn tool_of(program: &str) -> Option<&'static str> {
    TOOLS.iter().find(|(prefix, _)| program.starts_with(prefix)).map(|(_, tool)| *tool)
}

impl XdpHolder {
    pub(crate) const UNKNOWN: Self = Self {
        program_id: 0,
        name: None,
        tag: None,
        mode: Attachment::Several,
        processes: Vec::new(),
        parts: Vec::new(),
        run_ns: None,
    };
}

impl fmt::Display for XdpHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.program_id == 0 {
            return f.write_str("a program that went away while we asked");
        }
        write!(f, "program {}", self.program_id)?;
        if let Some(name) = &self.name {
            write!(f, " \"{name}\"")?;
        }
        if let Some(tag) = self.tag {
            write!(f, ", tag {tag:016x}")?;
        }
        write!(f, ", {}", self.mode.name())?;
        match &self.processes[..] {
            [] => f.write_str(", held by no process we can see"),
            processes => {
                f.write_str(", held by")?;
                processes.iter().try_for_each(|(pid, command)| write!(f, " {command} ({pid})"))
            }
        }
    }
}
