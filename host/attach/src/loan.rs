//! Leases for sockets of other processes. Each such process maps the memory of its rings and needs no
//! privileges; the program that fills the rings belongs to this process.
//!
//! The rings of each process are in two maps that no other process shares. Whatever it writes there affects
//! only its own datagrams. Which lease belongs to which socket is stored in maps that no other process has.
//! The program checks each number that it reads (`stack/bpf/bpf/lease.c`), and puts only frames there that
//! the kernel would give to a socket with a lease. This process reads nothing from the rings.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_bpf::{LEASE_SLOTS, LEASES_MAX};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_rings::lease::Lease;

use crate::leased::{LeaseError, LeasedInterface, LeasedOn};

/// A lease for a socket of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Its number: the position of its ring in the memory.
    pub number: u32,
    /// Number of rings in the memory.
    pub capacity: u32,
    /// The interface.
    pub on: LeasedOn,
}

impl LeasedInterface {
    /// Adds a process with rings. Returns its number, which is valid until [`Self::release`].
    ///
    /// # Errors
    /// [`LeaseError`]: no memory, or the maximum is reached.
    pub fn admit(&mut self) -> Result<u32, LeaseError> {
        self.leases.admit()?.ok_or_else(|| self.full())
    }

    /// The process has gone, or is no longer served: nothing more is put into its rings.
    pub fn release(&mut self, process: u32) {
        self.forget_claims(process);
        // There is none if the interface has more addresses than a table can hold: then the former table
        // stays.
        let table = self.table().ok();
        self.leases.release(process, table.as_ref());
    }

    /// The first half of giving a lease to a socket of another process, which is bound to `local`. It does not wait, and is all
    /// that the descriptor is needed for: a socket is closed with its last descriptor, so this process closes its own now. Returns the
    /// number of the lease; [`Self::settle_for_other`] must follow.
    ///
    /// # Errors
    /// [`LeaseError`]; the socket then has none.
    pub fn assign_to_other(
        &mut self,
        process: u32,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<u32, LeaseError> {
        let number = self.place_for(process, socket)?;
        self.assign(process, number, socket, local).inspect_err(|_| self.vacate(process, number))?;
        Ok(number)
    }

    /// The second half. Waits like [`LeasedInterface::lend`].
    ///
    /// # Errors
    /// [`LeaseError`]; the socket then has no lease.
    pub fn settle_for_other(
        &mut self,
        process: u32,
        number: u32,
        local: SocketAddr,
    ) -> Result<Loan, LeaseError> {
        let settled = self.look_for_bypassed(local).and_then(|()| self.settle(process, number));
        settled.inspect_err(|_| self.vacate(process, number))?;
        Ok(Loan { number, capacity: self.leases.capacity(), on: self.on() })
    }

    /// The socket has no lease any more. The other process has closed the ring.
    pub fn take_from_other(&mut self, process: u32, number: u32) {
        self.vacate(process, number);
    }

    /// Number of frames put into rings with this process number, including those of earlier processes with
    /// the same number.
    #[must_use]
    pub fn put_for(&self, process: u32) -> u64 {
        self.leases.put_for(process)
    }

    /// Keeps the program attached, for another process that serves the same sockets from then on; `None` if
    /// the kernel has no BPF links for it.
    #[must_use]
    pub fn links(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.leases.links()
    }

    /// The memory of the rings of a process: their states, and their slots.
    #[must_use]
    pub fn memory(&self, process: u32) -> Option<[BorrowedFd<'_>; 2]> {
        self.leases.rings(process)
    }
}

/// The holder's end of a loan, in the process that has got its memory ([`LeasedInterface::memory`]).
///
/// # Errors
/// What mmap(2) returns; EINVAL if the numbers are not possible.
pub fn ring_of(loan: &Loan, states: impl AsFd, slots: impl AsFd) -> Result<Lease, Errno> {
    if loan.capacity > LEASES_MAX || loan.number >= loan.capacity {
        return Err(Errno::INVAL);
    }
    let states = Mapping::of_fd(states, loan.capacity as usize * STATE_LEN, 0)?;
    let bytes = LEASE_SLOTS as usize * SLOT_LEN;
    let slots = Mapping::of_fd(slots, bytes, u64::from(loan.number) * bytes as u64)?;
    let ring = DirectRing::new(Arc::new(states), loan.number, slots, LEASE_SLOTS as usize);
    ring.map(Lease::new).map_err(|_| Errno::INVAL)
}
