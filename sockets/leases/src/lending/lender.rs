//! This process's own rights to an interface, or the owner of it.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use twinpath_attach::path::privileges::Capabilities;
use twinpath_attach::{LeaseError, LeasedInterface, OwnLease, SOCKETS_MAX, Sending};
use twinpath_rings::lease::Lease;

use crate::lending::borrower::{AskedFor, Borrower};
use crate::lending::connection::{Connection, OwnerError};
use crate::lending::lent::{Lent, Withdrawal};
use crate::lending::place::{Place, Started};

/// Where owners listen by default.
const SYSTEM_DIRECTORY: &str = "/run/twinpath";

/// The usual socket of the owner of an interface.
#[must_use]
pub fn owner_socket(interface: &str) -> PathBuf {
    [SYSTEM_DIRECTORY, interface, "sockets"].iter().collect()
}

/// By whose rights sockets get rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// This process's own, if it has them; else those of the owner at the usual socket.
    #[default]
    Auto,
    /// This process's own.
    Own,
    /// Those of the owner that listens there.
    Owner(PathBuf),
    /// Those of the owner at the usual socket, where there is one.
    Usual,
    /// Those of an owner that is started for this program.
    Started(Started),
}

impl FromStr for Access {
    type Err = Infallible;

    /// `auto`, `none` (no owner), `usual`, an owner that is started ([`Started`]), or the path of an owner's socket.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::Own,
            "usual" => Self::Usual,
            other => match other.parse() {
                Ok(started) => Self::Started(started),
                Err(()) => Self::Owner(PathBuf::from(other)),
            },
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Own => f.write_str("none"),
            Self::Owner(path) => write!(f, "{}", path.display()),
            Self::Usual => f.write_str("usual"),
            Self::Started(started) => started.fmt(f),
        }
    }
}

