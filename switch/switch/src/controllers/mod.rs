//! Connections between a switch and its OpenFlow controllers: TCP, TLS and UNIX, listened for or made, and made again with
//! back-off.
//!
//! Everything runs on the control thread: [`Controllers::wait`] waits, [`Controllers::turn`] does what there is to do and
//! never blocks. A controller that is not read keeps its bytes in its socket, so it costs no memory here.

mod connection;
mod listener;
mod outgoing;
mod state;
mod stream;
mod tls;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use tokio::time::{Sleep, sleep_until};
use twinpath_config::values::Endpoint;
use twinpath_forwarding::openflow::{CONTROLLERS_MAX, Datapath, OpenFlowSwitch};
use twinpath_time::{Duration, Instant};

pub use self::state::{ControllerState, News, Stage};
pub use self::tls::{Tls, TlsError};

use self::connection::Connection;
use self::listener::Listener;
use self::outgoing::Outgoing;

/// Why a connection gives way.
const DISPLACED: &str = "it had not greeted when there was no room for another";

/// Maximum number of connections taken from a listener in one turn.
const ACCEPTS_EACH: usize = 16;

/// A socket that is bound, for [`Controllers::add_listener`].
pub struct Bound(Listener);

/// Listens for controllers. `tls` is for an endpoint with TLS.
///
/// # Errors
/// The address cannot be bound, or there is nothing for TLS.
pub async fn bind(endpoint: &Endpoint, tls: Option<Tls>) -> io::Result<Bound> {
    Listener::bind(endpoint, tls).await.map(Bound)
}

/// A switch with its connections.
pub struct Controllers<D: Datapath> {
    switch: OpenFlowSwitch<D>,
    listeners: Vec<Listener>,
    outgoing: Vec<Outgoing>,
    connections: Vec<Connection>,
    timer: Option<Pin<Box<Sleep>>>,
    refused: u64,
    /// Connections that were closed because of what came instead of TLS.
    broke_tls: u64,
    tls: Option<Tls>,
    news: Vec<News>,
}

impl<D: Datapath> Controllers<D> {
    /// Without connections. `tls` is for those that are with TLS.
    #[must_use]
    pub const fn new(switch: OpenFlowSwitch<D>, tls: Option<Tls>) -> Self {
        Self {
            switch,
            listeners: Vec::new(),
            outgoing: Vec::new(),
            connections: Vec::new(),
            timer: None,
            refused: 0,
            broke_tls: 0,
            tls,
            news: Vec::new(),
        }
    }

    /// The switch.
    pub const fn switch(&mut self) -> &mut OpenFlowSwitch<D> {
        &mut self.switch
    }

    /// The switch, to look at.
    pub const fn switch_ref(&self) -> &OpenFlowSwitch<D> {
        &self.switch
    }

    /// Connections that were closed because there were too many: on arrival, or before they had greeted.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Connections that were closed because the other end did not speak TLS, or its certificate was not trusted.
    #[must_use]
    pub const fn broke_tls(&self) -> u64 {
        self.broke_tls
    }

    /// What connections with TLS use.
    #[must_use]
    pub const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Listens for controllers. Returns the address, if it is one of TCP: port 0 is replaced by the one that was taken.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(&mut self, endpoint: &Endpoint) -> io::Result<Option<SocketAddr>> {
        let bound = bind(endpoint, self.tls.clone()).await?;
        let address = bound.0.address();
        self.add_listener(bound);
        Ok(address)
    }

    /// Takes connections from a socket that is bound.
    pub fn add_listener(&mut self, Bound(listener): Bound) {
        self.listeners.push(listener);
    }

    /// Stops listening there, and closes the connections that came that way.
    pub fn stop_listening(&mut self, endpoint: &Endpoint) {
        self.listeners.retain(|listener| listener.endpoint() != endpoint);
        self.close(endpoint, false);
    }

    /// Connections that there are, their controllers' hello sent or not.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Connects to a controller, now and whenever the connection is lost.
    pub fn connect(&mut self, endpoint: Endpoint) {
        self.outgoing.push(Outgoing::new(endpoint, self.tls.clone()));
    }

    /// Closes the connection to a controller, which is not made again.
    pub fn forget(&mut self, endpoint: &Endpoint) {
        self.outgoing.retain(|outgoing| outgoing.endpoint() != endpoint);
        self.close(endpoint, true);
    }

    fn close(&mut self, endpoint: &Endpoint, is_outgoing: bool) {
        let of = |connection: &mut Connection| {
            connection.endpoint == *endpoint && connection.is_outgoing == is_outgoing
        };
        for connection in self.connections.extract_if(.., of) {
            self.switch.disconnect(connection.id);
        }
    }

    /// Whether a controller that is connected to has greeted; without any, whether one has that came by itself. Tools
    /// connect as controllers do, so they count only where nothing else can.
    #[must_use]
    pub fn has_controller(&self) -> bool {
        let any = !self.outgoing.is_empty();
        let counts = |connection: &&Connection| connection.is_outgoing || !any;
        self.connections.iter().filter(counts).any(|connection| self.switch.is_open(connection.id))
    }

