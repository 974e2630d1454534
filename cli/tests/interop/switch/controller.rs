//! A controller for tests: the other end of the switch's OpenFlow, over the same codec.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use twinpath_openflow_wire::{
    Action, FlowMod, FlowModCommand, Frames, Hello, Instruction, Match, Message, PacketOut, number,
};

use crate::rig::PATIENCE;

/// A connection to a switch that has greeted.
pub(super) struct Controller<S> {
    stream: S,
    frames: Frames,
    heard: VecDeque<Message>,
}

/// A flow that does something with every frame of table 0, with a priority above the lowest.
pub(super) fn flow(matches: Match, actions: &[Action]) -> FlowMod {
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
        matches,
        instructions: [Instruction::ApplyActions(actions.into())].into(),
    }
}

pub(super) const fn output(port: u32) -> Action {
    Action::Output { port, max_len: number::max_len::NO_BUFFER }
}

impl Controller<UnixStream> {
    /// Connects to a switch that listens there.
    pub(super) fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).expect("the switch listens"))
    }

    /// Does not read any more, and does not close either.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }
}

impl<S: Read + Write> Controller<S> {
    pub(super) fn over(stream: S) -> Self {
        let mut this = Self { stream, frames: Frames::new(), heard: VecDeque::new() };
        this.send(&Message::Hello(Hello { version: number::VERSION, versions: None }));
        this.expect("a hello", |message| matches!(message, Message::Hello(_)));
        this
    }

    pub(super) fn send(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(7, &mut bytes).expect("it fits");
        self.stream.write_all(&bytes).expect("the switch takes it");
    }

    pub(super) fn add(&mut self, flow: FlowMod) {
        self.send(&Message::FlowMod(Box::new(flow)));
    }

    /// Returns when all that was sent before is in force.
    pub(super) fn barrier(&mut self) {
        self.send(&Message::BarrierRequest);
        self.expect("a barrier's reply", |message| matches!(message, Message::BarrierReply));
    }

    pub(super) fn packet_out(&mut self, actions: &[Action], frame: &[u8]) {
        let (in_port, actions) = (number::port::CONTROLLER, actions.into());
        let packet = PacketOut { buffer_id: number::NO_BUFFER, in_port, actions, data: frame.into() };
        self.send(&Message::PacketOut(Box::new(packet)));
    }

    /// The next message of a kind; others are kept, in order, for later.
    pub(super) fn expect(&mut self, what: &str, mut wanted: impl FnMut(&Message) -> bool) -> Message {
        let begun = Instant::now();
        let mut seen = 0;
        loop {
            if let Some(at) = (seen..self.heard.len()).find(|at| wanted(&self.heard[*at])) {
                return self.heard.remove(at).expect("it is there");
            }
            seen = self.heard.len();
            assert!(begun.elapsed() < PATIENCE, "no {what} came; there was {:?}", self.heard);
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut bytes = [0; 4096];
        let len = match self.stream.read(&mut bytes) {
            Ok(0) => panic!("the switch has closed the connection"),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(error) => panic!("the connection is lost: {error}"),
        };
        let mut rest = &bytes[..len];
        let mut asked = Vec::new();
        while let Some(message) = self.frames.next(&mut rest).expect("lengths are right") {
            match Message::decode(message).expect("a message") {
                Message::EchoRequest(data) => asked.push(data),
                message => self.heard.push_back(message),
            }
        }
        asked.into_iter().for_each(|data| self.send(&Message::EchoReply(data)));
    }
}
