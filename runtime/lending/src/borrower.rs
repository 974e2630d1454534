//! Rings that an owner gives this process.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use twinpath_attach::ring_of;
use twinpath_rings::lease::Lease;

use crate::connection::{Connection, OwnerError};
use crate::lent::{Lent, Withdrawal};
use crate::message::Answer;

/// The sockets of this process that an owner has given rings.
#[derive(Debug)]
pub struct Borrower {
    connection: Arc<Connection>,
    interface: String,
    requests: u32,
    /// Rings that were used before, which are not zeros any more.
    idle: Vec<(u32, Lease)>,
}

impl Borrower {
    pub(crate) fn open(path: &Path, interface: &str) -> Result<Self, OwnerError> {
        let connection = Arc::new(Connection::open(path)?);
        Ok(Self { connection, interface: interface.to_owned(), requests: 0, idle: Vec::new() })
    }

    pub(crate) fn lend(&mut self, socket: BorrowedFd<'_>) -> Result<Lent, OwnerError> {
        self.requests = self.requests.wrapping_add(1).max(1);
        let (answer, fds) = self.connection.ask(self.requests, &self.interface, socket)?;
        let (ring, loan) = match answer {
            Answer::Lent { ring, loan, .. } => (ring, loan),
            Answer::Refused { why, .. } => return Err(OwnerError::Refused(why)),
        };
        // Other rings are of a former owner, or of a number that this program had there before: it does not get them again.
        let first = ring.wrapping_sub(loan.number);
        self.idle.retain(|(of, _)| of.wrapping_sub(first) < loan.capacity);
        let lease = match self.idle.iter().position(|(of, _)| *of == ring) {
            Some(at) => {
                let (_, mut lease) = self.idle.swap_remove(at);
                lease.begin_anew();
                lease
            }
            None => match fds.as_slice() {
                [states, slots] => ring_of(&loan, states.as_fd(), slots.as_fd()).map_err(|error| {
                    // The owner keeps it for this process otherwise.
                    let _ = self.connection.end(ring, false);
                    OwnerError::Memory(error)
                })?,
                // `ask` has counted them.
                _ => return Err(OwnerError::Memory(rustix::io::Errno::INVAL)),
            },
        };
        let connection = Arc::clone(&self.connection);
        Ok(Lent {
            number: ring,
            lease,
            withdrawal: Withdrawal::Owner { connection: Arc::clone(&connection), ring },
            on: loan.on,
            owner: Some(connection),
        })
    }

    /// The owner was told that the socket with this ring has no lease any more.
    pub(crate) fn set_free(&mut self, ring: u32, lease: Lease) {
        self.idle.push((ring, lease));
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}
