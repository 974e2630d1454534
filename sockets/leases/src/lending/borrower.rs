//! Rings that an owner gives this process.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use twinpath_attach::ring_of;
use twinpath_rings::lease::Lease;
use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::lending::connection::{Connection, OwnerError, PATIENCE};
use crate::lending::lent::{Lent, Withdrawal};
use crate::lending::message::{Answer, REFUSED_PAUSE, Request};
use crate::lending::place::Place;

/// The sockets of this process that an owner has given rings.
#[derive(Debug)]
pub struct Borrower {
    connection: Arc<Connection>,
    interface: String,
    requests: u32,
    /// Whether the owner has made rings for this process, or was asked to.
    opening: Opening,
    /// Requests for leases that were sent, and their answers as they come.
    asked: Vec<(u32, Answered)>,
    /// The owner has refused something, and does not listen before.
    deaf_until: Instant,
    /// Rings that were used before, which are not zeros any more.
    idle: Vec<(u32, Lease)>,
    /// All that were made here, of the memory of now.
    made: Vec<u32>,
}

/// Whether the owner has made rings for this process.
#[derive(Debug, Clone)]
enum Opening {
    Not,
    /// It was asked by this request.
    Asked(u32),
    Done,
    Refused(String),
}

/// How far the owner has come with a request for a lease.
#[derive(Debug)]
enum Answered {
    /// It was shown the socket, and may hold it.
    Shown,
    /// It holds it no more.
    Seen,
    /// It is still busy with it, for a socket that needs no lease any more.
    Left,
    /// It had no rings for this process any more: it has by now, and is to be shown the socket again.
    Again,
    Done(Box<Result<Lent, String>>),
}

/// A request for a lease, which may be still to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedFor {
    /// `None` until the socket was shown to the owner.
    request: Option<u32>,
}

impl Borrower {
    pub(crate) fn open(place: &Place, interface: &str) -> Result<Self, OwnerError> {
        let connection = Arc::new(Connection::open(place, interface)?);
        Ok(Self {
            connection,
            interface: interface.to_owned(),
            requests: 0,
            opening: Opening::Not,
            asked: Vec::new(),
            deaf_until: Instant::ZERO,
            idle: Vec::new(),
            made: Vec::new(),
        })
    }

    fn next_request(&mut self) -> u32 {
        self.requests = self.requests.wrapping_add(1).max(1);
        self.requests
    }

