//! Why a request has no answer.

use std::io;

use rustix::io::Errno;
use twinpath_time::Duration;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NetlinkError(#[source] Box<Failure>);

/// The same as a value. `asked` says what the kernel was to do, as a verb: "list the links".
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no socket.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] io::Error),
    /// The kernel refuses.
    #[error("the kernel did not {asked}: {error}{}", because(.text.as_deref()))]
    Refused {
        /// The request.
        asked: String,
        /// The kernel's error number.
        error: io::Error,
        /// The kernel's reason in words (extended acknowledgement), if it gives one.
        text: Option<String>,
    },
    /// The kernel answered, but the socket's buffer was full.
    #[error("the kernel's answer was lost when it was to {asked}, as the socket was full: try again")]
    Overrun {
        /// The request.
        asked: String,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not answer within {} s when it was to {asked}", .patience.as_secs_f64())]
    Silent {
        /// The request.
        asked: String,
        /// How long the caller waited.
        patience: Duration,
    },
    /// The answer is longer than any that makes sense.
    #[error("the kernel's answer has more than {max_bytes} bytes when it was to {asked}")]
    TooLong {
        /// The request.
        asked: String,
        /// The bound, bytes.
        max_bytes: usize,
    },
    /// The answer does not contain what was asked for.
    #[error("the kernel's answer is of no use when it was to {asked}")]
    Unexpected {
        /// The request.
        asked: String,
    },
    /// The socket failed.
    #[error("cannot ask the kernel to {asked}: {error}")]
    Socket {
        /// The request.
        asked: String,
        /// What the call returned.
        error: io::Error,
    },
}

fn because(text: Option<&str>) -> String {
    text.map(|text| format!(": {text}")).unwrap_or_default()
}

impl From<Failure> for NetlinkError {
    fn from(failure: Failure) -> Self {
        Self(Box::new(failure))
    }
}

impl NetlinkError {
    pub(crate) fn open(error: impl Into<io::Error>) -> Self {
        Failure::Open(error.into()).into()
    }

    /// A refusal by the kernel without a reason in words.
    #[must_use]
    pub fn refused(asked: String, errno: Errno) -> Self {
        Failure::Refused { asked, error: errno.into(), text: None }.into()
    }

    /// The reason.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    /// The error number of the kernel, or of a call to the socket, if there is one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match &*self.0 {
            Failure::Open(error) | Failure::Refused { error, .. } | Failure::Socket { error, .. } => {
                Errno::from_io_error(error)
            }
            Failure::Overrun { .. } => Some(Errno::NOBUFS),
            Failure::Silent { .. } | Failure::TooLong { .. } | Failure::Unexpected { .. } => None,
        }
    }

    /// Whether it has this error number.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno)
    }
}

/// The same in words. Of the error number, only the kind is kept.
impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        let kind = error.errno().map_or(io::ErrorKind::Other, |errno| Self::from(errno).kind());
        Self::new(kind, error)
    }
}
