use std::net::{IpAddr, Ipv4Addr};

use twinpath_serve::ServeCommand;
use twinpath_stack::egress::{KernelReason, Update};
use twinpath_worker::idle::Mode;
use twinpath_worker::mailbox::{Receiver, mailbox};

use super::*;

fn outbox() -> (Outbox<ServeCommand>, Receiver<Command<ServeCommand>>) {
    let (sender, receiver) = mailbox(4).expect("eventfd");
    (Outbox::new(sender), receiver)
}

fn peer(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

fn learn(number: u32) -> Command<ServeCommand> {
    let answer = Err(KernelReason::Unresolved);
    Command::Engine(ServeCommand::Egress(Update::Learn { peer: peer(number), answer }))
}

fn addresses(number: u32) -> Command<ServeCommand> {
    Command::Engine(ServeCommand::Addresses([peer(number)].into()))
}

fn describe(command: &Command<ServeCommand>) -> String {
    match command {
        Command::Detach { ifindex } => format!("detach {ifindex}"),
        Command::SetMode(mode) => format!("mode {}", mode.name()),
        Command::Engine(ServeCommand::Addresses(addresses)) => format!("addresses {}", addresses[0]),
        Command::Engine(ServeCommand::Egress(Update::Clear)) => "clear".to_owned(),
        Command::Engine(ServeCommand::Egress(update)) => format!("peer {}", update.peer().expect("one")),
        Command::Engine(ServeCommand::Begin) => "begin".to_owned(),
        _ => "another".to_owned(),
    }
}

/// The commands that arrive when the worker reads again.
fn read(outbox: &mut Outbox<ServeCommand>, receiver: &mut Receiver<Command<ServeCommand>>) -> Vec<String> {
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
    outbox.tell(Command::Engine(ServeCommand::Begin));
    assert_eq!(outbox.delayed.get(), 7);
    let first = ["peer 10.0.0.0", "peer 10.0.0.1", "peer 10.0.0.2", "peer 10.0.0.3"];
    // Only the last command about addresses, and about the mode, has a meaning.
    let then = ["detach 3", "detach 4", "addresses 10.0.0.2", "mode interrupt", "begin"];
    assert_eq!(read(&mut outbox, &mut receiver), [&first[..], &then[..]].concat());
    outbox.tell(learn(9));
    assert_eq!((read(&mut outbox, &mut receiver), outbox.delayed.get()), (vec!["peer 10.0.0.9".into()], 7));
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
    assert_eq!(arrived, ["peer 10.0.0.4", "peer 10.0.0.5", "peer 10.0.0.6"]);
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
    assert_eq!(&arrived[arrived.len() - 2..], ["peer 10.0.78.31", "addresses 10.0.78.31"]);
}
