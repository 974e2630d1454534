//! A controller that the switch connects to, again and again.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use twinpath_config::values::Endpoint;
use twinpath_time::{Duration, Instant};

use crate::controllers::state::{ControllerState, Stage};
use crate::controllers::stream::Stream;
use crate::controllers::tls::Tls;

/// The first pause before a controller is connected to again, and the longest; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Maximum time to connect. Then a controller that does not answer is tried again.
const CONNECT_MAX: Duration = Duration::from_secs(10);

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// A controller that is connected to.
pub(crate) struct Outgoing {
    endpoint: Endpoint,
    tls: Option<Tls>,
    state: State,
    pause: Duration,
    /// Why the last connection ended, or was not made.
    error: Option<String>,
}

enum State {
    /// It is not connected to before this time.
    Pause(Instant),
    Connecting(Connecting),
    Connected(io::Result<Stream>),
    /// The connection is one of the switch's.
    Open,
}

impl Outgoing {
    pub(crate) const fn new(endpoint: Endpoint, tls: Option<Tls>) -> Self {
        Self { endpoint, tls, state: State::Pause(Instant::ZERO), pause: PAUSE_MIN, error: None }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// How it is while there is no connection.
    pub(crate) fn state(&self, now: Instant) -> ControllerState {
        let stage = match self.state {
            State::Pause(until) => Stage::Waiting(until.since(now)),
            _ => Stage::Connecting,
        };
        let (endpoint, last_error) = (self.endpoint.clone(), self.error.clone());
        ControllerState { endpoint, peer: String::new(), came: false, stage, last_error }
    }

    /// When it has to be connected to.
    pub(crate) const fn deadline(&self) -> Instant {
        match self.state {
            State::Pause(until) => until,
            _ => Instant::NEVER,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let State::Connecting(connecting) = &mut self.state
            && let Poll::Ready(result) = connecting.as_mut().poll(context)
        {
            self.state = State::Connected(result);
        }
        matches!(self.state, State::Connected(_))
    }

    /// A new connection; begins to connect if it is time.
    ///
    /// # Errors
    /// It cannot be connected to, for another reason than the last time.
    pub(crate) fn take(&mut self, now: Instant) -> Result<Option<Stream>, String> {
        match std::mem::replace(&mut self.state, State::Open) {
            State::Pause(until) if until <= now => {
                let connecting = tokio::time::timeout(
                    CONNECT_MAX,
                    Stream::connect(self.endpoint.clone(), self.tls.clone()),
                );
                let connecting =
                    async { connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) };
                self.state = State::Connecting(Box::pin(connecting));
                Ok(None)
            }
            State::Connected(Ok(stream)) => Ok(Some(stream)),
            State::Connected(Err(error)) => {
                let why = error.to_string();
                let is_known = self.error.as_ref() == Some(&why);
                self.has_ended(now, false, why.clone());
                if is_known { Ok(None) } else { Err(why) }
            }
            other => {
                self.state = other;
                Ok(None)
            }
        }
    }

    /// A connection is lost, or there was none. `was_open`: the controller's hello had come.
    pub(crate) fn has_ended(&mut self, now: Instant, was_open: bool, why: String) {
        if was_open {
            self.pause = PAUSE_MIN;
        }
        self.error = Some(why);
        self.state = State::Pause(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
