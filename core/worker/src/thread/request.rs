//! A CPU latency request of a worker: for all CPUs of the machine, or only for its own. The scope is decided at
//! start.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_sys::cpu_request::CpuRequestError;
use twinpath_sys::latency_request::LatencyRequestError;
use twinpath_sys::{CpuRequest, LatencyRequest};

/// For which CPUs requests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestScope {
    /// For the worker's CPU if that is possible, else for all.
    #[default]
    Auto,
    /// For the worker's CPU.
    Cpu,
    /// For all.
    Machine,
}

impl RequestScope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cpu, Self::Machine];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Machine => "machine",
        }
    }
}

impl fmt::Display for RequestScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RequestScope {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scope| scope.name() == name).ok_or_else(|| {
            format!("unknown scope of a latency request '{name}': choose auto, cpu or machine")
        })
    }
}

/// A request that can be held and released any number of times. Dropping it releases it.
#[derive(Debug)]
pub struct Request {
    by: By,
}

#[derive(Debug)]
enum By {
    Machine { max_exit_us: u32, held: Option<LatencyRequest> },
    Cpu { request: CpuRequest, held: bool },
}

/// Why a request could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// For all CPUs.
    #[error("{0}")]
    Machine(#[from] LatencyRequestError),
    /// For one.
    #[error("the latency request for the worker's CPU was refused: {0}")]
    Cpu(#[from] io::Error),
}

impl Request {
    /// For all CPUs: none may take longer than `max_exit_us` to leave idle. It ends with the process, whatever happens.
    #[must_use]
    pub const fn machine(max_exit_us: u32) -> Self {
        Self { by: By::Machine { max_exit_us, held: None } }
    }

    /// For one CPU; `directory` is where the former value is kept, for the next instance to restore after a crash.
    ///
    /// # Errors
    /// [`CpuRequestError`]: not writable, or somebody else's.
    pub fn cpu(cpu: usize, max_exit_us: u32, directory: &Path) -> Result<Self, CpuRequestError> {
        let request = CpuRequest::open(cpu, max_exit_us, directory)?;
        Ok(Self { by: By::Cpu { request, held: false } })
    }

    /// Whether it is held.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        match &self.by {
            By::Machine { held, .. } => held.is_some(),
            By::Cpu { held, .. } => *held,
        }
    }

    /// Holds it. Nothing happens if it is held already.
    ///
    /// # Errors
    /// [`HoldError`].
    pub fn hold(&mut self) -> Result<(), HoldError> {
        match &mut self.by {
            By::Machine { held: Some(_), .. } => {}
            By::Machine { max_exit_us, held } => {
                // The kernel's value is signed; two thousand seconds are no limit at all.
                let us = i32::try_from(*max_exit_us).unwrap_or(i32::MAX);
                *held = Some(LatencyRequest::open(us)?);
            }
            By::Cpu { request, held } => {
                request.hold()?;
                *held = true;
            }
        }
        Ok(())
    }

    /// Releases it.
    pub fn release(&mut self) {
        match &mut self.by {
            By::Machine { held, .. } => *held = None,
            By::Cpu { request, held } => {
                request.release();
                *held = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_and_released_again_and_again() {
        let mut request = Request::machine(0);
        assert!(!request.is_held());
        for _ in 0..2 {
            match request.hold() {
                Ok(()) => assert!(request.is_held()),
                Err(error) => return twinpath_test_rig::skip(error),
            }
            request.release();
            assert!(!request.is_held());
        }
    }
}
