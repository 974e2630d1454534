//! Requests to the kernel, and their answers.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use crate::message::{ALIGN, HEADER_LEN, Message, Messages};
use crate::socket::{self, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, Protocol};
use crate::{Attributes, Body, Failure, NetlinkError};

// linux/netlink.h
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The kernel answers immediately, but this thread may have to wait for its CPU beside busy ones.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer, bytes: about 150,000 links, or three million neighbours.
const ANSWER_MAX: usize = 256 * 1024 * 1024;

/// A list that changed while the kernel sent it is requested up to this many times; the last result is then used.
const ATTEMPTS: u32 = 5;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    asked: &'a str,
    kind: u16,
    flags: u16,
    body: &'a Body,
}

impl<'a> Request<'a> {
    /// Asks for one thing, or asks to change or remove one. `asked` is for errors, and begins with a verb: "list
    /// the links".
    #[must_use]
    pub const fn new(asked: &'a str, kind: u16, body: &'a Body) -> Self {
        Self { asked, kind, flags: 0, body }
    }

    /// Asks for a list.
    #[must_use]
    pub const fn list(asked: &'a str, kind: u16, body: &'a Body) -> Self {
        Self { asked, kind, flags: NLM_F_DUMP, body }
    }

    /// Asks to create something that must not exist yet.
    #[must_use]
    pub const fn create(asked: &'a str, kind: u16, body: &'a Body) -> Self {
        Self { asked, kind, flags: NLM_F_CREATE | NLM_F_EXCL, body }
    }

    /// Asks to create something, or to change it if it exists.
    #[must_use]
    pub const fn set(asked: &'a str, kind: u16, body: &'a Body) -> Self {
        Self { asked, kind, flags: NLM_F_CREATE, body }
    }

    const fn is_list(&self) -> bool {
        self.flags & NLM_F_DUMP == NLM_F_DUMP
    }
}

/// The messages of an answer, without the acknowledgement.
#[derive(Clone, Debug, Default)]
pub struct Answers(Vec<u8>);

impl Answers {
    /// Each message.
    #[must_use]
    pub fn iter(&self) -> Messages<'_> {
        Messages::of(&self.0)
    }

    fn push(&mut self, message: &Message<'_>) {
        let len = (HEADER_LEN + message.body.len()) as u32;
        self.0.extend(header(len, message.kind, message.flags, message.sequence));
        self.0.extend(message.body);
        self.0.resize(self.0.len().next_multiple_of(ALIGN), 0);
    }
}

impl<'a> IntoIterator for &'a Answers {
    type Item = Message<'a>;
    type IntoIter = Messages<'a>;

    fn into_iter(self) -> Messages<'a> {
        self.iter()
    }
}

/// `struct nlmsghdr`; the kernel fills in the number of the sender.
fn header(len: u32, kind: u16, flags: u16, sequence: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&flags.to_ne_bytes());
    header[8..12].copy_from_slice(&sequence.to_ne_bytes());
    header
}

