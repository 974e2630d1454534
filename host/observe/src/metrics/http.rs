//! The HTTP server for scrapes, limited in clients and in time.
//!
//! It uses hyper without a framework, because there is only one page; a framework's router would double the
//! code.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use twinpath_inspect::Counter;
use twinpath_sys::event_loop::{Latest, Watched, sleep, timeout, yield_now};
use twinpath_sys::race;
use twinpath_time::Duration;

use crate::holders::{Transport, holders};
use crate::metrics::stream::Stream;
use crate::metrics::{Format, encode};
use crate::report::Report;
use crate::together::Together;

/// Maximum number of clients at a time; a further one is disconnected.
pub const CLIENTS_MAX: usize = 16;
/// Time for a client from connecting until it has read its answer.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after accept failed for lack of descriptors: it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum length of a request's header, bytes.
const HEADER_MAX: usize = 16 * 1024;

/// Counts of clients; written by the control thread.
#[derive(Debug, Default)]
pub struct Counters {
    /// Clients disconnected because there were [`CLIENTS_MAX`] already.
    pub refused_full: Counter,
    /// Clients disconnected because they were too slow, or did not send HTTP.
    pub cut_off: Counter,
}

/// The present listener, which may change.
pub type Offered = Latest<Option<Rc<Server>>>;

/// The reason that metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// Another process listens there.
    #[error("cannot offer metrics on {address}: {holder}; choose another port with --metrics")]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The process.
        holder: String,
    },
    /// Any other error.
    #[error(
        "cannot offer metrics on {address}: {source}; choose another place with --metrics [ADDRESS:]PORT"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// The listener.
pub struct Server {
    listener: Watched<TcpListener>,
    address: SocketAddr,
    counters: Arc<Counters>,
}

impl Server {
    /// Listens on `address`; with port 0 the kernel chooses one. Needs an event loop on this thread.
    ///
    /// # Errors
    /// [`MetricsError`], with the process that holds the port if known.
    pub fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => MetricsError::InUse { address, holder: holder(address) },
            _ => MetricsError::Listen { address, source },
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let failed = |source| MetricsError::Listen { address, source };
        let (bound, nonblocking) = (listener.local_addr(), listener.set_nonblocking(true));
        let listener = nonblocking.and_then(|()| Watched::readable(listener)).map_err(failed)?;
        let address = bound.map_err(failed)?;
        Ok(Self { listener, address, counters: Arc::default() })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts of clients.
    #[must_use]
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Serves until dropped. `scrape` returns what one scrape shows; `None` while the instance stops.
    pub async fn serve<F, H>(&self, scrape: F) -> Infallible
    where
        F: Fn() -> H,
        H: Future<Output = Option<Report>>,
    {
        let mut clients = Together::default();
        loop {
            let woken = race!(
                async { Woken::Accepted(self.listener.read(|listener| listener.accept()).await) },
                async { Woken::Served(matches!(clients.ended().await, Ok(Ok(())))) },
            );
            match woken {
                Woken::Accepted(Ok((stream, _))) if clients.len() < CLIENTS_MAX => {
                    clients.push(timeout(PATIENCE, client(stream, &scrape)));
                }
                Woken::Accepted(Ok(_)) => self.counters.refused_full.add(1),
                Woken::Accepted(Err(error)) => {
                    tracing::warn!(%error, "metrics: cannot accept a client");
                    race!(sleep(PAUSE), async { drop(clients.ended().await) });
                }
                Woken::Served(true) => {}
                Woken::Served(false) => self.counters.cut_off.add(1),
            }
            // Clients that come without end must not keep the loop from everything else.
            yield_now().await;
        }
    }
}

/// An event of the listener.
enum Woken {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    /// A client has ended. Whether it got an answer.
    Served(bool),
}

/// Serves on the server that is offered. When another one is, clients of the former one are disconnected.
/// Runs until dropped.
pub async fn serve_where_offered<F, H>(offered: Offered, scrape: F) -> Infallible
where
    F: Fn() -> H,
    H: Future<Output = Option<Report>>,
{
    loop {
        let (server, changes) = (offered.get(), offered.changes());
        let served = async {
            match &server {
                Some(server) => match server.serve(&scrape).await {},
                None => std::future::pending().await,
            }
        };
        race!(served, offered.changed_since(changes));
    }
}

async fn client<F, H>(stream: TcpStream, scrape: &F) -> Result<(), Box<dyn std::error::Error>>
where
    F: Fn() -> H,
    H: Future<Output = Option<Report>>,
{
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, scrape).await) });
    // One scrape per connection, so that a scraper that disappears does not occupy a place.
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEADER_MAX)
        .serve_connection(Stream::new(stream)?, service);
    Ok(connection.await?)
}

async fn answer<F, H>(request: &Request<Incoming>, scrape: &F) -> Response<String>
where
    F: Fn() -> H,
    H: Future<Output = Option<Report>>,
{
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "ask with GET\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    match scrape().await {
        Some(report) => {
            let format = Format::accepted(request.headers());
            let mut page = Response::new(encode(report, format));
            page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            page.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
            page
        }
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "the instance is stopping\n"),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    response
}

/// The process that listens on that port, as text.
fn holder(address: SocketAddr) -> String {
    let fits = |ip: IpAddr| ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    let found = holders(Transport::Tcp, address.port());
    let names: Vec<_> = found.iter().filter(|holder| fits(holder.address)).map(ToString::to_string).collect();
    if names.is_empty() { "another socket holds the port".to_owned() } else { names.join(", ") }
}
