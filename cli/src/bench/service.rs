//! The service to measure, and its requests.

use std::fmt;

use twinpath_clients::Requests;
use twinpath_load::{Calls, Echo, Framing, NfsProcedure};
use twinpath_rpc::client::Auth;

/// A service and its requests.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// Every byte comes back.
    Echo {
        /// Bytes of a request.
        size: usize,
    },
    /// ONC RPC.
    Rpc(Rpc),
}

/// The calls of an RPC service.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) asked: NfsProcedure,
    pub(crate) auth: Auth,
    /// Its name: `none` or `sys`.
    pub(crate) auth_name: &'static str,
    pub(crate) framing: Framing,
}

impl Rpc {
    /// The procedure's name.
    pub(crate) fn procedure(&self) -> &'static str {
        match self.asked {
            NfsProcedure::Null => "null",
            NfsProcedure::GetAttr { .. } => "getattr",
        }
    }

    /// Fragments of each call; `None` for datagrams.
    pub(crate) fn fragments(&self) -> Option<usize> {
        match self.framing {
            Framing::Datagram => None,
            Framing::Record { fragments } => Some(fragments),
        }
    }
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
            Self::Rpc(_) => "rpc",
        }
    }

    /// The requests of the clients.
    pub(crate) fn requests(&self) -> Requests {
        match self {
            Self::Echo { size } => Requests::Echo { size: *size },
            Self::Rpc(Rpc { asked, auth, framing, .. }) => {
                Requests::Rpc { asked: asked.clone(), auth: auth.clone(), framing: *framing }
            }
        }
    }

    /// Bytes of a request, without the framing of a stream.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Echo { size } => *size,
            Self::Rpc(rpc) => Calls::new(&rpc.asked, rpc.auth.clone(), rpc.framing, 0).message_len(),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { .. } => f.write_str("echo"),
            Self::Rpc(rpc) => {
                write!(f, "rpc {}, auth {}", rpc.procedure(), rpc.auth_name)?;
                match rpc.fragments() {
                    None | Some(1) => Ok(()),
                    Some(fragments) => write!(f, ", {fragments} fragments"),
                }
            }
        }
    }
}