/// A socket for requests. It belongs to the network namespace in which it was opened, whichever thread uses it
/// later.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    patience: Duration,
    /// Serialises the requests of all threads.
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// Number of the last request: the kernel's answers carry it.
    sequence: u32,
    datagram: Vec<u8>,
    /// The number of a list that was not read to its end. Until it is, the kernel begins no other list.
    given_up: Option<u32>,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Failure::Open`]; `EPROTONOSUPPORT`: the kernel does not have this protocol.
    pub fn open(protocol: Protocol) -> Result<Self, NetlinkError> {
        let socket = socket::open(protocol).map_err(NetlinkError::open)?;
        // Errors come without a copy of the request (since Linux 4.3), and with a reason in words (since Linux
        // 4.12).
        for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK] {
            let _ = socket::set(&socket, option, 1);
        }
        Ok(Self::over(socket, PATIENCE))
    }

    /// Has the kernel check requests for lists, and list only matching entries. Since Linux 4.20; without it, the
    /// kernel ignores most of such a request.
    #[must_use]
    pub fn strict(self) -> Self {
        let _ = socket::set(&self.socket, NETLINK_GET_STRICT_CHK, 1);
        self
    }

    fn over(socket: OwnedFd, patience: Duration) -> Self {
        Self { socket, patience, turn: Mutex::default() }
    }

    /// Sends a request, and reads its whole answer. A list that changed meanwhile is requested again.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn request(&self, request: &Request<'_>) -> Result<Answers, NetlinkError> {
        let mut attempt = 1;
        loop {
            match self.ask_once(request) {
                Ok((answers, is_whole)) if is_whole || attempt == ATTEMPTS => return Ok(answers),
                Err(Failure::Overrun { .. }) if request.is_list() && attempt < ATTEMPTS => {}
                Err(failure) => return Err(failure.into()),
                Ok(_) => {}
            }
            attempt += 1;
        }
    }

    /// The answer, and whether it stayed unchanged while the kernel sent it.
    fn ask_once(&self, request: &Request<'_>) -> Result<(Answers, bool), Failure> {
        let asked = || request.asked.to_owned();
        let failed = |error: Errno| Failure::Socket { asked: asked(), error: error.into() };
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Turn { sequence, datagram, given_up } = &mut *turn;
        self.finish(datagram, given_up);
        *sequence = sequence.wrapping_add(1);
        let sequence = *sequence;
        let body = request.body.as_slice();
        // The acknowledgement shows where the answer ends.
        let flags = NLM_F_REQUEST | NLM_F_ACK | request.flags;
        let header = header((HEADER_LEN + body.len()) as u32, request.kind, flags, sequence);
        send(&self.socket, &[&header[..], body].concat(), SendFlags::empty()).map_err(failed)?;

        *given_up = request.is_list().then_some(sequence);
        let mut until = clock::now() + self.patience;
        let (mut answers, mut is_whole) = (Answers::default(), true);
        let (mut is_lost, mut is_long) = (false, false);
        loop {
            if !self.receive(datagram, until, &mut is_lost).map_err(failed)? {
                return Err(Failure::Silent { asked: asked(), patience: self.patience });
            }
            // The lost part may have been the end of the answer. Only a list continues once the socket has room
            // again.
            if is_lost && !request.is_list() {
                return Err(Failure::Overrun { asked: asked() });
            }
            let mut is_answered = false;
            for message in Messages::of(datagram).filter(|message| message.sequence == sequence) {
                is_answered = true;
                is_whole &= message.flags & NLM_F_DUMP_INTR == 0;
                if matches!(message.kind, NLMSG_ERROR | NLMSG_DONE) {
                    *given_up = None;
                    return match outcome(&message) {
                        Err((error, text)) => {
                            Err(Failure::Refused { asked: asked(), error: error.into(), text })
                        }
                        Ok(()) if is_lost => Err(Failure::Overrun { asked: asked() }),
                        Ok(()) if is_long => Err(Failure::TooLong { asked: asked(), max_bytes: ANSWER_MAX }),
                        Ok(()) => Ok((answers, is_whole)),
                    };
                }
                // The rest must still be read: until then the kernel accepts no other request for a list.
                is_long |= answers.0.len() + message.body.len() > ANSWER_MAX;
                if !is_long {
                    answers.push(&message);
                }
            }
            let now = clock::now();
            if is_answered {
                // A long list may take longer, and data that is already in the socket is never late.
                until = now + self.patience;
            } else if now >= until {
                return Err(Failure::Silent { asked: asked(), patience: self.patience });
            }
        }
    }

    /// Reads the rest of an abandoned list, up to its end: each read makes the kernel continue it.
    fn finish(&self, datagram: &mut Vec<u8>, given_up: &mut Option<u32>) {
        while let Some(sequence) = *given_up {
            match socket::receive(&self.socket, datagram) {
                Ok(true) => {}
                Err(Errno::NOBUFS | Errno::MSGSIZE) => datagram.clear(),
                Ok(false) | Err(_) => return,
            }
            let mut of_list = Messages::of(datagram).filter(|message| message.sequence == sequence);
            if of_list.any(|message| matches!(message.kind, NLMSG_ERROR | NLMSG_DONE)) {
                *given_up = None;
            }
        }
    }

    /// Reads the next datagram; false if none comes in time. An empty one stands for datagrams that were lost.
    fn receive(&self, datagram: &mut Vec<u8>, until: Instant, is_lost: &mut bool) -> Result<bool, Errno> {
        loop {
            match socket::receive(&self.socket, datagram) {
                Ok(true) => return Ok(true),
                Ok(false) if !socket::wait(&self.socket, until)? => return Ok(false),
                Ok(false) => {}
                Err(Errno::NOBUFS | Errno::MSGSIZE) => {
                    datagram.clear();
                    *is_lost = true;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The end of an answer: success, or the kernel's error and its reason in words (`struct nlmsgerr`; a list ends
/// with the code alone).
fn outcome(message: &Message<'_>) -> Result<(), (Errno, Option<String>)> {
    let code = message.body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code == 0 {
        return Ok(());
    }
    let mut rest = message.body.get(4..).unwrap_or_default();
    if message.kind == NLMSG_ERROR {
        // The header of the request, and the rest of it unless it was left out.
        let len = rest.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len) as usize);
        let len = if message.flags & NLM_F_CAPPED == 0 { len.next_multiple_of(ALIGN) } else { HEADER_LEN };
        rest = rest.get(len..).unwrap_or_default();
    }
    let text = (message.flags & NLM_F_ACK_TLVS != 0).then(|| Attributes::of(rest).text(NLMSGERR_ATTR_MSG));
    // A driver may return a code that is not an error number.
    let error = if (-4095..0).contains(&code) { Errno::from_raw_os_error(-code) } else { Errno::IO };
    Err((error, text.flatten()))
}

#[cfg(test)]
mod tests;
