//! Finds the settings of the machine that make an interface slow to answer, and changes them on request: `twinpath
//! tune`.
//!
//! There are four separate steps: [`topology::look`] reads what the machine consists of, [`advise::advise`] decides the
//! advised values (a pure function), [`survey::survey`] reads the present values, and [`apply`] changes them, after
//! [`journal`] has stored the former ones. All access goes through [`System`]: the host, or a directory with copies of
//! its files. No setting is changed without a request.

pub mod advise;
pub mod apply;
mod boot;
mod device_netlink;
mod form;
mod host;
pub mod journal;
mod knowledge;
mod napi;
mod parameter;
mod qdisc;
pub mod restore;
pub mod setting;
pub mod survey;
mod system;
pub mod topology;

pub use advise::Wish;
pub use host::{Host, HostError};
pub use napi::set_all as set_napis;
pub use parameter::Parameter;
pub use setting::Id;
pub use survey::{Line, State};
pub use system::{At, System, Trouble};

#[cfg(test)]
mod tests;
