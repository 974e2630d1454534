//! Sequences that went wrong once, or that a reader would ask about. `test/sim/tests/lifecycle` has all others.

use super::*;

const LIMITS: Limits = Limits { drain: Duration::from_secs(5), take_over_patience: Duration::from_secs(30) };

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// An instance that has started, with programs attached.
fn serving(origin: Origin) -> Lifecycle {
    let mut machine = Lifecycle::new(origin, LIMITS, false);
    let mut next = machine.handle(at(0), Event::Start);
    while let Some(Action::HoldPorts | Action::StartWorkers { .. } | Action::Attach | Action::AwaitSteering) =
        next.first()
    {
        next = machine.handle(at(0), Event::Outcome(Outcome::Done));
    }
    assert_eq!(next, [Action::Register, Action::WatchSockets]);
    assert!(machine.is_attached());
    machine
}

/// A new instance gets the sockets.
fn give_sockets(machine: &mut Lifecycle, id: TakerId) -> Vec<Action> {
    assert_eq!(machine.handle(at(1), Event::SocketsAsked), [Action::GiveSockets(id)]);
    machine.handle(at(1), Event::Outcome(Outcome::Done))
}

/// A new instance may attach.
fn put_aside(machine: &mut Lifecycle, id: TakerId) {
    assert_eq!(give_sockets(machine, id), []);
    let detach = [Action::Detach(Detached::TakenOver)];
    assert_eq!(machine.handle(at(2), Event::Heard(id, Step::Aside)), detach);
    assert_eq!(machine.handle(at(3), Event::QueuesReturned), [Action::Agree(id)]);
}

#[test]
fn a_new_instance_attaches_once_connections_have_moved_also_if_the_programs_were_off_before() {
    let mut machine = serving(Origin::Fresh);
    assert_eq!(machine.handle(at(0), Event::Bypassed(true)), [Action::Detach(Detached::Withheld)]);
    assert_eq!(machine.handle(at(0), Event::QueuesReturned), []);
    put_aside(&mut machine, 0);
}

#[test]
fn a_new_instance_that_another_one_replaces_is_told() {
    let mut machine = serving(Origin::Fresh);
    assert_eq!(give_sockets(&mut machine, 0), []);
    assert_eq!(give_sockets(&mut machine, 1), [Action::GiveUp(0, TakerFailure::Replaced)]);
    assert_eq!(machine.handle(at(2), Event::Heard(0, Step::Aside)), [], "it is heard no more");
    assert!(machine.is_attached());
}

#[test]
fn a_new_instance_that_says_nothing_is_given_up_and_changes_nothing() {
    let mut machine = serving(Origin::Fresh);
    assert_eq!(give_sockets(&mut machine, 0), []);
    let silent_at = at(1) + LIMITS.take_over_patience;
    assert_eq!(machine.deadline(), silent_at);
    let given_up = [Action::GiveUp(0, TakerFailure::Late), Action::NoTaker];
    assert_eq!(machine.handle(silent_at, Event::Deadline), given_up);
    assert!(machine.is_attached() && !machine.is_given_up(0));
}

#[test]
fn an_instance_that_has_handed_over_never_attaches_again() {
    let mut machine = serving(Origin::Fresh);
    put_aside(&mut machine, 0);
    let over = machine.handle(at(4), Event::Heard(0, Step::Serving));
    assert_eq!(over.last(), Some(&Action::Drain { handed_over: true }));
    let begun = Outcome::Draining { services: 1, listening: 1 };
    assert_eq!(machine.handle(at(4), Event::Outcome(begun)), []);
    assert_eq!(machine.handle(at(5), Event::ListenersClosed), [Action::Agree(0)]);
    assert_eq!(machine.handle(at(6), Event::InterfaceGone), [Action::ReleaseFrames]);
    assert_eq!(machine.handle(at(7), Event::InterfaceBack), []);
}

#[test]
fn a_new_instance_that_is_late_is_waited_for_until_it_has_gone() {
    let mut machine = serving(Origin::Fresh);
    put_aside(&mut machine, 0);
    assert_eq!(machine.deadline(), at(2) + LIMITS.take_over_patience);
    let given_up = [Action::GiveUp(0, TakerFailure::Late), Action::NoTaker];
    assert_eq!(machine.handle(at(30_002), Event::Deadline), given_up);
    assert!(machine.is_given_up(0));
    assert_eq!(machine.handle(at(30_500), Event::TakerGone(0)), [Action::ChoosePath]);
}

#[test]
fn a_new_instance_that_is_late_and_hangs_is_not_waited_for_for_ever() {
    let mut machine = serving(Origin::Fresh);
    put_aside(&mut machine, 0);
    let _ = machine.handle(at(30_002), Event::Deadline);
    assert_eq!(machine.deadline(), at(30_002) + GIVEN_UP_PATIENCE);
    assert_eq!(machine.handle(machine.deadline(), Event::Deadline), [Action::ChoosePath]);
}

#[test]
fn what_removed_services_claim_comes_off_before_they_leave() {
    let mut machine = serving(Origin::Fresh);
    assert_eq!(machine.handle(at(1), Event::ReloadAsked), [Action::ReadConfiguration]);
    let mut done = |expected: &[Action]| {
        assert_eq!(machine.handle(at(1), Event::Outcome(Outcome::Done)), expected);
    };
    done(&[Action::Stage]);
    done(&[Action::Prepare]);
    done(&[Action::Adopt, Action::ChangeClaims]);
    let actions = machine.handle(at(1), Event::Outcome(Outcome::Nothing));
    assert_eq!(actions, [Action::Detach(Detached::NothingClaimed), Action::Switch]);
}

