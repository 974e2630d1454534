//! The OpenFlow state of a switch and its sessions with controllers, as functions of (state, now, input).
//!
//! [`OpenFlowSwitch`] takes the bytes of controllers and has bytes for them; it keeps flows, groups, meters and ports as
//! they were sent, checks every change as OpenFlow 1.3.5 says (section numbers are those of that document), and makes it
//! in the workers' tables by a [`Datapath`]. What it wants of those who own frames and ports is a [`Request`].
//!
//! - A barrier's reply leaves when no worker judges what arrives by what held before; until then its controller is not read.
//! - A long reply is made part by part, and waits for its controller to read: then that controller is not read either.
//! - Packet-ins have a limit of rate for each port, and of memory for each controller; beyond it they are dropped and
//!   counted.
//! - A flow-removed message has the final counters: it leaves when no worker judges by the flow.
//!
//! Never here: a connection, a frame of a worker, a clock, a thread. Queues are refused by name: there are none.

mod buffers;
mod check;
mod datapath;
mod describe;
mod entry;
mod flows;
mod groups;
mod handle;
mod index;
mod meters;
mod session;
mod switch;
mod tables;
mod view;
mod walk;

pub use buffers::BUFFERS;
pub use datapath::{Datapath, TimedFlow};
pub use describe::SwitchInfo;
pub use session::Ending;
pub use switch::{CONTROLLERS_MAX, ControllerId, Dropped, OpenFlowSwitch, Punt, Request};
pub use view::{FlowView, GroupView, MeterView, Sizes, TableView};
