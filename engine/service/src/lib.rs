//! Services: what is done with a request, whichever path it came by.
//!
//! Two nouns, as in ksf: a *service* and its *connections*. A service is told of a datagram or of bytes on a connection
//! and says what to answer; it knows no sockets, so one service runs unchanged on the kernel's sockets and on the fast
//! path. A service of an EtherType is told of whole frames: the kernel has no socket for those, so it has one path only.
//! It is called on a worker and must not block.

mod datagram;
mod echo;
mod frame;
mod output;
mod reflect;

use std::net::SocketAddr;

pub use datagram::{Answer, Datagram};
pub use echo::Echo;
pub use frame::EthernetFrame;
pub use output::Output;
pub use reflect::Reflect;

/// A network service. What it does not say, it does not answer: a service of datagrams leaves out frames and streams.
///
/// ```
/// use std::net::SocketAddr;
/// use twinpath_service::{Answer, Datagram, Output, Service};
///
/// /// Answers every datagram and every chunk of a stream with its length.
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
///     fn accept(&mut self, _peer: SocketAddr) {}
///
///     fn stream(&mut self, _connection: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
///         if output.write(format!("{}\n", input.len()).as_bytes()) { input.len() } else { 0 }
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
    fn accept(&mut self, peer: SocketAddr) -> Self::Connection;

    /// Bytes came on a connection. Returns how many were used; the others come again, with more behind them, once the
    /// output has drained or more has come.
    fn stream(
        &mut self,
        _connection: &mut Self::Connection,
        input: &[u8],
        _output: &mut Output<'_>,
    ) -> usize {
        input.len()
    }
}
