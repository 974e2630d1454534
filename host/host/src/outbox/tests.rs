use twinpath_worker::idle::Mode;
use twinpath_worker::mailbox::{Receiver, mailbox};

use super::*;

/// Commands like those of a serving engine: values that supersede one another, by peer or all of them, and
/// one that stays.
enum Told {
    Peer(u32),
    Addresses(u32),
    Clear,
    Begin,
    Hint,
}

impl EngineCommand for Told {
    fn voids(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Clear, Self::Peer(_)) | (Self::Addresses(_), Self::Addresses(_)) => true,
            (Self::Peer(peer), Self::Peer(earlier)) => peer == earlier,
            _ => false,
        }
    }

    fn ask_again() -> Option<Self> {
        Some(Self::Clear)
    }

    fn is_hint(&self) -> bool {
        matches!(self, Self::Hint)
    }
}

fn outbox() -> (Outbox<Told>, Receiver<Command<Told>>) {
    let (sender, receiver) = mailbox(4).expect("eventfd");
    (Outbox::new(sender), receiver)
}

fn learn(number: u32) -> Command<Told> {
    Command::Engine(Told::Peer(number))
}

fn addresses(number: u32) -> Command<Told> {
    Command::Engine(Told::Addresses(number))
}

fn describe(command: &Command<Told>) -> String {
    match command {
        Command::Detach { ifindex } => format!("detach {ifindex}"),
        Command::SetMode(mode) => format!("mode {}", mode.name()),
        Command::Engine(Told::Addresses(number)) => format!("addresses {number}"),
        Command::Engine(Told::Clear) => "clear".to_owned(),
        Command::Engine(Told::Peer(number)) => format!("peer {number}"),
        Command::Engine(Told::Begin) => "begin".to_owned(),
        Command::Engine(Told::Hint) => "hint".to_owned(),
        _ => "another".to_owned(),
    }
}

/// The commands that arrive when the worker reads again.
fn read(outbox: &mut Outbox<Told>, receiver: &mut Receiver<Command<Told>>) -> Vec<String> {
    let mut arrived = Vec::new();
    loop {
        let flushed = outbox.flush();
        while let Some(command) = receiver.take() {
            arrived.push(describe(&command));
        }
        if flushed {
            return arrived;
        }
    }
}

#[test]
fn what_a_full_mailbox_has_no_room_for_arrives_in_order_once_it_is_read() {
    let (mut outbox, mut receiver) = outbox();
    (0..4).for_each(|number| outbox.tell(learn(number)));
    assert_eq!(outbox.delayed.get(), 0);
    outbox.tell(Command::Detach { ifindex: 3 });
    outbox.tell(addresses(1));
    outbox.tell(Command::SetMode(Mode::Poll));
    outbox.tell(Command::Detach { ifindex: 4 });
    outbox.tell(addresses(2));
    outbox.tell(Command::SetMode(Mode::Interrupt));
    outbox.tell(Command::Engine(Told::Begin));
    assert_eq!(outbox.delayed.get(), 7);
    let first = ["peer 0", "peer 1", "peer 2", "peer 3"];
    // Only the last command about addresses, and about the mode, matters.
    let then = ["detach 3", "detach 4", "addresses 2", "mode interrupt", "begin"];
    assert_eq!(read(&mut outbox, &mut receiver), [&first[..], &then[..]].concat());
    outbox.tell(learn(9));
    assert_eq!((read(&mut outbox, &mut receiver), outbox.delayed.get()), (vec!["peer 9".into()], 7));
}

#[test]
fn a_command_that_finds_room_never_overtakes_one_that_waits() {
    let (mut outbox, mut receiver) = outbox();
    (0..6).for_each(|number| outbox.tell(learn(number)));
    for _ in 0..4 {
        assert!(receiver.take().is_some());
    }
    outbox.tell(learn(6));
    let arrived = read(&mut outbox, &mut receiver);
    assert_eq!(arrived, ["peer 4", "peer 5", "peer 6"]);
}

#[test]
fn what_waits_for_a_worker_that_never_reads_is_bounded() {
    let (mut outbox, mut receiver) = outbox();
    for number in 0..20_000 {
        outbox.tell(learn(number));
        outbox.tell(addresses(number));
    }
    assert!(outbox.waiting.len() <= WAITING_MAX + 1, "{}", outbox.waiting.len());
    let arrived = read(&mut outbox, &mut receiver);
    // The worker forgets all peers, so it asks again about those whose commands were dropped.
    let cleared = arrived.iter().position(|it| it == "clear").expect("said");
    assert!(arrived[4..cleared].is_empty(), "nothing void is said");
    assert_eq!(arrived.iter().filter(|it| it.starts_with("addresses")).count(), 3);
    assert_eq!(&arrived[arrived.len() - 2..], ["peer 19999", "addresses 19999"]);
}

#[test]
fn hints_are_dropped_while_the_mailbox_is_full_and_displace_nothing() {
    let (mut outbox, mut receiver) = outbox();
    outbox.tell(Command::Engine(Told::Hint));
    (0..4).for_each(|number| outbox.tell(learn(number)));
    for _ in 0..2 * WAITING_MAX {
        outbox.tell(Command::Engine(Told::Hint));
    }
    assert_eq!((outbox.waiting.len(), outbox.delayed.get()), (1, 1));
    assert_eq!(read(&mut outbox, &mut receiver), ["hint", "peer 0", "peer 1", "peer 2", "peer 3"]);
}
