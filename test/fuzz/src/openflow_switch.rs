//! Fuzzes an OpenFlow switch: whatever controllers send, however it is divided, every answer is a message, the datapath has
//! what the switch says that it has, and memory is bounded.

use twinpath_forwarding::openflow::{ControllerId, OpenFlowSwitch, SwitchInfo};
use twinpath_openflow_wire::{Desc, Frames, Hello, Message, MultipartReply, Port};
use twinpath_time::{Duration, Instant};

use crate::fuzz;
use crate::seed::datapath::Maps;
use crate::seed::openflow::{Choices, every_flow, message};

/// More than a long reply, its last part and an error are.
const OUTPUT_MAX: usize = 1 << 20;

fn switch(now: Instant) -> OpenFlowSwitch<Maps> {
    let info = SwitchInfo { datapath_id: 1, desc: Desc::default(), flows_max: 40, packet_in_rate: 10 };
    let mut switch = OpenFlowSwitch::new(info, Maps::default());
    let port = |port_no| Port { port_no, ..Port::default() };
    switch.set_ports(now, (1..5).map(port).collect());
    switch
}

/// Takes what there is for a controller; every byte is part of a message.
fn read(switch: &mut OpenFlowSwitch<Maps>, now: Instant, id: ControllerId) -> Vec<Message> {
    let bytes = switch.output(id).to_vec();
    assert!(bytes.len() < OUTPUT_MAX);
    switch.sent(now, id, bytes.len());
    let (mut frames, mut rest, mut messages) = (Frames::new(), bytes.as_slice(), Vec::new());
    while let Some(message) = frames.next(&mut rest).expect("the switch writes lengths") {
        messages.push(Message::decode(message).expect("the switch writes messages"));
    }
    assert!(!frames.is_unfinished());
    messages
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(1, &mut bytes).expect("generated messages are short");
    bytes
}

/// Sends bytes in pieces, with the workers following now and then.
fn send(switch: &mut OpenFlowSwitch<Maps>, now: Instant, id: ControllerId, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = &rest[switch.receive(now, id, rest)..];
            switch.datapath().take_all();
            switch.advance(now);
            switch.take_requests(usize::MAX);
            switch.done_but(0);
            read(switch, now, id);
        }
    }
}

#[test]
fn controllers() {
    fuzz!("openflow_switch__controllers", |input: &[u8]| {
        let Some((&[piece, damage], input)) = input.split_first_chunk::<2>() else { return };
        let mut now = Instant::from_nanos(1 << 40);
        let mut switch = switch(now);
        let hello = encoded(&Message::Hello(Hello { version: 4, versions: None }));
        let mut ids = [0, 1].map(|_| switch.connect(now).expect("there are two"));
        for id in ids {
            send(&mut switch, now, id, &hello, usize::MAX);
        }
        for (number, choices) in input.chunks(48).enumerate() {
            let at = number % 2;
            let mut bytes = encoded(&message(&mut Choices::new(choices)));
            if damage > 0 && number % usize::from(damage) == 0 {
                let place = number * 7 % bytes.len();
                bytes[place] ^= damage;
            }
            send(&mut switch, now, ids[at], &bytes, usize::from(piece) + 1);
            if switch.is_over(ids[at]) {
                switch.disconnect(ids[at]);
                ids[at] = switch.connect(now).expect("there is one");
                send(&mut switch, now, ids[at], &hello, usize::MAX);
            }
            now += Duration::from_millis(u64::from(choices[0]));
        }
        // A new controller sees as many flows as the datapath has.
        let id = switch.connect(now).expect("there are three");
        send(&mut switch, now, id, &hello, usize::MAX);
        let asked = encoded(&every_flow());
        assert_eq!(switch.receive(now, id, &asked), asked.len());
        let mut flows = 0;
        while switch.deadline() <= now {
            switch.datapath().take_all();
            switch.advance(now);
            for message in read(&mut switch, now, id) {
                if let Message::MultipartReply(part) = message
                    && let MultipartReply::Flow(part) = part.body
                {
                    flows += part.len();
                }
            }
        }
        assert_eq!(switch.datapath().flows.len(), flows);
        assert!(flows <= 40);
    });
}
