//! The load generator as a value: what to send when, and what each reply means.
//!
//! A client asks [`Load::due`] for the next request, lets [`Load::write`] fill its payload, reports it with
//! [`Load::sent`], and hands every reply it receives to [`Load::reply`]. The same value drives kernel sockets
//! and the fast path, so both are measured by one yardstick. What requests and replies look like is a [`Codec`]. A load
//! never reads a clock, touches a socket, or allocates after [`Load::new`].

mod arrivals;
mod calls;
mod codec;
mod config;
mod load;
mod pairs;
mod pattern;
mod summary;
mod unpaired;

pub use arrivals::{Arrivals, BURST_JITTER, Schedule};
pub use calls::{Asked, CallError, Calls, FRAGMENTS_MAX, Framing};
pub use codec::{Answer, Codec, Cut};
pub use config::{INFLIGHT_MAX, Limit, LoadConfig, LoadError, PAYLOAD_MAX, PAYLOAD_MIN, SILENT_TIMEOUTS};
pub use load::{Load, Reply, RequestId};
pub use pairs::{INTERVAL_PAIRS_MIN, interval95, median};
pub use pattern::Echo;
pub use summary::Summary;
pub use unpaired::{Ratio, unpaired_ratio};
