//! The service to measure, and its requests.

use std::fmt;
use std::sync::Arc;

use twinpath_clients::Requests;
use twinpath_load::{Calls, Echo, Framing, NfsProcedure};
use twinpath_rpc::client::Auth;

use super::nfs::Walk;

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
    /// NFS.
    Nfs(Nfs),
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

/// The calls of an NFS server, with AUTH_SYS.
#[derive(Clone, Debug)]
pub(crate) struct Nfs {
    /// What is measured: `read`, `write`, `getattr`, `lookup` or `list`.
    pub(crate) work: &'static str,
    /// For the threads in turn.
    pub(crate) asked: Vec<NfsProcedure>,
    pub(crate) auth: Auth,
    pub(crate) framing: Framing,
    /// Listings in place of a load.
    pub(crate) walk: Option<Arc<Walk>>,
    /// Bytes of a file that a reply stands for, on average.
    pub(crate) bytes_per_reply: f64,
}

impl Rpc {
    /// The procedure's name.
    pub(crate) fn procedure(&self) -> &'static str {
        self.asked.name()
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
            Self::Nfs(_) => "nfs",
        }
    }

    /// The requests of the clients.
    pub(crate) fn requests(&self) -> Requests {
        match self {
            Self::Echo { size } => Requests::Echo { size: *size },
            Self::Rpc(Rpc { asked, auth, framing, .. }) => {
                Requests::Rpc { asked: vec![asked.clone()], auth: auth.clone(), framing: *framing }
            }
            Self::Nfs(Nfs { asked, auth, framing, .. }) => {
                Requests::Rpc { asked: asked.clone(), auth: auth.clone(), framing: *framing }
            }
        }
    }

    /// The listings that are made in place of a load.
    pub(crate) fn walk(&self) -> Option<&Walk> {
        match self {
            Self::Nfs(nfs) => nfs.walk.as_deref(),
            Self::Echo { .. } | Self::Rpc(_) => None,
        }
    }

    /// Bytes of a file that a reply stands for, if calls move data.
    pub(crate) fn bytes_per_reply(&self) -> Option<f64> {
        match self {
            Self::Nfs(nfs) => Some(nfs.bytes_per_reply).filter(|bytes| *bytes > 0.0),
            Self::Echo { .. } | Self::Rpc(_) => None,
        }
    }

    /// Bytes of a request, without the framing of a stream; of NFS, those that it moves, if it moves any.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Echo { size } => *size,
            Self::Rpc(rpc) => Calls::new(&rpc.asked, rpc.auth.clone(), rpc.framing, 0).message_len(),
            Self::Nfs(nfs) => match &nfs.asked[0] {
                NfsProcedure::Read { blocks, .. } | NfsProcedure::Write { blocks, .. } => blocks.len as usize,
                asked => Calls::new(asked, nfs.auth.clone(), nfs.framing, 0).message_len(),
            },
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
            Self::Nfs(nfs) => write!(f, "nfs {}", nfs.work),
        }
    }
}
