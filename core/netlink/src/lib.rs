//! Netlink: requests to the kernel with their answers ([`Netlink`]), and its notifications ([`Subscription`]).
//!
//! All calls are synchronous. The kernel handles a request within the send, and continues a list within the
//! receive; it may wait there for a lock of its own. A caller waits for an answer up to a deadline. A subscription
//! is read without waiting; its descriptor is readable when there is something to read.
//!
//! A message is a fixed header and attributes: [`Body`] writes them, [`Attributes`] reads them. Only the attributes
//! that the caller wants are read, so a newer kernel that sends more or longer ones is still understood. [`route`]
//! has requests about links, [`generic`] the families of generic netlink.

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