    /// What became of connections since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Listeners, controllers that are to be connected, and connections that came.
    #[must_use]
    pub fn states(&self, now: Instant) -> Vec<ControllerState> {
        let listeners = self.listeners.iter().map(|listener| ControllerState::of(listener.endpoint()));
        let outgoing = self.outgoing.iter().map(|outgoing| {
            let own = |connection: &&Connection| {
                connection.is_outgoing && connection.endpoint == *outgoing.endpoint()
            };
            match self.connections.iter().find(own) {
                Some(connection) => connection.state(now, &self.switch),
                None => outgoing.state(now),
            }
        });
        let came = self.connections.iter().filter(|connection| !connection.is_outgoing);
        let came = came.map(|connection| connection.state(now, &self.switch));
        listeners.chain(outgoing).chain(came).collect()
    }

    /// Whether the next turn probably brings more from a controller, and no controller waits for what it has sent before.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.switch.is_waited_for() && self.connections.iter().any(Connection::is_busy)
    }

    /// Waits until [`Self::turn`] has something to do. Cancelling it loses nothing.
    pub async fn wait(&mut self, now: Instant) {
        // A controller that waited, or for whose requests there was no room, goes on without any event from outside.
        if self.is_busy() || self.connections.iter().any(|connection| connection.goes_on(&self.switch)) {
            return;
        }
        let reconnects = self.outgoing.iter().map(Outgoing::deadline);
        let deadline = reconnects.fold(self.switch.deadline(), Instant::min);
        if deadline <= now {
            return;
        }
        self.timer = (deadline != Instant::NEVER).then(|| {
            let left = deadline.since(now).min(Duration::from_secs(3600));
            Box::pin(sleep_until(tokio::time::Instant::now() + left))
        });
        poll_fn(|context| {
            let mut is_ready =
                self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
            for listener in &mut self.listeners {
                is_ready |= listener.poll(context);
            }
            for outgoing in &mut self.outgoing {
                is_ready |= outgoing.poll(context);
            }
            for connection in &mut self.connections {
                is_ready |= connection.poll(context, &self.switch);
            }
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes what has arrived, processes it, and sends the answers. Work for others is in
    /// [`OpenFlowSwitch::take_requests`].
    pub fn turn(&mut self, now: Instant) {
        self.add_connections(now);
        self.switch.advance(now);
        let mut kept = Vec::with_capacity(self.connections.len());
        for mut connection in self.connections.drain(..) {
            let ended = connection.turn(now, &mut self.switch).err();
            self.news.extend(connection.greeted(now, &self.switch));
            let Some(why) = ended else {
                kept.push(connection);
                continue;
            };
            let was_open = self.switch.is_open(connection.id) || connection.has_greeted();
            self.switch.disconnect(connection.id);
            self.broke_tls += u64::from(connection.broke_tls);
            self.news.push(connection.lost(why.clone()));
            let mut own = self.outgoing.iter_mut();
            let own =
                own.find(|outgoing| connection.is_outgoing && *outgoing.endpoint() == connection.endpoint);
            if let Some(outgoing) = own {
                outgoing.has_ended(now, was_open, why);
            }
        }
        self.connections = kept;
    }

    fn add_connections(&mut self, now: Instant) {
        let mut new = Vec::new();
        for listener in &mut self.listeners {
            let accepted: Vec<_> = std::iter::from_fn(|| listener.take()).take(ACCEPTS_EACH).collect();
            new.extend(accepted.into_iter().map(|stream| (stream, listener.endpoint().clone(), false)));
        }
        for outgoing in &mut self.outgoing {
            match outgoing.take(now) {
                Ok(Some(stream)) => new.push((stream, outgoing.endpoint().clone(), true)),
                Ok(None) => {}
                Err(why) => self.news.push(News::Unreachable { endpoint: outgoing.endpoint().clone(), why }),
            }
        }
        // Connections of others at the listeners leave room for the controllers that are configured.
        let reserved = self.outgoing.len();
        for (stream, endpoint, is_outgoing) in new {
            let own = self.connections.iter().filter(|connection| connection.is_outgoing).count();
            let others = self.connections.len() - own;
            if !is_outgoing && others + reserved >= CONTROLLERS_MAX && !self.give_way() {
                self.refused += 1;
                continue;
            }
            match self.switch.connect(now) {
                Some(id) => self.connections.push(Connection::new(id, stream, endpoint, is_outgoing)),
                None => self.refused += 1,
            }
        }
    }

    /// Closes an incoming connection that has not greeted, which controllers do immediately. It takes the oldest one of
    /// the source that has most of them. Returns whether there was any.
    fn give_way(&mut self) -> bool {
        let connections = self.connections.iter().enumerate();
        let silent = connections.filter(|(_, it)| !it.is_outgoing && !self.switch.is_open(it.id));
        let silent: Vec<_> = silent.map(|(at, connection)| (at, connection.source())).collect();
        let of_source = |source| silent.iter().filter(|(_, other)| *other == source).count();
        // Of equal ones the last is found, so that is to be the oldest.
        let found = silent.iter().rev().max_by_key(|(_, source)| of_source(*source));
        let Some(at) = found.map(|(at, _)| *at) else { return false };
        let connection = self.connections.remove(at);
        self.switch.disconnect(connection.id);
        self.refused += 1;
        self.news.push(connection.lost(DISPLACED.to_owned()));
        true
    }
}
