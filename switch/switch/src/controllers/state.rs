//! How connections with controllers are, for those who show and log it.

use twinpath_config::values::Endpoint;
use twinpath_openflow_wire::Role;
use twinpath_time::Duration;

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A controller has greeted.
    Connected {
        /// Its address, or where it came by.
        endpoint: Endpoint,
        /// Whether it was connected to.
        is_outgoing: bool,
        /// The other end.
        peer: String,
    },
    /// A connection has ended.
    Lost {
        /// As above.
        endpoint: Endpoint,
        /// As above.
        is_outgoing: bool,
        /// As above.
        peer: String,
        /// Whether it had greeted.
        had_greeted: bool,
        /// Why.
        why: String,
    },
    /// A controller cannot be connected to for another reason than before.
    Unreachable {
        /// Its address.
        endpoint: Endpoint,
        /// Why.
        why: String,
    },
}

/// How far a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Controllers may come there.
    Listening,
    /// It is tried again after this time.
    Waiting(Duration),
    /// It is being connected to, or has not greeted yet.
    Connecting,
    /// It is connected.
    Connected {
        /// What it may do.
        role: Role,
        /// For how long.
        since: Duration,
    },
}

/// A controller, or a place where they may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerState {
    /// Its address, or where it came by.
    pub endpoint: Endpoint,
    /// The other end of the connection; empty without one.
    pub peer: String,
    /// Whether it came by itself.
    pub came: bool,
    /// How far it is.
    pub stage: Stage,
    /// Why it was lost, or not reached, the last time.
    pub last_error: Option<String>,
}

impl ControllerState {
    /// A listener.
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let endpoint = endpoint.clone();
        Self { endpoint, peer: String::new(), came: false, stage: Stage::Listening, last_error: None }
    }
}