    /// Goes on with asking for a lease: sends what is to be said next, and looks whether it was answered. It does not wait. `None`: not
    /// yet; it is to be called again.
    ///
    /// # Errors
    /// [`OwnerError`]; the socket has no lease then.
    pub fn ask(&mut self, asked: &mut AskedFor, socket: BorrowedFd<'_>) -> Result<Option<Lent>, OwnerError> {
        self.hear()?;
        match &self.opening {
            Opening::Not => {
                let request = self.next_request();
                self.connection.send(&Request::Open { request, interface: self.interface.clone() }, None)?;
                self.opening = Opening::Asked(request);
            }
            Opening::Asked(_) => {}
            Opening::Refused(why) => {
                let why = why.clone();
                self.opening = Opening::Not;
                return Err(OwnerError::Refused(why));
            }
            Opening::Done => {
                let Some(request) = asked.request else {
                    if !self.is_waiting() {
                        asked.request = Some(self.show(socket)?);
                    }
                    return Ok(None);
                };
                let Some(at) = self.asked.iter().position(|(of, _)| *of == request) else { return Ok(None) };
                match self.asked[at].1 {
                    Answered::Shown | Answered::Seen | Answered::Left => {}
                    Answered::Again => {
                        self.asked.swap_remove(at);
                        asked.request = None;
                    }
                    Answered::Done(_) => {
                        let (_, answer) = self.asked.swap_remove(at);
                        let Answered::Done(answer) = answer else { return Ok(None) };
                        return (*answer).map(Some).map_err(OwnerError::Refused);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Shows the socket to the owner. Returns the request.
    fn show(&mut self, socket: BorrowedFd<'_>) -> Result<u32, OwnerError> {
        let request = self.next_request();
        let message = Request::Lend { request, interface: self.interface.clone() };
        self.connection.send(&message, Some(socket))?;
        self.asked.push((request, Answered::Shown));
        Ok(request)
    }

    /// Whether no further socket is shown now: the owner is not listening, or busy with another one, and would hold the socket for as
    /// long.
    fn is_waiting(&self) -> bool {
        let is_busy =
            |(_, answer): &(_, _)| matches!(answer, Answered::Shown | Answered::Seen | Answered::Left);
        clock::now() < self.deaf_until || self.asked.iter().any(is_busy)
    }

    /// Whether the owner may hold the socket of a request. It takes up what was answered.
    pub fn may_hold(&mut self, asked: AskedFor) -> bool {
        let is_shown =
            |(of, answer): &(u32, _)| asked.request == Some(*of) && matches!(answer, Answered::Shown);
        // An owner that has hung up holds nothing.
        self.asked.iter().any(is_shown) && self.hear().is_ok() && self.asked.iter().any(is_shown)
    }

    /// The socket of a request is closed, or stays with the kernel: what the owner may have given it is given back.
    pub fn abandon(&mut self, asked: AskedFor) {
        let Some(at) = asked.request.and_then(|request| self.asked.iter().position(|(of, _)| *of == request))
        else {
            return;
        };
        match self.asked.swap_remove(at) {
            (request, Answered::Shown | Answered::Seen) => self.asked.push((request, Answered::Left)),
            (_, Answered::Done(answer)) => {
                if let Ok(lent) = *answer {
                    self.give_back(lent);
                }
            }
            _ => {}
        }
    }

    /// A lease that was given to a socket which needs none any more.
    fn give_back(&mut self, lent: Lent) {
        if self.connection.end(lent.number, false).is_ok() {
            self.set_free(lent.number, lent.lease);
        }
    }

    /// As [`Self::ask`], until it is answered.
    pub(crate) fn lend(&mut self, socket: BorrowedFd<'_>) -> Result<Lent, OwnerError> {
        let (mut asked, deadline) = (AskedFor::default(), clock::now() + PATIENCE);
        loop {
            let outcome = self.ask(&mut asked, socket);
            let is_to_show = asked.request.is_none() && matches!(self.opening, Opening::Done);
            match outcome {
                Ok(Some(lent)) => return Ok(lent),
                // What was just opened is followed by the next question at once.
                Ok(None) if is_to_show && !self.is_waiting() => {}
                Ok(None) if is_to_show && clock::now() < deadline => {
                    self.connection.wait_for_answer().map_err(|error| self.connection.talk(error))?;
                }
                Ok(None) => self.connection.wait(deadline).inspect_err(|_| self.abandon(asked))?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes up what the owner has answered.
    fn hear(&mut self) -> Result<(), OwnerError> {
        while let Some((answer, memory)) = self.connection.answer()? {
            match answer {
                Answer::Opened { request } => {
                    if matches!(self.opening, Opening::Asked(asked) if asked == request) {
                        self.opening = Opening::Done;
                    }
                    self.answered(request, Answered::Again);
                }
                Answer::Seen { request } => self.answered(request, Answered::Seen),
                Answer::Refused { request, why } => {
                    self.deaf_until = clock::now() + REFUSED_PAUSE;
                    let of_opening =
                        matches!(self.opening, Opening::Asked(asked) if asked == request || request == 0);
                    if of_opening {
                        self.opening = Opening::Refused(why);
                    } else if request == 0 {
                        return Err(OwnerError::Refused(why));
                    } else {
                        self.answered(request, Answered::Done(Box::new(Err(why))));
                    }
                }
                Answer::Lent { request, ring, loan } => {
                    let lent = self.take_up(ring, &loan, &memory).map_err(|error| error.to_string());
                    self.answered(request, Answered::Done(Box::new(lent)));
                }
            }
        }
        Ok(())
    }

    /// The owner has come so far with a request. If its socket was closed meanwhile, it is only no longer busy with that.
    fn answered(&mut self, request: u32, now: Answered) {
        let at = self.asked.iter().position(|(of, _)| *of == request);
        let wants = at.filter(|at| !matches!(self.asked[*at].1, Answered::Left));
        match (wants, now) {
            (Some(at), now) => self.asked[at].1 = now,
            (None, Answered::Seen) => {}
            (None, now) => {
                at.map(|at| self.asked.swap_remove(at));
                if let Answered::Done(answer) = now
                    && let Ok(lent) = *answer
                {
                    self.give_back(lent);
                }
            }
        }
    }

    fn take_up(
        &mut self,
        ring: u32,
        loan: &twinpath_attach::Loan,
        memory: &[OwnedFd],
    ) -> Result<Lent, OwnerError> {
        // Other rings are of a former owner, or of a number that this program had there before: it does not get them again.
        let first = ring.wrapping_sub(loan.number);
        self.idle.retain(|(of, _)| of.wrapping_sub(first) < loan.capacity);
        self.made.retain(|of| of.wrapping_sub(first) < loan.capacity);
        let lease = match self.idle.iter().position(|(of, _)| *of == ring) {
            Some(at) => {
                let (_, mut lease) = self.idle.swap_remove(at);
                lease.begin_anew();
                lease
            }
            // A thread is still at it: where it begins is not known here.
            None if self.made.contains(&ring) => {
                let _ = self.connection.end(ring, false);
                return Err(OwnerError::Refused(
                    "a thread has not left the ring that it was to have".to_owned(),
                ));
            }
            None => match memory {
                [states, slots] => ring_of(loan, states.as_fd(), slots.as_fd()).map_err(|error| {
                    // The owner keeps it for this process otherwise.
                    let _ = self.connection.end(ring, false);
                    OwnerError::Memory(error)
                })?,
                // `Connection::answer` has counted them.
                _ => return Err(OwnerError::Memory(rustix::io::Errno::INVAL)),
            },
        };
        if !self.made.contains(&ring) {
            self.made.push(ring);
        }
        let connection = Arc::clone(&self.connection);
        Ok(Lent {
            number: ring,
            lease,
            withdrawal: Withdrawal::Owner { connection: Arc::clone(&connection), ring },
            on: loan.on.clone(),
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
