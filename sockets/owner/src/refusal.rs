//! Why a program gets no lease, or no rings. The program is told the sentence.

use std::io;
use std::net::SocketAddr;

use twinpath_attach::LeaseError;

use crate::{LENT_EVERY, OPENED_EVERY};

/// Why the owner gives a program nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it has {own}, not {asked}")]
    OtherInterface { own: String, asked: String },
    #[error("a request comes with the descriptor of one socket")]
    NotOneSocket,
    #[error("what came is no UDP socket")]
    NotUdp,
    #[error("cannot ask for its namespace: {0}")]
    NamespaceUnknown(io::Error),
    #[error("the socket is of another network namespace than the owner")]
    OtherNamespace,
    #[error("the socket is bound to no port yet")]
    Unbound,
    #[error("a rule of the owner keeps {0} with the kernel")]
    Rule(SocketAddr),
    #[error("no rule of the owner is for {0}")]
    NoRule(SocketAddr),
    #[error("{0} sockets of this program have a lease, and that is all (--sockets-per-program)")]
    SocketsOfProgram(u32),
    #[error("user {user} has {most} sockets with a lease, and that is all (--sockets-per-user)")]
    SocketsOfUser { user: u32, most: u32 },
    #[error(
        "sockets of user {user} got so many leases lately that one in {} ms gets one",
        LENT_EVERY.as_millis()
    )]
    LeasesTooFast { user: u32 },
    #[error("so many programs of user {user} came and went lately that one in {} s gets rings", OPENED_EVERY.as_secs())]
    ProgramsTooFast { user: u32 },
    #[error("it has no rings")]
    NoRings,
    #[error("{0}")]
    Lease(#[from] LeaseError),
}
