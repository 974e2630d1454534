//! The errors of holding ports and EtherTypes.

use std::io;
use std::path::PathBuf;

/// Why a port or EtherType of a service cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Another socket holds the port.
    #[error("cannot serve {port}: {holder}; stop it or choose another port")]
    PortHeld {
        /// `udp port 7`.
        port: String,
        /// The process that holds it.
        holder: String,
    },
    /// The port could not be bound.
    #[error("cannot bind {port}: {source}{advice}")]
    Bind {
        /// `udp port 7`.
        port: String,
        /// The error.
        source: io::Error,
        /// What to do about it, if that is known.
        advice: &'static str,
    },
    /// Another instance has claimed the EtherType.
    #[error(
        "frames of EtherType {ethertype:#06x} on {interface} are served by {holder}; stop it or choose another type"
    )]
    FramesHeld {
        /// The EtherType.
        ethertype: u16,
        /// The interface.
        interface: String,
        /// The process that has claimed it.
        holder: String,
    },
    /// The former instance does not pass on its sockets.
    #[error("cannot take over from {}: {why}; start without --take-over once it has stopped", from.display())]
    TakeOver {
        /// Its command socket.
        from: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is no instance to be a standby for, or there is none any longer.
    #[error("cannot stand by for {}: {why}", from.display())]
    StandBy {
        /// Its command socket.
        from: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is no descriptor left.
    #[error("cannot hold what is served: {0}")]
    Descriptor(io::Error),
    /// Several ports cannot be held.
    #[error("{}", several(.0))]
    Several(Vec<HoldError>),
}

fn several(errors: &[HoldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
