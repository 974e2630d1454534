//! The twin of controllers: each message with each field wrong, answered as Open vSwitch answers it, or as differences.rs says why not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use twinpath_forwarding::openflow::ControllerId;
use twinpath_openflow_wire::{Frames, Header, MessageType};
use twinpath_test_fuzz::seed::wrong::{
    Answers, Case, Switch, ask, committed, differences, greet, greetings, known, messages,
};

use crate::controller::Bench;

/// A bench with one controller.
struct Twin {
    bench: Bench,
    id: Option<ControllerId>,
}

impl Twin {
    fn new() -> Self {
        Self { bench: Bench::new(), id: None }
    }
}

impl Switch for Twin {
    fn connect(&mut self) {
        if let Some(id) = self.id.take() {
            self.bench.switch.disconnect(id);
        }
        self.id = self.bench.switch.connect(self.bench.now);
    }

    fn exchange(&mut self, mut bytes: &[u8], barrier: u32) -> (Vec<Vec<u8>>, bool) {
        let id = self.id.expect("connected");
        let Bench { switch, now } = &mut self.bench;
        let (mut output, mut heard) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            bytes = &bytes[switch.receive(*now, id, bytes)..];
            switch.datapath().take_all();
            switch.take_requests(usize::MAX);
            switch.done_but(0);
            switch.advance(*now);
            output.extend(switch.output(id));
            switch.sent(*now, id, usize::MAX);
            if bytes.is_empty() && switch.deadline() > *now {
                break;
            }
        }
        let (mut frames, mut rest) = (Frames::new(), output.as_slice());
        while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
            heard.push(message.to_vec());
        }
        let is_open = !switch.is_over(id);
        let is_reply = |header: Header| {
            header.xid == barrier && header.message_type == MessageType::BarrierReply.number()
        };
        let is_answered = heard.iter().filter_map(|message| Header::of(message)).any(is_reply);
        assert_eq!(is_answered, is_open, "the barrier is answered, or the connection closed");
        (heard, is_open)
    }
}

/// OpenFlow 1.3.5, chapters 6 and 7, and section 7.4.4; first messages: section 6.3.1.
#[test]
fn each_message_with_each_field_wrong_is_answered_as_open_vswitch_does() {
    let (table, mut wrong, mut used) = (committed(), BTreeMap::<String, String>::new(), BTreeSet::new());
    let mut note = |case: Case, ours: Answers| {
        let Some(theirs) = table.get(&(case.field.clone(), case.value.clone())) else {
            wrong.entry(case.field).or_default().push_str(" (not in the table)");
            return;
        };
        if ours == *theirs {
            return;
        }
        if let Some(difference) = known(&case.field, &case.value, theirs, &ours) {
            used.insert(std::ptr::from_ref(difference));
        } else {
            let line = wrong.entry(case.field).or_default();
            let _ = write!(line, " {}: {}, Open vSwitch {};", case.value, ours.0, theirs.0);
        }
    };
    let (mut twin, mut is_open) = (Twin::new(), false);
    for case in messages().iter().flat_map(|layout| layout.cases()) {
        let answers = ask(&mut twin, &mut is_open, &case);
        note(case, answers);
    }
    for case in greetings().iter().flat_map(|layout| layout.cases()) {
        let answers = greet(&mut twin, &case);
        note(case, answers);
    }
    let wrong: Vec<_> = wrong.iter().map(|(field, line)| format!("{field}{line}")).collect();
    assert!(wrong.is_empty(), "{} fields:\n{}", wrong.len(), wrong.join("\n"));
    let unused: Vec<_> = differences().iter().filter(|it| !used.contains(&std::ptr::from_ref(*it))).collect();
    assert!(unused.is_empty(), "these differ no more: {unused:#?}");
}
