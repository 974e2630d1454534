//! Connections between a switch and its OpenFlow controllers: TCP and UNIX, listened for or made, and made again with
//! back-off.
//!
//! Everything runs on the control thread: [`Controllers::wait`] waits, [`Controllers::turn`] does what there is to do and
//! never blocks. A controller that is not read keeps its bytes in its socket, so it costs no memory here.

mod connection;
mod endpoint;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use tokio::time::{Sleep, sleep_until};
use twinpath_openflow_switch::{Datapath, OpenFlowSwitch, Request};
use twinpath_time::{Duration, Instant};

use self::connection::{Connection, Listener, Outgoing};
pub use self::endpoint::{Endpoint, EndpointError};

/// Connections taken from a listener in one turn at most.
const ACCEPTS_EACH: usize = 16;

/// A switch with its connections.
pub struct Controllers<D: Datapath> {
    switch: OpenFlowSwitch<D>,
    listeners: Vec<Listener>,
    outgoing: Vec<Outgoing>,
    connections: Vec<Connection>,
    timer: Option<Pin<Box<Sleep>>>,
    refused: u64,
}

impl<D: Datapath> Controllers<D> {
    /// Without connections.
    #[must_use]
    pub const fn new(switch: OpenFlowSwitch<D>) -> Self {
        Self {
            switch,
            listeners: Vec::new(),
            outgoing: Vec::new(),
            connections: Vec::new(),
            timer: None,
            refused: 0,
        }
    }

    /// The switch.
    pub const fn switch(&mut self) -> &mut OpenFlowSwitch<D> {
        &mut self.switch
    }

    /// Connections that were closed at once, as there were too many.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Listens for controllers. Returns the address, if it is one of TCP: port 0 is replaced by the one that was taken.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(&mut self, endpoint: &Endpoint) -> io::Result<Option<SocketAddr>> {
        let listener = Listener::bind(endpoint).await?;
        let address = listener.address();
        self.listeners.push(listener);
        Ok(address)
    }

    /// Connections that there are, their controllers' hello sent or not.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Connects to a controller, now and whenever the connection is lost.
    pub fn connect(&mut self, endpoint: Endpoint) {
        self.outgoing.push(Outgoing::new(endpoint));
    }

    /// Waits until [`Self::turn`] has something to do. Cancelling it loses nothing.
    pub async fn wait(&mut self, now: Instant) {
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

    /// Takes what has come, does it, and sends what there is. Returns what others have to do.
    pub fn turn(&mut self, now: Instant) -> Vec<Request> {
        let mut new = Vec::new();
        for listener in &mut self.listeners {
            new.extend(
                std::iter::from_fn(|| listener.take()).take(ACCEPTS_EACH).map(|stream| (stream, None)),
            );
        }
        for (number, outgoing) in self.outgoing.iter_mut().enumerate() {
            new.extend(outgoing.take(now).map(|stream| (stream, Some(number))));
        }
        for (stream, outgoing) in new {
            match self.switch.connect(now) {
                Some(id) => self.connections.push(Connection::new(id, stream, outgoing)),
                None => self.refused += 1,
            }
        }
        self.switch.advance(now);
        let mut kept = Vec::with_capacity(self.connections.len());
        for mut connection in self.connections.drain(..) {
            if connection.turn(now, &mut self.switch) {
                kept.push(connection);
                continue;
            }
            let was_open = self.switch.is_open(connection.id);
            self.switch.disconnect(connection.id);
            if let Some(outgoing) = connection.outgoing.and_then(|number| self.outgoing.get_mut(number)) {
                outgoing.has_ended(now, was_open);
            }
        }
        self.connections = kept;
        self.switch.take_requests()
    }
}
