//! A switch and its controllers: what comes from whom, and what each of them is told.

use std::collections::BTreeMap;

use twinpath_openflow_wire::{
    Action, Field, FlowRemoved, Hello, MESSAGE_LEN_MAX, Match, MatchField, Message, PacketIn, PacketInReason,
    Port, PortStatus, Role, number,
};
use twinpath_time::{Duration, Instant};

use crate::openflow::buffers::Buffers;
use crate::openflow::datapath::Datapath;
use crate::openflow::describe::SwitchInfo;
use crate::openflow::session::{Ending, NEWS_HIGH, PACKET_IN_HIGH, Session, Stage, Waiting};
use crate::openflow::tables::Tables;
use crate::openflow::walk::Step;

/// Maximum bytes of a frame in a packet-in: its head is followed by up to four fields of a match, and padding.
const PACKET_IN_DATA_MAX: usize = MESSAGE_LEN_MAX - 96;

/// Maximum number of connections.
pub const CONTROLLERS_MAX: usize = 64;
/// Maximum number of requests that wait for the workers' side. At this number no controller is read.
const REQUESTS_MAX: usize = 256;
/// Maximum number of flows that one call removes for their timeouts.
const EXPIRE_EACH: usize = 1024;
/// Maximum number of steps of long replies that one call makes for each controller.
const STEPS_EACH: usize = 32;

/// A request to the owner of frames and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A frame goes through these actions (section 7.3.7).
    PacketOut {
        /// Where it came in.
        in_port: u32,
        /// What is done with it; [`number::port::TABLE`] is the first table.
        actions: Box<[Action]>,
        /// The frame.
        frame: Box<[u8]>,
    },
    /// A port has another configuration, of [`twinpath_openflow_wire::port_config`].
    PortConfig {
        /// The port.
        port_no: u32,
        /// Its configuration.
        config: u32,
    },
}

impl Request {
    const fn is_frame(&self) -> bool {
        matches!(self, Self::PacketOut { .. })
    }
}

/// A frame for the controllers, as a worker reports it.
#[derive(Clone, Copy, Debug)]
pub struct Punt<'a> {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the flow that sent it.
    pub table_id: u8,
    /// The cookie of that flow.
    pub cookie: u64,
    /// Maximum bytes to send; `None`: as the controller has configured.
    pub max_len: Option<u16>,
    /// Where the frame came in.
    pub in_port: u32,
    /// The physical port of it.
    pub in_phy_port: u32,
    /// Metadata of that port.
    pub tunnel_id: u64,
    /// Metadata that tables have written.
    pub metadata: u64,
    /// The frame, or its start.
    pub frame: &'a [u8],
    /// Bytes of the whole frame.
    pub total_len: u16,
}

/// What was not sent to a controller, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packet-ins beyond the rate of their port.
    pub packet_in_rate: u64,
    /// Packet-ins for a controller that does not read.
    pub packet_in_unread: u64,
    /// Other news for a controller that does not read.
    pub news_unread: u64,
}

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(u32);

/// A message for all controllers that want it.
#[derive(Debug)]
pub(crate) enum News {
    FlowRemoved(Box<FlowRemoved>),
    PortStatus(Box<PortStatus>),
}

/// The OpenFlow state of a switch, and its sessions with controllers. It belongs to one thread.
///
/// After each call the owner takes [`Self::take_requests`], sends what [`Self::output`] has, and calls [`Self::advance`]
/// at [`Self::deadline`], and when workers have taken a version of the tables.
#[derive(Debug)]
pub struct OpenFlowSwitch<D: Datapath> {
    pub(crate) info: SwitchInfo,
    pub(crate) tables: Tables<D>,
    pub(crate) buffers: Buffers,
    pub(crate) sessions: BTreeMap<ControllerId, Session>,
    pub(crate) news: Vec<News>,
    pub(crate) requests: Vec<Request>,
    /// Number of frames that controllers have had sent, number of these requests that were taken, and number of those
    /// that are done. Other requests are done immediately.
    asked: u64,
    taken: u64,
    done: u64,
    /// Number of the last election (section 6.3.5).
    pub(crate) generation_id: Option<u64>,
    next_id: u32,
    /// For each port the time at which its budget of packet-ins would be full again.
    budgets: BTreeMap<u32, Instant>,
    dropped: Dropped,
    has_expired_all: bool,
}

