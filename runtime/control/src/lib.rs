//! Control: everything that is slow, or asks the kernel, so that workers need not.
//!
//! Configuration, the mirror of the kernel's tables, the choice of a path per interface, the command socket and what
//! `show` says. It runs on a thread of its own (tokio, current thread). It never touches a frame: workers get values
//! and updates, control gets copies of counters.

pub mod bridge;
mod bypassed;
pub mod capture;
pub mod choose;
pub mod command;
pub mod config;
pub mod device;
pub mod egress_book;
pub mod facts;
pub mod fallback;
pub mod holders;
pub mod instance;
pub mod machine;
pub mod metrics;
pub mod mirror;
mod notify;
mod outbox;
pub mod privileges;
mod readable;
pub mod report;
pub mod rpcbind;
mod sandbox;
mod signals;
pub mod tune;
mod xdp_features;
