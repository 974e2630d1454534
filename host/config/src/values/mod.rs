//! Values of configuration keys as they are written in files and on the command line: each can be parsed
//! from a text and written as one. The keys themselves are defined in `crate`.

mod command;
mod control;
mod export;
mod fault;
mod goal;
mod name;
mod on_exit;
mod openflow;
mod path;
mod port;
mod service;

pub use command::Command;
pub use control::{AddressError, MetricsAddress, Sandbox};
pub use export::{ExportText, ExportTextError, Squashed};
pub use fault::{ConfigError, Fault, Mistake};
pub use goal::{CpuGoal, LatencyGoal, goal};
pub use name::{NAME_MAX, is_name};
pub use on_exit::OnExit;
pub use openflow::{DatapathId, Endpoint, FailMode, Offload, PortOffload, Receive};
pub use path::{AttachAsked, Path, PathAsked, ReflexAsked, TcpPathAsked, UnknownAttach, UnknownPath};
pub use port::{AddressList, PortKind, PortMode, PortName, StaticEntry, VLAN_MAX, VlanList};
pub use service::{FlowText, FlowTextError, ServiceKind, SourceText};
