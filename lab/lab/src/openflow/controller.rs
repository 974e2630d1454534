//! A connection to a switch that listens, and what is asked over it. Calls block, with a deadline.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use twinpath_openflow_wire::{
    FlowStats, FlowStatsRequest, Header, Hello, Match, Message, Multipart, MultipartReply, MultipartRequest,
    PortStats, TableStats, number,
};
use twinpath_socket_load::Stop;

/// A switch that says nothing for so long never will.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes per read.
const READ: usize = 64 * 1024;
/// Bytes after which messages are sent without being asked to.
const QUEUED_MAX: usize = 64 * 1024;
/// A bit of [`Hello::versions`].
const VERSIONS: u32 = 1 << number::VERSION;

/// A controller of a switch.
#[derive(Debug)]
pub(crate) struct Controller {
    stream: UnixStream,
    received: Vec<u8>,
    /// What of it has been read.
    read: usize,
    /// Messages that are not sent yet.
    queued: Vec<u8>,
    xid: u32,
}

impl Controller {
    /// Connects to the switch and agrees on OpenFlow 1.3.
    ///
    /// # Errors
    /// Nobody listens, or the switch speaks another version.
    pub(crate) fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut this = Self { stream, received: Vec::new(), read: 0, queued: Vec::new(), xid: 0 };
        this.send(&Message::Hello(Hello { version: number::VERSION, versions: Some(VERSIONS) }))?;
        this.flush()?;
        match this.message()?.1 {
            Message::Hello(_) => Ok(this),
            other => bail!("the switch says {:?} and not hello", other.kind()),
        }
    }

    /// Sends a message, at the latest with the next [`Self::flush`]. Returns its transaction number.
    pub(crate) fn send(&mut self, message: &Message) -> anyhow::Result<u32> {
        self.xid = self.xid.wrapping_add(1);
        message.encode(self.xid, &mut self.queued)?;
        if self.queued.len() >= QUEUED_MAX {
            self.flush()?;
        }
        Ok(self.xid)
    }

    /// Sends messages that are encoded, in the same pieces as others. Nothing waits for replies to them.
    pub(crate) fn send_encoded(&mut self, messages: &[u8]) -> anyhow::Result<()> {
        self.flush()?;
        for piece in messages.chunks(QUEUED_MAX) {
            self.stream.write_all(piece).context("the switch takes no message")?;
        }
        Ok(())
    }

    /// Returns when the kernel has taken all messages.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.queued).context("the switch takes no message")?;
        self.queued.clear();
        Ok(())
    }

    /// Returns when the switch says that it has done all that it was sent.
    pub(crate) fn barrier(&mut self) -> anyhow::Result<()> {
        let xid = self.send(&Message::BarrierRequest)?;
        match self.reply(xid)? {
            Message::BarrierReply => Ok(()),
            other => bail!("a barrier was answered by {:?}", other.kind()),
        }
    }

    /// From now on calls fail once `stop` is requested.
    pub(crate) fn stop_with(&self, stop: &Stop) -> anyhow::Result<()> {
        let socket = self.stream.try_clone().context("cannot share the connection")?;
        // It lives as long as the process: the request holds no reference of its own.
        let socket = Box::leak(Box::new(Arc::new(OwnedFd::from(socket))));
        stop.watch(socket);
        Ok(())
    }

    /// Reads nothing until then, or until calls fail.
    pub(crate) fn ignore_switch(&self, until: Option<Instant>) -> anyhow::Result<()> {
        // Only its end is reported.
        let mut ended = [PollFd::new(&self.stream, PollFlags::empty())];
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            });
            match rustix::event::poll(&mut ended, left.as_ref()) {
                Err(Errno::INTR) => {}
                result => return result.map(|_| ()).context("cannot wait for the end of the connection"),
            }
        }
    }

    /// Answers the switch's echo requests until `stop` is requested.
    pub(crate) fn attend(&mut self, stop: &Stop) -> anyhow::Result<()> {
        self.stop_with(stop)?;
        self.stream.set_read_timeout(None)?;
        while !stop.is_requested() {
            match self.message() {
                Ok((of, message)) => self.answer(of, message)?,
                Err(_) if stop.is_requested() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// All flows of the switch.
    pub(crate) fn flows(&mut self, mut each: impl FnMut(FlowStats)) -> anyhow::Result<()> {
        let all = FlowStatsRequest {
            table_id: number::table::ALL,
            out_port: number::port::ANY,
            out_group: number::group::ANY,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::new([]).map_err(|error| anyhow::anyhow!("{error:?}"))?,
        };
        self.parts(MultipartRequest::Flow(all), |body| {
            if let MultipartReply::Flow(flows) = body {
                flows.into_iter().for_each(&mut each);
            }
        })
    }

    /// The counters of all tables.
    pub(crate) fn tables(&mut self) -> anyhow::Result<Vec<TableStats>> {
        let mut all = Vec::new();
        self.parts(MultipartRequest::Table, |body| {
            if let MultipartReply::Table(tables) = body {
                all.extend(tables);
            }
        })?;
        Ok(all)
    }

    /// The counters of all ports.
    pub(crate) fn ports(&mut self) -> anyhow::Result<Vec<PortStats>> {
        let mut all = Vec::new();
        self.parts(MultipartRequest::PortStats(number::port::ANY), |body| {
            if let MultipartReply::PortStats(ports) = body {
                all.extend(ports);
            }
        })?;
        Ok(all)
    }

    /// Asks, and gives each part of the answer to `take`.
    fn parts(&mut self, body: MultipartRequest, mut take: impl FnMut(MultipartReply)) -> anyhow::Result<()> {
        let kind = body.kind();
        let xid = self.send(&Message::MultipartRequest(Box::new(Multipart { more: false, body })))?;
        loop {
            let Message::MultipartReply(part) = self.reply(xid)? else { bail!("{kind:?} was not answered") };
            ensure!(part.body.kind() == kind, "{kind:?} was answered by {:?}", part.body.kind());
            take(part.body);
            if !part.more {
                return Ok(());
            }
        }
    }

    /// The next message with this transaction number. Messages that nobody asked for are passed over.
    fn reply(&mut self, xid: u32) -> anyhow::Result<Message> {
        self.flush()?;
        loop {
            match self.message()? {
                (_, Message::Error(error)) => bail!("the switch refuses: {:?}", error.error()),
                (of, message) if of == xid => return Ok(message),
                (of, message) => self.answer(of, message)?,
            }
        }
    }

    /// Answers an echo request; nothing else that comes without being asked for needs an answer.
    fn answer(&mut self, xid: u32, message: Message) -> anyhow::Result<()> {
        if let Message::EchoRequest(data) = message {
            Message::EchoReply(data).encode(xid, &mut self.queued)?;
            self.flush()?;
        }
        Ok(())
    }

    fn message(&mut self) -> anyhow::Result<(u32, Message)> {
        loop {
            let rest = &self.received[self.read..];
            if let Some(header) = Header::of(rest)
                && let Some(bytes) = rest.get(..usize::from(header.len))
            {
                ensure!(!bytes.is_empty(), "the switch sends a message without length");
                self.read += bytes.len();
                let message = Message::decode(bytes);
                return Ok((
                    header.xid,
                    message.map_err(|error| anyhow::anyhow!("the switch sends {error:?}"))?,
                ));
            }
            self.received.drain(..std::mem::take(&mut self.read));
            let len = self.received.len();
            self.received.resize(len + READ, 0);
            let read = self.stream.read(&mut self.received[len..]).context("the switch does not answer")?;
            self.received.truncate(len + read);
            ensure!(read > 0, "the switch has closed the connection");
        }
    }
}
