//! Services: what is done with a request, whichever path it came by.
//!
//! Two nouns, as in ksf: a *service* and its *connections*. A service is told of a datagram or of bytes on a connection
//! and says what to answer; it knows neither sockets nor frames, so one service runs unchanged on the kernel's sockets
//! and on the fast path. It is called on a worker and must not block.

mod datagram;
mod echo;
mod output;

use std::net::SocketAddr;

pub use datagram::{Answer, Datagram};
pub use echo::Echo;
pub use output::Output;

/// A network service.
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
    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer;

    /// A connection was opened.
    fn accept(&mut self, peer: SocketAddr) -> Self::Connection;

    /// Bytes came on a connection. Returns how many were used; the others come again, with more behind them, once the
    /// output has drained or more has come.
    fn stream(&mut self, connection: &mut Self::Connection, input: &[u8], output: &mut Output<'_>) -> usize;
}
