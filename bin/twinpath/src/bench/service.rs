//! What is measured: the service, and what its requests are.

use std::fmt;

use twinpath_load::Echo;

/// A service, and what it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// Every byte comes back.
    Echo {
        /// Bytes of a request.
        size: usize,
    },
}

impl Service {
    /// An echo of requests of `size` bytes.
    pub(crate) fn echo(size: usize) -> anyhow::Result<Self> {
        Echo::new(size, 0)?;
        Ok(Self::Echo { size })
    }

    /// Its name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Echo { .. } => "echo",
        }
    }

    /// Bytes of a request, the framing of a stream apart.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Echo { size } => *size,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { .. } => f.write_str("echo"),
        }
    }
}