#[test]
fn programs_come_off_once_the_last_service_with_a_claim_has_left() {
    let mut machine = serving(Origin::Fresh);
    let detach = [Action::Detach(Detached::NothingClaimed)];
    assert_eq!(machine.handle(at(1), Event::NothingClaimed), detach);
    assert_eq!(machine.handle(at(2), Event::QueuesReturned), [], "until a reload has claims");
    assert_eq!(machine.handle(at(3), Event::NothingClaimed), []);
}

#[test]
fn connections_wait_only_for_an_attachment_that_follows_at_once() {
    let brief = [Detached::QueuesChanged, Detached::OtherPrograms];
    let long = [
        Detached::InterfaceGone,
        Detached::TakenOver,
        Detached::Withheld,
        Detached::NothingClaimed,
        Detached::Ending,
    ];
    assert!(brief.iter().all(|why| why.is_brief()) && !long.iter().any(|why| why.is_brief()));
}

#[test]
fn claims_that_come_while_the_former_queues_are_out_are_attached_later() {
    let mut machine = serving(Origin::Fresh);
    let reload = |machine: &mut Lifecycle, outcomes: &[Outcome]| {
        let mut last = machine.handle(at(1), Event::ReloadAsked);
        for outcome in outcomes {
            last = machine.handle(at(1), Event::Outcome(outcome.clone()));
        }
        last
    };
    let left = Outcome::Leaving { parts: Vec::new(), workers: 1 };
    let done = Outcome::Done;
    reload(&mut machine, &[done.clone(), done.clone(), done.clone(), Outcome::Nothing, left.clone()]);
    // The workers have not returned their queues when claims come again.
    reload(&mut machine, &[done.clone(), done.clone(), done, left]);
    assert_eq!(machine.handle(at(2), Event::QueuesReturned), [Action::ChoosePath]);
}

#[test]
fn a_new_instance_whose_last_message_is_not_answered_serves() {
    let mut machine = Lifecycle::new(Origin::TakesOver, LIMITS, false);
    let mut next = machine.handle(at(0), Event::Start);
    while next != [Action::Say(Step::Serving)] {
        next = machine.handle(at(0), Event::Outcome(Outcome::Done));
    }
    let actions = machine.handle(at(1), Event::Outcome(Outcome::Silence));
    assert_eq!(actions, [Action::Register, Action::WatchSockets]);
}

#[test]
fn a_standby_does_not_serve_beside_an_instance_that_takes_over() {
    let mut machine = Lifecycle::new(Origin::StandsBy, LIMITS, false);
    let mut next = machine.handle(at(0), Event::Start);
    while next != [Action::WatchFirst] {
        next = machine.handle(at(0), Event::Outcome(Outcome::Done));
    }
    assert_eq!(machine.handle(at(1), Event::First(First::Stuck)), [Action::ServeSockets(true)]);
    let _ = machine.handle(at(2), Event::First(First::Succeeded));
    assert!(machine.is_ended());
}

#[test]
fn connections_that_are_closed_at_the_end_of_a_drain_get_time_while_they_become_fewer() {
    let mut machine = serving(Origin::Fresh);
    let _ = machine.handle(at(0), Event::StopAsked(None));
    let begun = Outcome::Draining { services: 1, listening: 1 };
    assert_eq!(machine.handle(at(0), Event::Outcome(begun)), []);
    assert_eq!(machine.handle(at(1), Event::CutGoesOn), [], "none is closed yet");
    let cut = machine.deadline();
    assert_eq!((cut, machine.handle(cut, Event::Deadline)), (at(0) + LIMITS.drain, vec![Action::Cut]));
    let mut now = machine.deadline();
    while now < cut + CUT_MAX {
        assert_eq!(machine.handle(now, Event::CutGoesOn), []);
        assert_eq!(machine.deadline(), (now + CUT_PATIENCE).min(cut + CUT_MAX));
        now = machine.deadline();
    }
    // It has an end.
    assert_ne!(machine.handle(now, Event::CutGoesOn), []);
    assert!(machine.is_ended());
}

#[test]
fn a_drain_ends_with_the_last_service_or_at_its_limit() {
    for late in [false, true] {
        let mut machine = serving(Origin::Fresh);
        let asked = machine.handle(at(0), Event::StopAsked(None));
        assert_eq!(asked.last(), Some(&Action::Drain { handed_over: false }));
        let begun = Outcome::Draining { services: 1, listening: 1 };
        assert_eq!(machine.handle(at(0), Event::Outcome(begun)), []);
        let end = if late {
            assert_eq!(machine.handle(machine.deadline(), Event::Deadline), [Action::Cut]);
            machine.handle(machine.deadline(), Event::Deadline)
        } else {
            machine.handle(at(1), Event::ServiceDrained)
        };
        let detach = Action::Detach(Detached::Ending);
        let stop = Action::StopWorkers { patient: !late };
        let all = [Action::TellEnd, Action::Unregister, detach, stop, Action::LetGo, Action::Disconnect];
        assert_eq!(end, all);
        assert_eq!(machine.deadline(), Instant::NEVER);
    }
}
