//! A lease that a socket of this process has been given, by whichever rights.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinpath_attach::LeasedOn;
use twinpath_rings::lease::Lease;

use crate::lending::connection::Connection;

/// Takes a lease from its socket.
#[derive(Clone, Debug)]
pub enum Withdrawal {
    /// One of this process's own.
    Own(twinpath_attach::Withdrawal),
    /// One that an owner has given.
    Owner {
        /// The connection to it.
        connection: Arc<Connection>,
        /// The ring.
        ring: u32,
    },
}

impl Withdrawal {
    /// No further frames of this socket are put into the ring after this takes effect: when the runs of the kernel's
    /// program that have begun have ended and, for an owner's lease, the owner has read the message. The ring has to be
    /// closed. It neither allocates nor waits. Returns whether the ring may be given to another socket then: not if the
    /// owner was not told.
    #[must_use]
    pub fn withdraw(&self, socket: BorrowedFd<'_>) -> bool {
        match self {
            Self::Own(own) => {
                // It only fails for something that is not a socket any more. The socket's entry is forgotten with it,
                // or when the ring gets another number.
                let _ = own.withdraw(socket);
                true
            }
            Self::Owner { connection, ring } => connection.end(*ring, false).is_ok(),
        }
    }

    /// As [`Self::withdraw`] of a lease that an owner has given: others may have the socket, who get what is in the ring from the kernel,
    /// also what comes until the owner closes it. `None`: it is one of this process's own.
    #[must_use]
    pub fn leave(&self) -> Option<bool> {
        match self {
            Self::Own(_) => None,
            Self::Owner { connection, ring } => Some(connection.end(*ring, true).is_ok()),
        }
    }

    /// Asks the owner to hand over what is in the ring, which it closes then. It neither allocates nor waits. Returns whether an owner was
    /// told; `None`: it is this process that has to do it ([`Lender::hand_over`](crate::lending::Lender::hand_over)).
    #[must_use]
    pub fn hand_over(&self) -> Option<bool> {
        match self {
            Self::Own(_) => None,
            Self::Owner { connection, ring } => Some(connection.hand_over(*ring)),
        }
    }
}

/// A lease that a socket has been given.
#[derive(Debug)]
pub struct Lent {
    /// Its number, to give it back by.
    pub number: u32,
    /// The holder's end.
    pub lease: Lease,
    /// Takes it from the socket when that is closed while others have the lender: then [`Lender::set_free`](crate::lending::Lender::set_free).
    pub withdrawal: Withdrawal,
    /// The interface.
    pub on: LeasedOn,
    /// The owner that has given it; with that it ends.
    pub owner: Option<Arc<Connection>>,
}