/// What this switch speaks: version 1.3 alone.
pub(crate) const HELLO: Hello = Hello { version: number::VERSION, versions: Some(1 << number::VERSION) };

impl<D: Datapath> OpenFlowSwitch<D> {
    /// A switch without flows.
    #[must_use]
    pub fn new(info: SwitchInfo, datapath: D) -> Self {
        Self {
            tables: Tables::new(datapath, info.flows_max as usize),
            info,
            buffers: Buffers::default(),
            sessions: BTreeMap::new(),
            news: Vec::new(),
            requests: Vec::new(),
            asked: 0,
            taken: 0,
            done: 0,
            generation_id: None,
            next_id: 0,
            budgets: BTreeMap::new(),
            dropped: Dropped::default(),
            has_expired_all: true,
        }
    }

    /// The tables that workers judge by.
    pub const fn datapath(&mut self) -> &mut D {
        &mut self.tables.datapath
    }

    /// The same, to read.
    #[must_use]
    pub const fn datapath_ref(&self) -> &D {
        &self.tables.datapath
    }

    /// A new connection; `None` if there are [`CONTROLLERS_MAX`].
    pub fn connect(&mut self, now: Instant) -> Option<ControllerId> {
        if self.sessions.len() >= CONTROLLERS_MAX {
            return None;
        }
        let id = ControllerId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let mut session = Session::new(now);
        session.send(0, &Message::Hello(HELLO));
        self.sessions.insert(id, session);
        Some(id)
    }

    /// A connection has ended.
    pub fn disconnect(&mut self, id: ControllerId) {
        self.sessions.remove(&id);
    }

    /// Whether the connection is to be closed, now that its output is sent or will never be.
    #[must_use]
    pub fn is_over(&self, id: ControllerId) -> bool {
        self.sessions
            .get(&id)
            .is_none_or(|session| session.stage == Stage::Closing && session.output().is_empty())
    }

