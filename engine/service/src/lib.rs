//! Services: what is done with a request, whichever path it came by.
//!
//! Two nouns, as in ksf: a *service* and its *connections*. A service is told of a datagram or of bytes on a connection
//! and says what to answer; it knows no sockets, so one service runs unchanged on the kernel's sockets and on the fast
//! path. A service of an EtherType is told of whole frames: the kernel has no socket for those, so it has one path only.
//! It is called on a worker and must not block.

mod closed;
mod counters;
mod datagram;
mod echo;
mod frame;
mod later;
mod output;
mod reflect;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;

pub use closed::Closed;
pub use counters::ServiceCounters;
pub use datagram::{Answer, Beside, Datagram};
pub use echo::Echo;
pub use frame::EthernetFrame;
pub use later::{Job, Later, Order, Work};
pub use output::{Next, Output};
pub use reflect::Reflect;
pub use sessions::{SessionLimits, Sessions, WhenFull};
pub use twinpath_inspect::Reason;
pub use twinpath_time::{Duration, Instant};

/// A network service. What it does not say, it does not answer: a service of datagrams leaves out frames and streams.
///
/// A panic in one of the calls of a worker is caught: its connection is closed, or its datagram or frame dropped, and that is counted as
/// `handler_failed`. The service goes on as the panic has left it.
///
/// ```
/// use std::net::SocketAddr;
/// use twinpath_service::{Answer, Datagram, Instant, Output, Reason, Service};
///
/// /// Answers every datagram and every line of a stream with its length.
/// #[derive(Clone)]
/// struct Length;
///
/// impl Service for Length {
///     type Connection = ();
///
///     fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
///         let length = datagram.request().len().to_string();
///         datagram.answer(length.as_bytes())
///     }
///
///     fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
///         Ok(())
///     }
///
///     fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
///         let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
///         if output.write(format!("{end}\n").as_bytes()) { end + 1 } else { 0 }
///     }
/// }
/// ```
pub trait Service: Send {
    /// What the service keeps per connection.
    type Connection: Send;

    /// A datagram came; say what to answer.
    fn datagram(&mut self, _datagram: &mut Datagram<'_>) -> Answer {
        Answer::Nothing
    }

    /// A frame of a claimed EtherType came; say what to answer. The first `len` bytes of its buffer are the answer, a whole
    /// frame, and leave by the port it came from.
    fn frame(&mut self, _frame: &mut EthernetFrame<'_>) -> Answer {
        Answer::Nothing
    }

    /// A connection was opened.
    ///
    /// # Errors
    /// Why the service does not take it: it is closed at once, and counted under the reason.
    fn accept(&mut self, now: Instant, peer: SocketAddr) -> Result<Self::Connection, Reason>;

    /// Bytes came on a connection. Returns how many were used: as many requests as there are, or one; it is called again at once
    /// while it uses some. The others come again, with more behind them, once more has come or what was written has been sent and
    /// [`Self::writable`] has nothing to add. It may also be called while a long reply is under way: a service that is not to be asked
    /// more meanwhile returns 0.
    fn stream(
        &mut self,
        _now: Instant,
        _connection: &mut Self::Connection,
        input: &[u8],
        _output: &mut Output<'_>,
    ) -> usize {
        input.len()
    }

    /// What was written to a connection has been sent: there is room again for as much as an output may hold.
    ///
    /// It is called after every call of [`Self::stream`] or of itself that wrote something, as soon as the peer's socket has taken all
    /// of it and no earlier reply is [still to come](Output::later); whether the output was full does not matter. So a reply
    /// that is longer than an output is written as far as it fits, and goes on here until a call writes nothing. It is also called
    /// when a reply that was to come later has left, and when there is room for work that [`Output::may_defer`] refused here. It is
    /// not called once the service has ended the connection.
    ///
    /// A connection is given 256 KiB per turn of its worker, or one output if that is more; then others are served, and it goes on in
    /// the next turn.
    fn writable(&mut self, _now: Instant, _connection: &mut Self::Connection, _output: &mut Output<'_>) {}

    /// What it counts by itself, if it does; each clone has its own.
    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        None
    }

    /// The reply to a datagram that was to come [later](Datagram::later) is there; it is sent now if there is still a way. `number`
    /// is what the service gave it, 0 otherwise.
    ///
    /// # Errors
    /// Why it is not: its peer's session is gone, say, which is `late_reply`.
    fn late_reply(
        &mut self,
        _now: Instant,
        _peer: SocketAddr,
        _number: u64,
        _reply: &[u8],
    ) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether it uses [`Output::later`] or [`Datagram::later`]: threads that may block are kept ready for it then.
    fn defers(&self) -> bool {
        false
    }

    /// Whether a reply of such a service to a datagram could make the same service answer again. Two of them can be set on each
    /// other by one datagram with a forged source, so the rate of replies to one source that are as large as their requests is
    /// limited (`limits.reply_rate`). Say no only if the service tells requests from replies and never answers a reply.
    fn may_loop(&self) -> bool {
        true
    }

    /// A connection is over. Its replies still to come are dropped, and counted as `late_reply`.
    fn close(&mut self, _connection: Self::Connection, _why: Closed) {}
}
