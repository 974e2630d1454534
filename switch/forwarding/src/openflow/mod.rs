//! OpenFlow 1.3 as functions of (state, now, input): the state of a switch, its sessions with controllers, and the tables
//! that workers take frames through ([`pipeline`]).
//!
//! [`OpenFlowSwitch`] takes bytes from controllers and produces bytes for them. It keeps flows, groups, meters and
//! ports as they were sent. It checks every change against OpenFlow 1.3.5 (section numbers are those of that document),
//! and applies it to the workers' tables through a [`Datapath`]. Work for the owner of frames and ports is a
//! [`Request`].
//!
//! - A barrier's reply leaves when no worker judges new arrivals by older tables. Until then its controller is not
//!   read.
//! - A long reply is made part by part, as its controller reads. Until it is complete, that controller is not read
//!   either.
//! - Packet-ins are limited in rate for each port, and in memory for each controller. Beyond that they are dropped and
//!   counted.
//! - A flow-removed message has the final counters: it leaves when no worker judges by the flow any more.
//!
//! Never here: a connection, a clock, a thread; outside of [`pipeline`], a frame of a worker. Queues are refused by
//! name: there are none.

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
pub mod pipeline;
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