    /// Whether the controller's hello has come and was understood.
    #[must_use]
    pub fn is_open(&self, id: ControllerId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.stage == Stage::Open)
    }

    /// Takes bytes from a controller, and returns how many of them were used. The rest has to be passed again after
    /// [`Self::advance`], or after output was sent. Nothing should be read meanwhile.
    pub fn receive(&mut self, now: Instant, id: ControllerId, input: &[u8]) -> usize {
        let Some(mut session) = self.sessions.remove(&id) else { return input.len() };
        if !input.is_empty() && !session.is_blocked() {
            session.note_heard(now);
        }
        let mut frames = std::mem::take(&mut session.frames);
        let mut rest = input;
        while !session.is_blocked() && self.requests.len() < REQUESTS_MAX {
            match frames.next(&mut rest) {
                Ok(Some(message)) => self.handle(now, &mut session, message),
                Ok(None) => break,
                Err(lost) => {
                    session.lose_framing(lost);
                    rest = &[];
                }
            }
        }
        if session.stage == Stage::Closing {
            rest = &[];
        }
        session.frames = frames;
        let used = input.len() - rest.len();
        self.sessions.insert(id, session);
        self.pass_on_news();
        used
    }

    /// Whether a controller waits for workers to judge by what it has changed, or for what they are asked to do after that.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        let waits = |session: &Session| matches!(session.waiting, Some(Waiting::Barrier { .. }));
        !self.requests.is_empty() || self.sessions.values().any(waits)
    }

    /// Whether [`Self::receive`] takes something from a controller now: it waits for nothing, and there is room for its
    /// requests.
    #[must_use]
    pub fn takes(&self, id: ControllerId) -> bool {
        let is_free = self.sessions.get(&id).is_some_and(|session| !session.is_blocked());
        is_free && self.requests.len() < REQUESTS_MAX
    }

    /// What is to be sent to a controller.
    #[must_use]
    pub fn output(&self, id: ControllerId) -> &[u8] {
        self.sessions.get(&id).map_or(&[], Session::output)
    }

    /// This many bytes of it have been sent.
    pub fn sent(&mut self, now: Instant, id: ControllerId, count: usize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.has_sent(now, count);
        }
    }

    /// Takes up to `most` requests that have to be done outside, in order. While others wait, controllers are not read.
    pub fn take_requests(&mut self, most: usize) -> Vec<Request> {
        let count = self.requests.len().min(most);
        let requests: Vec<_> = self.requests.drain(..count).collect();
        self.taken += requests.iter().filter(|request| request.is_frame()).count() as u64;
        requests
    }

    /// All frames that were taken are sent, except for the last `count`. A barrier waits for the frames before it.
    pub const fn done_but(&mut self, count: usize) {
        self.done = self.taken.saturating_sub(count as u64);
    }

    /// A controller asks for something outside.
    pub(crate) fn request(&mut self, request: Request) {
        self.asked += u64::from(request.is_frame());
        self.requests.push(request);
    }

    /// How many frames controllers have had sent so far.
    pub(crate) const fn asked(&self) -> u64 {
        self.asked
    }

    /// Why the connection is to be closed, or was closed by this end; `None`: it is not.
    #[must_use]
    pub fn ending(&self, id: ControllerId) -> Option<Ending> {
        self.sessions.get(&id)?.ending
    }

    /// What the controller may do.
    #[must_use]
    pub fn role(&self, id: ControllerId) -> Option<Role> {
        self.sessions.get(&id).map(|session| session.role)
    }

    /// What was not sent, since the start.
    #[must_use]
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// When [`Self::advance`] has something to do, unless workers take a version before.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let goes_on = |session: &Session| match session.waiting {
            Some(Waiting::Walk { .. }) => session.has_room(),
            // Nothing was changed before it, or workers judge by that already.
            Some(Waiting::Barrier { until, .. }) => until.is_over(&self.tables, self.done),
            None => false,
        };
        if !self.has_expired_all || self.sessions.values().any(goes_on) {
            return Instant::ZERO;
        }
        let silence = self.sessions.values().map(Session::silence_deadline);
        silence.fold(self.tables.flows.deadline(), Instant::min)
    }

    /// Timeouts, barriers, the rest of long replies, flows whose counters are final.
    pub fn advance(&mut self, now: Instant) {
        if now >= self.tables.flows.deadline() || !self.has_expired_all {
            self.has_expired_all = self.tables.expire(now, EXPIRE_EACH);
        }
        let removed = self.tables.take_removed();
        self.news.extend(removed.into_iter().map(News::FlowRemoved));
        // Before the replies to barriers: what they wait for has happened.
        self.pass_on_news();
        for session in self.sessions.values_mut() {
            session.check_silence(now);
            go_on(now, session, (&self.tables, self.done), &self.info);
        }
    }

    /// What is configured of a port, of [`port_config`](twinpath_openflow_wire::port_config); `None`: there is no such port.
    #[must_use]
    pub fn port_config(&self, port_no: u32) -> Option<u32> {
        self.tables.ports.get(&port_no).map(|entry| entry.port.config)
    }

    /// The ports that there are, and how they are. Of `config`, PORT_DOWN says how the interface is; the rest is kept here.
    pub fn set_ports(&mut self, now: Instant, ports: Vec<Port>) {
        let news = self.tables.set_ports(now, ports);
        self.budgets.retain(|port, _| self.tables.ports.contains_key(port));
        self.news.extend(news.into_iter().map(|status| News::PortStatus(Box::new(status))));
        self.pass_on_news();
    }

    fn pass_on_news(&mut self) {
        for news in self.news.drain(..) {
            let (message, wanted): (_, &dyn Fn(&Session) -> bool) = match news {
                News::FlowRemoved(flow) => {
                    let reason = flow.reason;
                    (Message::FlowRemoved(flow), &move |session| session.wants_flow_removed(reason))
                }
                News::PortStatus(status) => {
                    let reason = status.reason;
                    (Message::PortStatus(status), &move |session| session.wants_port_status(reason))
                }
            };
            for session in self.sessions.values_mut() {
                if wanted(session) && !session.send_below(NEWS_HIGH, &message) {
                    self.dropped.news_unread += 1;
                }
            }
        }
    }

    /// Sends a frame to the controllers that want it (section 7.4.1).
    pub fn packet_in(&mut self, now: Instant, punt: &Punt<'_>) {
        if !self.sessions.values().any(|session| session.wants_packet_in(punt.reason)) {
            return;
        }
        if !self.has_budget(now, punt.in_port) {
            self.dropped.packet_in_rate += 1;
            return;
        }
        let Ok(matches) = origin(punt) else { return };
        // Held at most once, for the first controller that does not get the whole frame.
        let mut held = None;
        for session in self.sessions.values_mut().filter(|session| session.wants_packet_in(punt.reason)) {
            let max_len = punt.max_len.unwrap_or(session.miss_send_len);
            let is_whole = punt.frame.len() == usize::from(punt.total_len);
            let is_cut = max_len != number::max_len::NO_BUFFER && usize::from(max_len) < punt.frame.len();
            let mut buffer_id = number::NO_BUFFER;
            if is_cut && is_whole {
                held = held.or_else(|| self.buffers.put(punt.in_port, punt.frame));
                buffer_id = held.unwrap_or(number::NO_BUFFER);
            }
            let sent = if buffer_id == number::NO_BUFFER { punt.frame.len() } else { max_len.into() };
            // A message has 65,535 bytes at most.
            let sent = sent.min(PACKET_IN_DATA_MAX);
            let message = Message::PacketIn(Box::new(PacketIn {
                buffer_id,
                total_len: punt.total_len,
                reason: punt.reason,
                table_id: punt.table_id,
                cookie: punt.cookie,
                matches: matches.clone(),
                data: punt.frame[..sent].into(),
            }));
            if !session.send_below(PACKET_IN_HIGH, &message) {
                self.dropped.packet_in_unread += 1;
            }
        }
    }

    /// Whether a port may send one more packet-in. Its burst is the budget of a tenth of a second.
    fn has_budget(&mut self, now: Instant, in_port: u32) -> bool {
        let share = Duration::from_secs(1) / self.info.packet_in_rate.max(1);
        let burst = Duration::from_millis(100).max(share);
        if !self.tables.ports.contains_key(&in_port) && self.budgets.len() >= u16::MAX.into() {
            return false;
        }
        let full_at = self.budgets.entry(in_port).or_insert(now);
        let next = (*full_at).max(now) + share;
        let has_room = next <= now + burst;
        if has_room {
            *full_at = next;
        }
        has_room
    }
}

