//! OpenFlow 1.3's tables as a value: what becomes of a frame, and what is counted (OpenFlow 1.3.5, section 5).
//!
//! [`Pipeline`] is control's end: flows, groups, meters and ports are changed there, and [`Pipeline::publish`] gives a
//! [`Snapshot`] of all of them for every worker. [`Worker`] is a worker's end: it takes each frame through the tables of its
//! snapshot, changes the frame's headers, and passes it to an [`Outlet`].
//!
//! - A change of one flow costs microseconds whatever the number of flows, as versions share what has not changed. A worker
//!   takes a version between two frames by replacing one pointer, however many changes are in it; it frees nothing.
//! - A barrier is true: [`Pipeline::barrier`] names the version that has all changes, and [`Pipeline::taken`] is told when
//!   every worker has it.
//! - A table takes its shape from its flows (`table/mod.rs`), and a look-up has a bound that no frame can exceed.
//! - Each worker counts for itself ([`Count`]); control adds up when it is asked, and asks no worker.
//!
//! Control checks what a controller asks for before it comes here: prerequisites, instructions, values. What is wrong
//! nonetheless does nothing.
//!
//! Never here: messages of the protocol, connections, time-outs, threads, a decision about what controllers may do.

mod action_set;
mod control;
mod counters;
mod exact;
mod group;
mod hash;
mod key;
mod meter;
mod outlet;
mod packet;
mod parse;
mod port;
mod rewrite;
mod rule;
mod snapshot;
mod sync;
mod table;
mod trace;
mod trie;
mod worker;

pub use control::{Flow, FlowCount, PartsCount, Pipeline, TABLES, TableCount, TableFull};
pub use exact::{Entry, ExactEntries, Inserted, MASKS};
pub use group::GroupConfig;
pub use meter::{MeterConfig, MeterUnit};
pub use outlet::{Destination, Outlet, PacketIn, PacketInReason};
pub use parse::Ingress;
pub use port::{Port, Ports};
pub use rule::FlowId;
pub use snapshot::Snapshot;
pub use trace::{EXACT_WORDS, ExactKey, Path, Trace, WhyNot};
pub use twinpath_openflow_wire::Count;
pub use worker::{Arrival, Worker};
