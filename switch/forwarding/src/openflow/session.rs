//! One connection with a controller: what it has agreed on, and what is to be sent to it.

use twinpath_openflow_wire::{
    AsyncConfig, ErrorCode, ErrorMessage, FlowRemovedReason, Frames, Message, Multipart, MultipartReply,
    PacketInReason, PortReason, Role,
};
use twinpath_time::{Duration, Instant};

use crate::openflow::datapath::Datapath;
use crate::openflow::tables::Tables;
use crate::openflow::walk::Walk;

/// Output backlog, in bytes, at which nothing more is read and long replies pause.
pub(crate) const OUTPUT_HIGH: usize = 256 << 10;
/// Output backlog, in bytes, at which packet-ins are dropped.
pub(crate) const PACKET_IN_HIGH: usize = 512 << 10;
/// Output backlog, in bytes, at which flow-removed and port-status messages are dropped too: those of some 100,000
/// flows.
pub(crate) const NEWS_HIGH: usize = 16 << 20;
/// Capacity, in bytes, that the output buffer keeps when it is empty.
const OUTPUT_KEPT: usize = 64 << 10;

/// Silence after which an echo request is sent.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// Silence after which the controller is considered gone.
const GONE_AFTER: Duration = Duration::from_secs(15);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its hello has not come.
    Hello,
    Open,
    /// It is to be closed once its output is sent.
    Closing,
}

/// Why a connection is closed by this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The controller's first message was no hello of version 1.3.
    Version,
    /// The controller has refused our hello.
    Refused,
    /// The length of a message cannot be, so the next one cannot be found.
    Framing,
    /// Nothing came for 15 s, or nothing was read.
    Silent,
    /// The controller's hello was not there within 15 s.
    NoHello,
}

/// What a reply waits for.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// The rest of a long reply.
    Walk { xid: u32, walk: Walk },
    /// What came before a barrier.
    Barrier { xid: u32, until: Before },
}

/// What a barrier waits for (section 7.3.8): every worker judges by this version, and this many of the controllers'
/// frames are sent, or handed over to the worker that has their port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) version: u64,
    pub(crate) frames: u64,
}

impl Before {
    pub(crate) fn is_over<D: Datapath>(self, tables: &Tables<D>, done: u64) -> bool {
        done >= self.frames && tables.datapath.is_in_force(self.version)
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) frames: Frames,
    output: Vec<u8>,
    /// Bytes of it that are sent.
    sent: usize,
    pub(crate) stage: Stage,
    pub(crate) ending: Option<Ending>,
    pub(crate) role: Role,
    pub(crate) asynchronous: AsyncConfig,
    pub(crate) miss_send_len: u16,
    pub(crate) waiting: Option<Waiting>,
    opened: Instant,
    heard: Instant,
    has_probed: bool,
}

/// The asynchronous messages that a controller gets by default (section 6.3.5). A master or equal gets all except
/// packet-ins for an invalid TTL. A slave gets only port-status messages.
const ASYNC_DEFAULT: AsyncConfig =
    AsyncConfig { packet_in: [0b011, 0], port_status: [0b111, 0b111], flow_removed: [0b1111, 0] };

/// Bytes of a frame in packet-in at first (`OFP_DEFAULT_MISS_SEND_LEN`).
const MISS_SEND_LEN: u16 = 128;

