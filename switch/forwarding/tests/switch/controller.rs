//! A switch with a datapath of maps, and controllers that talk to it.

use twinpath_forwarding::openflow::{ControllerId, OpenFlowSwitch, SwitchInfo};
use twinpath_openflow_wire::{
    Action, Desc, ErrorCode, Field, FlowMod, FlowModCommand, FlowStats, FlowStatsRequest, Frames, Hello,
    Instruction, Match, MatchField, Message, Multipart, MultipartReply, MultipartRequest, Port, number,
    port_state,
};
use twinpath_test_fuzz::seed::datapath::Maps;
use twinpath_time::{Duration, Instant};

pub(crate) const FLOWS_MAX: u32 = 5000;

pub(crate) struct Bench {
    pub(crate) switch: OpenFlowSwitch<Maps>,
    pub(crate) now: Instant,
}

pub(crate) fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

pub(crate) fn port(port_no: u32) -> Port {
    Port { port_no, hw_addr: [2, 0, 0, 0, 0, port_no as u8], state: port_state::LIVE, ..Port::default() }
}

impl Bench {
    /// A switch with three ports.
    pub(crate) fn new() -> Self {
        let desc = Desc { manufacturer: "twinpath".to_owned(), ..Desc::default() };
        let info = SwitchInfo { datapath_id: 7, desc, flows_max: FLOWS_MAX, packet_in_rate: 1000 };
        let mut switch = OpenFlowSwitch::new(info, Maps::default());
        switch.set_ports(at(1.0), vec![port(1), port(2), port(3)]);
        Self { switch, now: at(1.0) }
    }

    /// A controller that has said hello.
    pub(crate) fn controller(&mut self) -> ControllerId {
        let id = self.switch.connect(self.now).expect("there is room");
        self.say(id, &Message::Hello(Hello { version: 4, versions: None }));
        assert!(matches!(self.heard(id)[..], [(_, Message::Hello(_))]));
        assert!(self.switch.is_open(id));
        id
    }

    /// Sends a message with transaction number 9. All of it must be taken.
    pub(crate) fn say(&mut self, id: ControllerId, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(9, &mut bytes).expect("it is short");
        assert_eq!(self.switch.receive(self.now, id, &bytes), bytes.len());
    }

    /// What has come for a controller, with transaction numbers.
    pub(crate) fn heard(&mut self, id: ControllerId) -> Vec<(u32, Message)> {
        let bytes = self.switch.output(id).to_vec();
        self.switch.sent(self.now, id, bytes.len());
        let (mut frames, mut rest, mut messages) = (Frames::new(), bytes.as_slice(), Vec::new());
        while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
            let xid = u32::from_be_bytes(message[4..8].try_into().expect("four bytes"));
            messages.push((xid, Message::decode(message).expect("a message")));
        }
        assert!(!frames.is_unfinished());
        messages
    }

    /// Sends a message; its answers, once everything is in force and done.
    pub(crate) fn ask(&mut self, id: ControllerId, message: &Message) -> Vec<Message> {
        self.say(id, message);
        self.settle(id)
    }

    pub(crate) fn settle(&mut self, id: ControllerId) -> Vec<Message> {
        let mut heard = Vec::new();
        loop {
            // The second time what the first one has taken out is gone.
            for _ in 0..2 {
                self.switch.datapath().take_all();
                self.switch.advance(self.now);
            }
            heard.extend(self.heard(id).into_iter().map(|(_, message)| message));
            if self.switch.deadline() > self.now {
                return heard;
            }
        }
    }

    /// Sends a message that is not answered unless it is wrong.
    pub(crate) fn done(&mut self, id: ControllerId, message: &Message) -> Result<(), ErrorCode> {
        match self.ask(id, message).as_slice() {
            [] => Ok(()),
            [Message::Error(error)] => Err(error.error().expect("a known error")),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn flow_mod(&mut self, id: ControllerId, change: FlowMod) -> Result<(), ErrorCode> {
        self.done(id, &Message::FlowMod(Box::new(change)))
    }

    /// The answer to a question, all parts together.
    pub(crate) fn question(&mut self, id: ControllerId, body: MultipartRequest) -> Vec<MultipartReply> {
        let asked = Message::MultipartRequest(Box::new(Multipart { more: false, body }));
        let parts: Vec<_> = self
            .ask(id, &asked)
            .into_iter()
            .map(|message| match message {
                Message::MultipartReply(part) => *part,
                other => panic!("{other:?}"),
            })
            .collect();
        let (last, others) = parts.split_last().expect("an answer");
        assert!(!last.more && others.iter().all(|part| part.more));
        parts.into_iter().map(|part| part.body).collect()
    }

    /// All flows, by table, priority and match.
    pub(crate) fn flows(&mut self, id: ControllerId) -> Vec<FlowStats> {
        let parts = self.question(id, MultipartRequest::Flow(every_flow()));
        let mut flows: Vec<_> = parts
            .into_iter()
            .flat_map(|part| match part {
                MultipartReply::Flow(flows) => flows,
                other => panic!("{other:?}"),
            })
            .collect();
        flows.sort_by_key(|flow| (flow.table_id, flow.priority, flow.matches.fields().to_vec()));
        flows
    }
}

pub(crate) fn every_flow() -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: number::table::ALL,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        cookie: 0,
        cookie_mask: 0,
        matches: Match::default(),
    }
}

pub(crate) fn output(port: u32) -> Box<[Instruction]> {
    [Instruction::ApplyActions([Action::Output { port, max_len: 0 }].into())].into()
}

/// A flow-mod that adds a flow for all frames to port 1.
pub(crate) fn add() -> FlowMod {
    FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table_id: 0,
        command: FlowModCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 100,
        buffer_id: number::NO_BUFFER,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        flags: 0,
        matches: Match::default(),
        instructions: output(1),
    }
}

pub(crate) fn from_port(number: u32) -> Match {
    Match::new([MatchField::exact(Field::InPort, number.into())]).expect("a match")
}
