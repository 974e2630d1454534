//! What of the machine makes an interface slow to answer, and what to do about it: `twinpath tune`.
//!
//! Four steps, each on its own: [`topology::look`] finds out what there is, [`advise::advise`] says what it should be
//! (a pure function), [`survey::survey`] reads what it is now, and [`apply`] changes it, after [`journal`] has put down
//! what it was. Everything goes through [`System`]: the host, or a directory that looks like one. Nothing here changes a
//! setting unless it was asked to.

pub mod advise;
pub mod apply;
mod device_netlink;
mod form;
mod host;
pub mod journal;
mod knowledge;
mod napi;
mod parameter;
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