impl Session {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            frames: Frames::new(),
            output: Vec::new(),
            sent: 0,
            stage: Stage::Hello,
            ending: None,
            role: Role::Equal,
            asynchronous: ASYNC_DEFAULT,
            miss_send_len: MISS_SEND_LEN,
            waiting: None,
            opened: now,
            heard: now,
            has_probed: false,
        }
    }

    /// What is to be sent.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// This many bytes have been sent.
    pub(crate) fn has_sent(&mut self, now: Instant, count: usize) {
        if !self.has_room() && count > 0 {
            // It reads again; it was not read meanwhile.
            self.note_heard(now);
        }
        self.sent = (self.sent + count).min(self.output.len());
        if self.sent == self.output.len() {
            self.sent = 0;
            self.output.clear();
            self.output.shrink_to(OUTPUT_KEPT);
        } else if self.sent >= OUTPUT_HIGH {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// It is to be closed once its output is sent.
    pub(crate) fn close(&mut self, why: Ending) {
        self.stage = Stage::Closing;
        self.ending = Some(why);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.output().len() < OUTPUT_HIGH
    }

    /// Whether its messages have to wait.
    pub(crate) fn is_blocked(&self) -> bool {
        self.stage == Stage::Closing || self.waiting.is_some() || !self.has_room()
    }

    /// Appends a message. All that the switch sends fits one: what is stored came in one, and data is cut.
    pub(crate) fn send(&mut self, xid: u32, message: &Message) {
        let _ = message.encode(xid, &mut self.output);
    }

    /// Appends a message unless the backlog has reached this limit. Returns whether it was appended.
    pub(crate) fn send_below(&mut self, high: usize, message: &Message) -> bool {
        let fits = self.output().len() < high;
        if fits {
            self.send(0, message);
        }
        fits
    }

    pub(crate) fn send_error(&mut self, error: ErrorCode, message: &[u8]) {
        let xid = twinpath_openflow_wire::Header::of(message).map_or(0, |header| header.xid);
        self.send(xid, &Message::Error(ErrorMessage::about(error, message)));
    }

    /// Appends a part of a long reply, in several messages if it does not fit one.
    pub(crate) fn send_part(&mut self, xid: u32, part: MultipartReply, more: bool) {
        let message = Message::MultipartReply(Box::new(Multipart { more, body: part }));
        if message.encode(xid, &mut self.output).is_ok() {
            return;
        }
        let Message::MultipartReply(whole) = message else { return };
        if let Some((first, second)) = halves(whole.body) {
            self.send_part(xid, first, true);
            self.send_part(xid, second, more);
        }
    }

    pub(crate) fn note_heard(&mut self, now: Instant) {
        self.heard = now;
        self.has_probed = false;
    }

    /// Probes a silent controller (section 6.3.2). Gives up one that stays silent, or does not read. One that waits for
    /// a barrier is not read, and so does not count as silent.
    pub(crate) fn check_silence(&mut self, now: Instant) {
        if matches!(self.waiting, Some(Waiting::Barrier { .. })) {
            return;
        }
        // However slowly its hello comes.
        let is_late = self.stage == Stage::Hello && now >= self.opened + GONE_AFTER;
        if is_late || now >= self.heard + GONE_AFTER {
            self.close(if is_late { Ending::NoHello } else { Ending::Silent });
            self.output.clear();
            self.sent = 0;
        } else if now >= self.heard + PROBE_AFTER && !self.has_probed && self.stage == Stage::Open {
            self.has_probed = true;
            self.send(0, &Message::EchoRequest(Box::default()));
        }
    }

    /// When [`Self::check_silence`] has something to do.
    pub(crate) fn silence_deadline(&self) -> Instant {
        match self.stage {
            Stage::Closing => Instant::NEVER,
            _ if matches!(self.waiting, Some(Waiting::Barrier { .. })) => Instant::NEVER,
            Stage::Open if !self.has_probed => self.heard + PROBE_AFTER,
            Stage::Open => self.heard + GONE_AFTER,
            Stage::Hello => self.opened + GONE_AFTER,
        }
    }

    fn wants(&self, masks: [u32; 2], reason: u32) -> bool {
        let [other, slave] = masks;
        let mask = if self.role == Role::Slave { slave } else { other };
        self.stage == Stage::Open && mask & 1 << reason != 0
    }

    pub(crate) fn wants_packet_in(&self, reason: PacketInReason) -> bool {
        self.wants(self.asynchronous.packet_in, reason.number().into())
    }

    pub(crate) fn wants_flow_removed(&self, reason: FlowRemovedReason) -> bool {
        self.wants(self.asynchronous.flow_removed, reason.number().into())
    }

    pub(crate) fn wants_port_status(&self, reason: PortReason) -> bool {
        self.wants(self.asynchronous.port_status, reason.number().into())
    }
}

/// Two parts of one; `None` if it cannot be parted.
fn halves(part: MultipartReply) -> Option<(MultipartReply, MultipartReply)> {
    fn halve<T>(
        mut list: Vec<T>,
        of: impl Fn(Vec<T>) -> MultipartReply,
    ) -> Option<(MultipartReply, MultipartReply)> {
        let second = list.split_off(list.len() / 2);
        (!list.is_empty()).then(|| (of(list), of(second)))
    }
    match part {
        MultipartReply::Flow(list) => halve(list, MultipartReply::Flow),
        MultipartReply::Group(list) => halve(list, MultipartReply::Group),
        MultipartReply::GroupDesc(list) => halve(list, MultipartReply::GroupDesc),
        MultipartReply::TableFeatures(list) => halve(list, MultipartReply::TableFeatures),
        // All entries of a part together are short.
        _ => None,
    }
}
