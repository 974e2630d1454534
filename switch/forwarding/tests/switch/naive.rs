//! Flow-mods against a list that is searched from start to end: the specification's rules (section 6.4) as plainly as can
//! be.

use twinpath_openflow_wire::{
    Action, ErrorCode, Field, FlowMod, FlowModCommand, FlowModFailed, FlowRemovedReason, Instruction, Match,
    MatchField, Message, flow_flags, number,
};

use crate::controller::{Bench, add, at, output};

#[derive(Clone)]
struct Naive {
    change: FlowMod,
    created_s: u64,
}

#[derive(Default)]
struct List {
    flows: Vec<Naive>,
    removed: Vec<(u8, u16, Match, FlowRemovedReason)>,
}

fn is_same(one: &FlowMod, two: &FlowMod) -> bool {
    let meaning =
        |change: &FlowMod| (change.table_id, change.priority, change.matches.canonical().into_owned());
    meaning(one) == meaning(two)
}

fn outputs_to(change: &FlowMod, port: u32) -> bool {
    change.instructions.iter().any(|instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => actions
            .iter()
            .any(|action| matches!(action, Action::Output { port: other, .. } if *other == port)),
        _ => false,
    })
}

impl List {
    fn remove(&mut self, reason: FlowRemovedReason, goes: impl Fn(&Naive) -> bool) {
        let (gone, stay) = self.flows.drain(..).partition(&goes);
        self.flows = stay;
        let gone: Vec<Naive> = gone;
        for Naive { change, .. } in gone {
            if change.flags & flow_flags::SEND_FLOW_REM != 0 {
                self.removed.push((change.table_id, change.priority, change.matches, reason));
            }
        }
    }

    fn expire(&mut self, now_s: u64) {
        let hard = |flow: &Naive| match flow.change.hard_timeout_s {
            0 => false,
            seconds => flow.created_s + u64::from(seconds) <= now_s,
        };
        let idle = |flow: &Naive| match flow.change.idle_timeout_s {
            0 => false,
            seconds => flow.created_s + u64::from(seconds) <= now_s,
        };
        self.remove(FlowRemovedReason::HardTimeout, hard);
        self.remove(FlowRemovedReason::IdleTimeout, idle);
    }

    fn change(&mut self, now_s: u64, change: &FlowMod) -> Result<(), ErrorCode> {
        let in_table =
            |flow: &FlowMod| change.table_id == number::table::ALL || flow.table_id == change.table_id;
        let is_strict = matches!(change.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
        let is_named = |flow: &FlowMod| {
            in_table(flow)
                && (flow.cookie ^ change.cookie) & change.cookie_mask == 0
                && if is_strict {
                    flow.priority == change.priority && flow.matches.canonical() == change.matches.canonical()
                } else {
                    change.matches.includes(&flow.matches)
                }
        };
        match change.command {
            FlowModCommand::Add => {
                let overlaps = self.flows.iter().any(|flow| {
                    flow.change.table_id == change.table_id
                        && flow.change.priority == change.priority
                        && flow.change.matches.overlaps(&change.matches)
                });
                if change.flags & flow_flags::CHECK_OVERLAP != 0 && overlaps {
                    return Err(FlowModFailed::Overlap.into());
                }
                self.flows.retain(|flow| !is_same(&flow.change, change));
                self.flows.push(Naive { change: change.clone(), created_s: now_s });
            }
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                for flow in self.flows.iter_mut().filter(|flow| is_named(&flow.change)) {
                    flow.change.instructions.clone_from(&change.instructions);
                }
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let out_port = change.out_port;
                self.remove(FlowRemovedReason::Delete, |flow| {
                    is_named(&flow.change)
                        && (out_port == number::port::ANY || outputs_to(&flow.change, out_port))
                });
            }
        }
        Ok(())
    }
}