/// What a switch knows of a frame beside its bytes (section 7.4.1).
fn origin(punt: &Punt<'_>) -> Result<Match, twinpath_openflow_wire::ErrorCode> {
    let mut fields = vec![MatchField::exact(Field::InPort, punt.in_port.into())];
    if punt.in_phy_port != punt.in_port {
        fields.push(MatchField::exact(Field::InPhyPort, punt.in_phy_port.into()));
    }
    for (field, value) in [(Field::Metadata, punt.metadata), (Field::TunnelId, punt.tunnel_id)] {
        if value != 0 {
            fields.push(MatchField::exact(field, value.into()));
        }
    }
    Match::new(fields)
}

/// Goes on with what a session waits for.
fn go_on<D: Datapath>(
    now: Instant,
    session: &mut Session,
    (tables, done): (&Tables<D>, u64),
    info: &SwitchInfo,
) {
    match session.waiting.take() {
        Some(Waiting::Barrier { xid, until }) if until.is_over(tables, done) => {
            session.send(xid, &Message::BarrierReply);
            session.note_heard(now);
        }
        Some(Waiting::Walk { xid, mut walk }) => {
            for _ in 0..STEPS_EACH {
                if !session.has_room() {
                    break;
                }
                let Step { part, is_done } = walk.step(now, tables, info);
                if let Some(part) = part {
                    session.send_part(xid, part, !is_done);
                }
                if is_done {
                    return;
                }
            }
            session.waiting = Some(Waiting::Walk { xid, walk });
        }
        waiting => session.waiting = waiting,
    }
}
