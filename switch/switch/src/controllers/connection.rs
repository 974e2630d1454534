//! One connection: what is read and sent.

use std::io;
use std::net::IpAddr;
use std::task::Context;

use twinpath_config::values::Endpoint;
use twinpath_forwarding::openflow::{ControllerId, Datapath, Ending, OpenFlowSwitch};
use twinpath_time::Instant;

use crate::controllers::state::{ControllerState, News, Stage};
use crate::controllers::stream::Stream;

/// Bytes per read, and maximum bytes per turn that several connections share.
const READ_EACH: usize = 32 << 10;

/// A connection of the switch.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ControllerId,
    stream: Stream,
    peer: String,
    /// The address of the controller that was connected to, or where it came by.
    pub(crate) endpoint: Endpoint,
    pub(crate) is_outgoing: bool,
    /// When the controller greeted.
    greeted: Option<Instant>,
    /// What was read; the bytes from `taken` to `filled` are not taken yet.
    buffer: Box<[u8]>,
    taken: usize,
    filled: usize,
    /// The last read filled the buffer, so there is probably more.
    has_more: bool,
    /// Why nothing more can be read.
    ended: Option<String>,
    /// Nothing more can be sent, either.
    is_gone: bool,
    /// The other end does not speak TLS, or its certificate is not trusted.
    pub(crate) broke_tls: bool,
}

/// The other end has closed the connection.
const CLOSED: &str = "the other end has closed it";

const fn in_words(ending: Ending) -> &'static str {
    match ending {
        Ending::Version => "it does not speak OpenFlow 1.3",
        Ending::Refused => "it has refused OpenFlow 1.3",
        Ending::Framing => "the length of a message cannot be",
        Ending::Silent => "it was silent for 15 s",
        Ending::NoHello => "it has not greeted within 15 s",
    }
}

impl Connection {
    pub(crate) fn new(id: ControllerId, stream: Stream, endpoint: Endpoint, is_outgoing: bool) -> Self {
        let (peer, buffer) = (stream.peer(), vec![0; READ_EACH].into());
        Self {
            id,
            stream,
            peer,
            endpoint,
            is_outgoing,
            greeted: None,
            buffer,
            taken: 0,
            filled: 0,
            has_more: false,
            ended: None,
            is_gone: false,
            broke_tls: false,
        }
    }

    /// Where the other end is; the same for all of this host that come by a UNIX socket.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.stream.source()
    }

    /// Whether the controller's hello had come.
    pub(crate) const fn has_greeted(&self) -> bool {
        self.greeted.is_some()
    }

    /// News, if the controller has just greeted.
    pub(crate) fn greeted<D: Datapath>(&mut self, now: Instant, switch: &OpenFlowSwitch<D>) -> Option<News> {
        if self.has_greeted() || !switch.is_open(self.id) {
            return None;
        }
        self.greeted = Some(now);
        let (endpoint, is_outgoing, peer) = (self.endpoint.clone(), self.is_outgoing, self.peer.clone());
        Some(News::Connected { endpoint, is_outgoing, peer })
    }

    /// News of its end.
    pub(crate) fn lost(&self, why: String) -> News {
        let (endpoint, is_outgoing, peer) = (self.endpoint.clone(), self.is_outgoing, self.peer.clone());
        News::Lost { endpoint, is_outgoing, peer, had_greeted: self.has_greeted(), why }
    }

    pub(crate) fn state<D: Datapath>(&self, now: Instant, switch: &OpenFlowSwitch<D>) -> ControllerState {
        let stage = match (self.greeted, switch.role(self.id)) {
            (Some(since), Some(role)) => Stage::Connected { role, since: now.since(since) },
            _ => Stage::Connecting,
        };
        let (endpoint, peer) = (self.endpoint.clone(), self.peer.clone());
        ControllerState { endpoint, peer, came: !self.is_outgoing, stage, last_error: None }
    }

    /// Whether everything that was read is taken.
    const fn is_taken(&self) -> bool {
        self.taken == self.filled
    }

    /// Whether the next turn probably brings more.
    pub(crate) const fn is_busy(&self) -> bool {
        self.has_more && self.is_taken()
    }

    /// Whether the next turn goes on with what was read before.
    pub(crate) fn goes_on<D: Datapath>(&self, switch: &OpenFlowSwitch<D>) -> bool {
        !self.is_taken() && switch.takes(self.id)
    }

    /// Whether something can be read or sent.
    pub(crate) fn poll<D: Datapath>(&self, context: &mut Context<'_>, switch: &OpenFlowSwitch<D>) -> bool {
        let reads = self.is_taken() && self.ended.is_none();
        let can_read = reads && self.stream.poll_read_ready(context);
        let can_write = self.stream.poll_write_ready(context, !switch.output(self.id).is_empty());
        can_read || can_write
    }

    /// Sends, reads once, does what was read as far as that is possible now, and sends the answers.
    ///
    /// # Errors
    /// The connection has ended, or has to: why.
    pub(crate) fn turn<D: Datapath>(
        &mut self,
        now: Instant,
        switch: &mut OpenFlowSwitch<D>,
    ) -> Result<(), String> {
        self.send(now, switch)?;
        self.read();
        loop {
            let used = switch.receive(now, self.id, &self.buffer[self.taken..self.filled]);
            self.taken += used;
            self.send(now, switch)?;
            if used == 0 || self.is_taken() {
                break;
            }
        }
        if switch.is_over(self.id) {
            return Err(switch.ending(self.id).map_or(CLOSED, in_words).to_owned());
        }
        match &self.ended {
            Some(why) if self.is_gone => Err(why.clone()),
            Some(why) if self.is_taken() && switch.output(self.id).is_empty() => Err(why.clone()),
            _ => Ok(()),
        }
    }

    fn read(&mut self) {
        if !self.is_taken() || self.ended.is_some() {
            return;
        }
        let count = match self.stream.try_read(&mut self.buffer) {
            Ok(0) => {
                // A peer that has closed only its sending half still reads, but not before both ends are authenticated.
                self.is_gone = !self.stream.takes_bytes();
                Err(CLOSED.to_owned())
            }
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => {
                self.is_gone = true;
                self.broke_tls = error.kind() == io::ErrorKind::InvalidData;
                Err(error.to_string())
            }
        };
        (self.taken, self.filled) = (0, *count.as_ref().unwrap_or(&0));
        self.has_more = self.filled == READ_EACH;
        self.ended = count.err();
    }

    /// Sends what the other end takes.
    ///
    /// # Errors
    /// It takes nothing more.
    fn send<D: Datapath>(&mut self, now: Instant, switch: &mut OpenFlowSwitch<D>) -> Result<(), String> {
        self.stream.try_flush().map_err(|error| error.to_string())?;
        loop {
            let output = switch.output(self.id);
            if output.is_empty() {
                return Ok(());
            }
            match self.stream.try_write(output) {
                Ok(count) => switch.sent(now, self.id, count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
