//! Refusals: why a server did not execute a procedure, as RFC 5531 defines it, for both sides.

use nfs3_types::rpc::{RPC_VERSION_2, accept_stat, auth_stat, msg_type, reject_stat, reply_stat};
use twinpath_inspect::Reason;

use crate::xdr::XdrError;

/// Length of the longest refusal, bytes: an accepted reply with two versions.
pub(crate) const REPLY_MAX: usize = 32;

/// Why a server did not run a procedure (RFC 5531, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// PROG_UNAVAIL.
    #[error("the server has no such program (PROG_UNAVAIL)")]
    ProgramUnavailable,
    /// PROG_MISMATCH.
    #[error("the server has the program in versions {low} to {high} (PROG_MISMATCH)")]
    ProgramMismatch {
        /// Its lowest version.
        low: u32,
        /// Its highest version.
        high: u32,
    },
    /// PROC_UNAVAIL.
    #[error("the program has no such procedure (PROC_UNAVAIL)")]
    ProcedureUnavailable,
    /// GARBAGE_ARGS.
    #[error("the server could not read the arguments (GARBAGE_ARGS)")]
    GarbageArguments,
    /// SYSTEM_ERR.
    #[error("the server failed (SYSTEM_ERR)")]
    SystemError,
    /// RPC_MISMATCH.
    #[error("the server speaks RPC versions {low} to {high} (RPC_MISMATCH)")]
    RpcMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// AUTH_ERROR.
    #[error("the server refused the credential ({0})")]
    Auth(auth_stat),
}

impl From<XdrError> for Refusal {
    /// Arguments that cannot be decoded are GARBAGE_ARGS.
    fn from(_: XdrError) -> Self {
        Self::GarbageArguments
    }
}

impl Refusal {
    /// The refusal of a call of another RPC version.
    pub(crate) const RPC_MISMATCH: Self = Self::RpcMismatch { low: RPC_VERSION_2, high: RPC_VERSION_2 };

    /// The reason under which it is counted.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::ProgramUnavailable => Reason::RpcProgram,
            Self::ProgramMismatch { .. } => Reason::RpcProgramVersion,
            Self::ProcedureUnavailable => Reason::RpcProcedure,
            Self::GarbageArguments => Reason::RpcArguments,
            Self::SystemError => Reason::RpcFailed,
            Self::RpcMismatch { .. } => Reason::RpcVersion,
            Self::Auth(_) => Reason::RpcAuth,
        }
    }

    /// Appends the reply with this refusal, without a record mark.
    pub(crate) fn write(self, xid: u32, out: &mut Vec<u8>) {
        let accepted = |status: accept_stat| (reply_stat::MSG_ACCEPTED, status as u32);
        let denied = |status: reject_stat| (reply_stat::MSG_DENIED, status as u32);
        let ((reply, status), details) = match self {
            Self::ProgramUnavailable => (accepted(accept_stat::PROG_UNAVAIL), [None; 2]),
            Self::ProgramMismatch { low, high } => {
                (accepted(accept_stat::PROG_MISMATCH), [Some(low), Some(high)])
            }
            Self::ProcedureUnavailable => (accepted(accept_stat::PROC_UNAVAIL), [None; 2]),
            Self::GarbageArguments => (accepted(accept_stat::GARBAGE_ARGS), [None; 2]),
            Self::SystemError => (accepted(accept_stat::SYSTEM_ERR), [None; 2]),
            Self::RpcMismatch { low, high } => (denied(reject_stat::RPC_MISMATCH), [Some(low), Some(high)]),
            Self::Auth(why) => (denied(reject_stat::AUTH_ERROR), [Some(why as u32), None]),
        };
        // Only an accepted reply has a verifier: AUTH_NONE, empty.
        let verifier: &[u32] = if reply == reply_stat::MSG_ACCEPTED { &[0, 0] } else { &[] };
        let words = [xid, msg_type::REPLY as u32, reply as u32];
        let words = words.iter().chain(verifier).chain([&status]).chain(details.iter().flatten());
        out.extend(words.flat_map(|word| word.to_be_bytes()));
    }
}
