//! The load generator as a value: it determines what to send when, and checks each reply.
//!
//! A client calls [`Load::due`] for the next request, [`Load::write`] to fill its payload, [`Load::sent`]
//! when it has been sent, and [`Load::reply`] for every reply that it receives. The same value drives
//! kernel sockets and the fast path, so both are measured in the same way. A [`Codec`] defines requests and
//! replies. A load never reads a clock, uses a socket, or allocates after [`Load::new`]. [`Datagrams`] is
//! the counterpart for a stream in one direction.

mod arrivals;
mod calls;
mod codec;
mod config;
mod datagrams;
mod load;
mod nfs;
mod pairs;
mod pattern;
mod schedule;
mod summary;
mod unpaired;

pub use arrivals::{Arrivals, BURST_JITTER};
pub use calls::{CallError, Calls, FRAGMENTS_MAX, Framing};
pub use codec::{Answer, Codec, Cut, RequestId};
pub use config::{
    DATAGRAM_MIN, INFLIGHT_MAX, Limit, LoadConfig, LoadError, PAYLOAD_MAX, PAYLOAD_MIN, SILENT_TIMEOUTS,
};
pub use datagrams::{
    DatagramSample, Datagrams, DatagramsConfig, DatagramsSummary, SAMPLES_MAX, sample_interval,
};
pub use load::{Load, Reply};
pub use nfs::{Blocks, Content, NfsFault, NfsProcedure, block_sum, check_block, fill_block};
pub use pairs::{INTERVAL_PAIRS_MIN, interval95, median};
pub use pattern::Echo;
pub use schedule::Schedule;
pub use summary::Summary;
pub use unpaired::{Ratio, unpaired_ratio};
