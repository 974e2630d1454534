//! Services: the code that answers requests, independent of the path by which they arrived.
//!
//! There are two nouns, as in ksf: a *service* and its *connections*. A service gets a datagram, or bytes
//! of a connection, and returns the answer. It does not know sockets, so the same service runs on the
//! kernel's sockets and on the fast path. A service of an EtherType gets whole frames and has only the fast
//! path, because the kernel has no socket for them. All calls are made on a worker and must not block.

mod chargen;
mod closed;
pub mod connections;
mod datagram;
mod discard;
mod echo;
mod frame;
mod handle;
mod later;
mod outbox;
mod output;
mod reflect;
mod reflex;
mod sessions;
pub mod stream;

use std::net::SocketAddr;
use std::sync::Arc;

pub use chargen::Chargen;
pub use closed::Closed;
pub use datagram::{Answer, Beside, Datagram};
pub use discard::Discard;
pub use echo::Echo;
pub use frame::EthernetFrame;
pub use handle::{Begin, Message, MessageQueue, NotSent, SendHandle};
pub use later::{Job, Later, Order, Work};
pub use outbox::{ConnectionId, Outbox, Recipient};
pub use output::{Next, Output};
pub use reflect::Reflect;
pub use reflex::{BINDINGS_MAX, Keep, Keeper, KeptReplies, Reflex, TooManyBindings};
pub use sessions::{SessionLimits, Sessions, WhenFull};
pub use twinpath_inspect::Reason;
pub use twinpath_inspect::ServiceCounters;
pub use twinpath_inspect::{CounterId, HistogramId, MetricName, OwnMetrics, ReasonId};
pub use twinpath_inspect::{ProcedureCounts, ProcedureId, ProcedureName};
pub use twinpath_reflex::{HOLD_MAX, Name, Shape, Version};
pub use twinpath_time::{Duration, Instant};