/// Few fields, values and masks, so that flow-mods often meet.
fn some_match(random: &mut fastrand::Rng) -> Match {
    let mut fields = Vec::new();
    if random.bool() {
        fields.push(MatchField::exact(Field::InPort, random.u128(1..3)));
    }
    if random.u8(..3) > 0 {
        fields.push(MatchField::exact(Field::EthType, 0x800));
        let mask = [None, Some(0xffff_0000), Some(0xff00_0000), Some(0)][random.usize(..4)];
        let value = (0x0a00_0000 | random.u128(..3) << 16 | random.u128(..2)) & mask.unwrap_or(u128::MAX);
        fields.push(MatchField { field: Field::Ipv4Dst, value, mask });
    }
    random.shuffle(&mut fields);
    // What the address needs is in front of it.
    let needed = fields.iter().position(|field| field.field == Field::EthType);
    if let Some(at) = needed {
        fields[..=at].rotate_right(1);
    }
    Match::new(fields).expect("a match")
}

fn some_change(random: &mut fastrand::Rng) -> FlowMod {
    let command = match random.u8(..10) {
        0..6 => FlowModCommand::Add,
        6 => FlowModCommand::Modify,
        7 => FlowModCommand::ModifyStrict,
        8 => FlowModCommand::Delete,
        _ => FlowModCommand::DeleteStrict,
    };
    let deletes = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let flags = [0, 1, 1, 2, 3, 4][random.usize(..6)];
    FlowMod {
        cookie: random.u64(..4),
        cookie_mask: if command == FlowModCommand::Add { 0 } else { [0, 0, 1, 3][random.usize(..4)] },
        table_id: if deletes && random.bool() { number::table::ALL } else { random.u8(..2) },
        command,
        idle_timeout_s: [0, 0, 3, 5][random.usize(..4)],
        hard_timeout_s: [0, 0, 4, 6][random.usize(..4)],
        priority: random.u16(..2),
        out_port: if random.bool() { number::port::ANY } else { random.u32(1..3) },
        flags,
        matches: some_match(random),
        instructions: output(random.u32(1..3)),
        ..add()
    }
}

#[test]
fn flow_mods_do_what_a_plain_list_does() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut bench, mut list) = (Bench::new(), List::default());
        let id = bench.controller();
        let mut now_s = 1;
        for step in 0..120 {
            let mut heard = Vec::new();
            let seconds = [0, 0, 0, 1, 2, 3][random.usize(..6)];
            if seconds > 0 {
                now_s += seconds;
                // A timeout is never early, and at most a tick of the wheel late. So flows that are due now are not
                // compared.
                bench.now = at(now_s as f64 - 0.5);
                list.expire(now_s - 1);
                heard = bench.settle(id);
                bench.now = at(now_s as f64);
                bench.say(id, &Message::EchoReply(Box::default()));
            }
            let change = some_change(&mut random);
            let expected = list.change(now_s, &change);
            heard.extend(bench.ask(id, &Message::FlowMod(Box::new(change.clone()))));
            let mut removed = Vec::new();
            let mut done = Ok(());
            for message in heard {
                match message {
                    Message::FlowRemoved(flow) => {
                        removed.push((flow.table_id, flow.priority, flow.matches.clone(), flow.reason));
                    }
                    Message::Error(error) => done = Err(error.error().expect("a known error")),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(done, expected, "seed {seed}, step {step}: {change:?}");
            let sorted = |mut list: Vec<(u8, u16, Match, FlowRemovedReason)>| {
                list.sort_by_key(|(table, priority, matches, _)| {
                    (*table, *priority, matches.fields().to_vec())
                });
                list
            };
            let expected = sorted(std::mem::take(&mut list.removed));
            assert_eq!(sorted(removed), expected, "seed {seed}, step {step}: {change:?}");
            let flows = bench.flows(id);
            let mut naive: Vec<_> = list.flows.iter().map(|flow| &flow.change).collect();
            naive.sort_by_key(|flow| (flow.table_id, flow.priority, flow.matches.fields().to_vec()));
            assert_eq!(flows.len(), naive.len(), "seed {seed}, step {step}: {change:?}");
            for (flow, naive) in flows.iter().zip(naive) {
                assert_eq!((&flow.matches, &flow.instructions), (&naive.matches, &naive.instructions));
                assert_eq!(
                    (flow.cookie, flow.flags),
                    (naive.cookie, naive.flags),
                    "seed {seed}, step {step}"
                );
            }
            assert_eq!(bench.switch.datapath().flows.len(), flows.len());
        }
    }
}