/// Why a socket has no lease.
#[derive(Debug, thiserror::Error)]
pub enum LendError {
    /// By this process's own rights.
    #[error("{0}")]
    Lease(#[from] Box<dyn Error + Send + Sync>),
    /// By the owner's.
    #[error("{0}")]
    Owner(#[from] OwnerError),
    /// By neither.
    #[error("{own}; {owner}")]
    Neither {
        /// What this process's own rights are not enough for.
        own: Box<dyn Error + Send + Sync>,
        /// There is no owner.
        owner: Box<OwnerError>,
    },
    /// A descriptor or the network namespace.
    #[error("cannot look at the interface: {0}")]
    Io(#[from] io::Error),
}

/// [`Lender::open`] or [`Lender::connect`].
pub type Open = fn(&str, &Access) -> Result<Lender, LendError>;

/// What this process can do by its own rights on an interface. [`Lender::open`] alone names who does it, so that programs without these
/// rights, which only [connect](Lender::connect), have nothing of it in their memory.
pub trait OwnInterface: fmt::Debug + Send {
    /// As [`Lender::lend`].
    ///
    /// # Errors
    /// [`LendError::Lease`]
    fn lend(&mut self, socket: BorrowedFd<'_>, local: SocketAddr) -> Result<(OwnLease, Sending), LendError>;
    /// As [`Lender::take_back`].
    fn take_back(&mut self, socket: BorrowedFd<'_>, number: u32, lease: Lease, sending: Sending);
    /// As [`Lender::set_free`].
    fn set_free(&mut self, number: u32, lease: Lease, sending: Sending);
    /// As [`Lender::hand_over`].
    fn hand_over(&mut self, number: u32) -> bool;
}

impl OwnInterface for LeasedInterface {
    fn lend(&mut self, socket: BorrowedFd<'_>, local: SocketAddr) -> Result<(OwnLease, Sending), LendError> {
        Self::lend(self, socket, local).map_err(by_own_rights)
    }

    fn take_back(&mut self, socket: BorrowedFd<'_>, number: u32, lease: Lease, sending: Sending) {
        Self::take_back(self, socket, number, lease, sending);
    }

    fn set_free(&mut self, number: u32, lease: Lease, sending: Sending) {
        Self::set_free(self, number, lease, sending);
    }

    fn hand_over(&mut self, number: u32) -> bool {
        self.hand_over_own(number).is_ok()
    }
}

fn by_own_rights(error: LeaseError) -> LendError {
    LendError::Lease(Box::new(error))
}

/// Gives the sockets of this process leases on one interface.
#[derive(Debug)]
pub enum Lender {
    /// By its own rights.
    Own(Box<dyn OwnInterface>),
    /// By an owner's.
    Owner(Borrower),
}

impl Lender {
    /// Opens the interface of the calling thread's network namespace, or connects to its owner. Waits some tens of milliseconds.
    ///
    /// # Errors
    /// [`LendError`]
    pub fn open(interface: &str, access: &Access) -> Result<Self, LendError> {
        match access {
            Access::Own => Self::own(interface),
            Access::Auto => {
                let held = Capabilities::held();
                if held.bpf && held.net_admin && held.net_raw {
                    return Self::own(interface);
                }
                match Self::connect(interface, &Access::Usual) {
                    Err(LendError::Owner(owner @ OwnerError::Connect { .. })) => {
                        // The reason why it cannot be done without an owner is said as well.
                        Self::own(interface).map_err(|error| match error {
                            LendError::Lease(own) => LendError::Neither { own, owner: Box::new(owner) },
                            error => error,
                        })
                    }
                    opened => opened,
                }
            }
            owner => Self::connect(interface, owner),
        }
    }

    /// Connects to the owner of the interface, and waits for nothing. What loads programs into the kernel is not linked into a program
    /// that opens interfaces by this alone.
    ///
    /// # Errors
    /// [`LendError::Owner`]
    pub fn connect(interface: &str, access: &Access) -> Result<Self, LendError> {
        let place = match access {
            Access::Owner(path) => Place::Path(path.clone()),
            Access::Started(started) => Place::Started(started.clone()),
            Access::Auto | Access::Own | Access::Usual => Place::Path(owner_socket(interface)),
        };
        Ok(Self::Owner(Borrower::open(&place, interface)?))
    }

    fn own(interface: &str) -> Result<Self, LendError> {
        let opened = LeasedInterface::open(interface, SOCKETS_MAX).map_err(by_own_rights)?;
        Ok(Self::Own(Box::new(opened)))
    }

    /// Gives a UDP socket that is bound to `local` a lease, and what it can send by: without it, it sends by the kernel. Waits some tens
    /// of milliseconds.
    ///
    /// # Errors
    /// [`LendError`]; the socket then has none.
    pub fn lend(
        &mut self,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<(Lent, Option<Sending>), LendError> {
        match self {
            Self::Own(interface) => {
                let (lent, sending) = interface.lend(socket, local)?;
                let OwnLease { number, lease, withdrawal, on } = lent;
                let withdrawal = Withdrawal::Own(withdrawal);
                Ok((Lent { number, lease, withdrawal, on, owner: None }, Some(sending)))
            }
            Self::Owner(borrower) => Ok((borrower.lend(socket)?, None)),
        }
    }

    /// Asks for a lease, or continues to do so, without waiting: [`Borrower::ask`]. By this process's own rights it is
    /// given immediately, in some tens of milliseconds.
    ///
    /// # Errors
    /// [`LendError`]; the socket then has none.
    pub fn ask(
        &mut self,
        asked: &mut AskedFor,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<Option<Lent>, LendError> {
        match self {
            Self::Own(_) => Ok(Some(self.lend(socket, local)?.0)),
            Self::Owner(borrower) => Ok(borrower.ask(asked, socket)?),
        }
    }

    /// Whether an owner may hold the socket of a request, beside this process.
    pub fn may_hold(&mut self, asked: AskedFor) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Owner(borrower) => borrower.may_hold(asked),
        }
    }

    /// The socket of a request is closed, or stays with the kernel.
    pub fn abandon(&mut self, asked: AskedFor) {
        if let Self::Owner(borrower) = self {
            borrower.abandon(asked);
        }
    }

    /// Takes the lease back, before its socket is closed: what is in the ring is discarded.
    pub fn take_back(
        &mut self,
        socket: BorrowedFd<'_>,
        number: u32,
        mut lease: Lease,
        sending: Option<Sending>,
    ) {
        match self {
            Self::Own(interface) => {
                if let Some(sending) = sending {
                    interface.take_back(socket, number, lease, sending);
                }
            }
            Self::Owner(borrower) => {
                lease.close();
                // If the owner does not read, it keeps the ring for this process.
                if borrower.connection().end(number, false).is_ok() {
                    borrower.set_free(number, lease);
                }
            }
        }
    }

    /// The second half of [`Self::take_back`], after [`Lent::withdrawal`]: another socket may have the lease, which is closed.
    pub fn set_free(&mut self, number: u32, lease: Lease, sending: Option<Sending>) {
        match self {
            Self::Own(interface) => {
                if let Some(sending) = sending {
                    interface.set_free(number, lease, sending);
                }
            }
            Self::Owner(borrower) => borrower.set_free(number, lease),
        }
    }

    /// Hands over what is in the ring of a lease that this process has given, after [`Withdrawal::hand_over`]. Returns whether it could be
    /// done.
    pub fn hand_over(&mut self, number: u32) -> bool {
        match self {
            Self::Own(interface) => interface.hand_over(number),
            Self::Owner(_) => false,
        }
    }

    /// The owner that gives the leases; `None`: this process.
    #[must_use]
    pub const fn owner(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Own(_) => None,
            Self::Owner(borrower) => Some(borrower.connection()),
        }
    }
}
