//! Netlink: requests to the kernel with their answers ([`Netlink`]), and its notifications ([`Subscription`]).
//!
//! All calls are synchronous. The kernel handles a request within the send, and goes on with a list within the receive; it may wait for
//! a lock of its own there. What it has sent is waited for up to a deadline. A subscription is read without waiting; its descriptor is readable when there is something.
//!
//! A message is a fixed header and attributes: [`Body`] writes them, [`Attributes`] reads them. Only the attributes that the caller
//! wants are read, so a newer kernel that sends others, or longer ones, is understood. [`route`] has requests about links,
//! [`generic`] the families of generic netlink.

mod attributes;
mod error;
pub mod generic;
mod message;
mod request;
pub mod route;
mod socket;
mod source;
mod subscription;

pub use attributes::{Attributes, Body};
pub use error::{Failure, NetlinkError};
pub use message::{Message, Messages};
pub use request::{Answers, Netlink, Request};
pub use socket::Protocol;
pub use source::Source;
pub use subscription::{Heard, Subscription};