/// A network service. The default methods answer nothing, so a service of datagrams need not implement frames and
/// streams.
///
/// A panic in a call by a worker is caught: the connection is closed, or the datagram or frame is dropped,
/// and the panic is counted as `handler_failed`. The service continues in the state that the panic has
/// left.
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
    /// The service's state per connection.
    type Connection: Send;

    /// This clone begins on its worker: called once, on the worker's thread, before all other calls. State
    /// that differs between workers is set here.
    fn start(&mut self, _now: Instant, _begin: &Begin) {}

    /// A datagram has arrived; returns the answer.
    fn datagram(&mut self, _datagram: &mut Datagram<'_>) -> Answer {
        Answer::Nothing
    }

    /// A frame with a claimed EtherType has arrived; returns the answer. The first `len` bytes of the
    /// buffer are the answer, a whole frame, which leaves by the port by which the request arrived.
    fn frame(&mut self, _frame: &mut EthernetFrame<'_>) -> Answer {
        Answer::Nothing
    }

    /// A connection was opened.
    ///
    /// # Errors
    /// The reason to refuse it: the connection is closed immediately, and counted under the reason.
    fn accept(&mut self, now: Instant, peer: SocketAddr) -> Result<Self::Connection, Reason>;

    /// An accepted connection begins: a service that sends first writes its output here.
    fn opened(&mut self, _now: Instant, _connection: &mut Self::Connection, _output: &mut Output<'_>) {}

    /// Bytes have arrived on a connection. Returns how many were used: any number of whole requests. It is
    /// called again immediately while it uses some. Unused bytes are passed again, followed by new ones,
    /// once more have arrived, or once the output has been sent and [`Self::writable`] has nothing to add.
    /// It may also be called while a long reply is being sent: a service that wants no further request
    /// meanwhile returns 0.
    fn stream(
        &mut self,
        _now: Instant,
        _connection: &mut Self::Connection,
        input: &[u8],
        _output: &mut Output<'_>,
    ) -> usize {
        input.len()
    }

    /// The output of a connection has been sent: there is room again for a full output.
    ///
    /// It is called after every call of [`Self::stream`] or of itself that wrote something, as soon as the
    /// peer's socket has taken all of it and no earlier reply is [still to come](Output::later), whether or
    /// not the output was full. So a service writes as much of a long reply as fits, and continues here
    /// until a call writes nothing. It is also called when a deferred reply, or bytes [sent from
    /// elsewhere](Outbox::send_on), have been sent, and when there is room for work that
    /// [`Output::may_defer`] refused here. It is not called once the service has ended the connection.
    ///
    /// A connection may send 256 KiB per turn of its worker, or one output if that is more. Then other
    /// connections are served, and it continues in the next turn.
    fn writable(&mut self, _now: Instant, _connection: &mut Self::Connection, _output: &mut Output<'_>) {}

    /// The time has come that [`Output::wake_at`] has set for the connection. If a reply is being written,
    /// or the peer does not take it, this is called when that has ended.
    fn woken(&mut self, _now: Instant, _connection: &mut Self::Connection, _output: &mut Output<'_>) {}

    /// When [`Self::timer`] is to be called. It is asked after each turn of the worker, so it must be
    /// cheap: a field, or the first of a sorted list. It must not panic: that ends the process. While
    /// another instance or worker serves in place of this clone, its timer is not called. After a
    /// take-over, the timers belong to the clones of the new instance, while this one only ends its
    /// connections. Timers of connections ([`Output::wake_at`]) are called until the connection is over.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    /// The time of [`Self::deadline`] has come, or has passed. The service moves its deadline into the
    /// future here. If the deadline is still due, this is called again after 100 ms.
    fn timer(&mut self, _now: Instant, _outbox: &mut Outbox) {}

    /// Another thread has called [`SendHandle::notify`] with this number.
    fn notified(&mut self, _now: Instant, _number: u64, _outbox: &mut Outbox) {}

    /// Whether it sends from other threads: if so, [`Self::start`] gets a [`SendHandle`].
    fn sends_later(&self) -> bool {
        false
    }

    /// The service's own counters, if it has any. Each clone has its own, so the service's `Clone` must
    /// make new ones: a derived one would share them among the workers.
    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        None
    }

    /// The [later](Datagram::later) reply to a datagram is ready; it is sent now if the peer can still be reached.
    /// `number` is the service's number for the datagram, 0 if it gave none.
    ///
    /// # Errors
    /// The reason not to send it, such as `late_reply` if its peer's session is gone.
    fn late_reply(
        &mut self,
        _now: Instant,
        _peer: SocketAddr,
        _number: u64,
        _reply: &[u8],
    ) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether it uses [`Output::later`] or [`Datagram::later`]: if so, threads that may block are kept ready for it.
    fn defers(&self) -> bool {
        false
    }

    /// How many lanes its [`Work`] has, numbered from 0; a further number is taken for the last lane. Each lane may have as
    /// many threads as the pool's limit says.
    fn lanes(&self) -> u32 {
        1
    }

    /// Whether a reply of such a service to a datagram could make the same service answer again. One
    /// datagram with a forged source could start an endless exchange between two of them. Therefore replies
    /// to one source that are as large as their requests are limited in rate (`limits.reply_rate`). Return
    /// false only if the service can tell requests from replies and never answers a reply.
    fn may_loop(&self) -> bool {
        true
    }

    /// Which replies may be sent without the service, while the worker sleeps. All clones must return the
    /// same. It is asked once, when an instance starts.
    fn reflex(&self) -> Reflex {
        Reflex::Never
    }

    /// A connection is over. Its deferred replies are dropped, and counted as `late_reply`.
    fn close(&mut self, _connection: Self::Connection, _why: Closed) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service with only the required method.
    struct Silent;

    impl Service for Silent {
        type Connection = ();

        fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
            Ok(())
        }
    }

    #[test]
    fn what_a_service_does_not_say_it_does_not_answer() {
        let (now, peer) = (Instant::ZERO, SocketAddr::from(([192, 0, 2, 1], 9)));
        let mut buffer = *b"request";
        assert_eq!(Silent.datagram(&mut Datagram::new(now, peer, peer, &mut buffer, 7)), Answer::Nothing);
        assert_eq!(Silent.frame(&mut EthernetFrame::new(&mut buffer, 7)), Answer::Nothing);
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 10);
        assert_eq!(Silent.stream(now, &mut (), b"request", &mut output), 7, "it is used up");
        Silent.writable(now, &mut (), &mut output);
        Silent.start(now, &Begin::new(0, None));
        Silent.opened(now, &mut (), &mut output);
        Silent.woken(now, &mut (), &mut output);
        let mut outbox = Outbox::default();
        Silent.timer(now, &mut outbox);
        Silent.notified(now, 7, &mut outbox);
        assert_eq!((output.next(), outbox.is_empty(), bytes.len()), (Next::Keep, true, 0));
        assert_eq!((Silent.deadline(), Silent.sends_later()), (Instant::NEVER, false));
        assert_eq!(Silent.late_reply(now, peer, 0, b"reply"), Ok(()));
        assert!(Silent.counters().is_none() && !Silent.defers());
        assert!(Silent.may_loop(), "unless it says otherwise");
        assert!(matches!(Silent.reflex(), Reflex::Never));
    }
}
