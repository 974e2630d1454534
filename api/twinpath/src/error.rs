//! The errors of the library.

use std::{fmt, io};

use twinpath_config::ConfigError;
use twinpath_host::Ended;
use twinpath_instance::InstanceError;

/// Why a service could not run.
///
/// Its `Debug` is its `Display`: most programs return it from `main`, and Rust prints such an error by `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings of the builder or the file are invalid: one line for each.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// The configuration file could not be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The instance could not start.
    #[error("{0}")]
    Instance(InstanceError),
    /// The instance has ended, but some threads hang: one sentence for each, which names the service and
    /// the callback that has not returned. A thread ends once its callback returns; until then it may keep
    /// sockets of the instance open.
    #[error("{}", .0.join("\n"))]
    LeftBehind(Vec<String>),
    /// No thread could be started for it.
    #[error("cannot start a thread for the instance: {0}")]
    Thread(io::Error),
    /// The instance has ended and cannot answer.
    #[error("{0}")]
    Ended(#[from] Ended),
    /// The configuration was not reloaded, and nothing was changed. One line for each reason.
    #[error("{0}")]
    NotReloaded(String),
}

impl From<InstanceError> for Error {
    fn from(error: InstanceError) -> Self {
        match error {
            InstanceError::LeftBehind(who) => Self::LeftBehind(who),
            error => Self::Instance(error),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
