//! A thread of an instance that panics ends the process; one that is caught does not.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test says what it needs, and panics on purpose")]

use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_port::PortId;
use twinpath_time::Instant;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::place::{self, Placement};
use twinpath_worker::thread::panics::{EXIT_CODE, caught, end_process_on_panic};
use twinpath_worker::{Engine, Io, Worker, WorkerConfig, WorkerCounters};

/// Panics when it is told to, and else survives what it calls.
struct Dies;

impl Engine for Dies {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, _: &mut Io<'_, ()>) -> Result<(), Errno> {
        for round in 0..3 {
            let why = caught(|| panic!("caught {round}")).unwrap_err();
            assert!(why.starts_with(&format!("`caught {round}` at core/worker/tests/panics.rs:")), "{why}");
        }
        assert_eq!(caught(|| 7), Ok(7));
        Ok(())
    }

    fn receive(&mut self, _: Instant, _: PortId, _: &mut Burst, _: &mut Io<'_, ()>) {}

    fn ready(&mut self, _: Instant, _: u32, _: bool, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        panic!("not caught");
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

/// The other tests run this in a separate process. On its own it tests nothing.
#[test]
fn dies() {
    match std::env::var("DIES").unwrap_or_default().as_str() {
        "worker" => {
            let (_commands, inbox) = mailbox(1).unwrap();
            let (outbox, _events) = mailbox(1).unwrap();
            let config = WorkerConfig { idle: IdleConfig::default() };
            let counters = Arc::<WorkerCounters>::default();
            let worker = Worker::new(&config, Dies, Pool::new(1).unwrap(), inbox, outbox, counters).unwrap();
            // The process goes on without its worker unless something ends it.
            let _ = place::spawn(worker, 3, Placement::on(None)).unwrap().thread.join();
        }
        "task" => end_process_on_panic(|| {
            // Like a task whose runtime prevents the panic from ending the thread.
            let _ = std::panic::catch_unwind(|| panic!("in a task"));
        }),
        "other" => {
            end_process_on_panic(|| ());
            let other = thread::Builder::new().name("other".to_owned()).spawn(|| panic!("not ours"));
            assert!(other.unwrap().join().is_err());
        }
        _ => {}
    }
}

fn run(what: &str) -> (Option<i32>, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["dies", "--exact", "--nocapture"]).env("DIES", what);
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_worker_that_dies_ends_the_process_with_a_message() {
    let (code, said) = run("worker");
    assert_eq!(code, Some(EXIT_CODE), "{said}");
    assert!(
        said.contains("twinpath: thread worker-3 panicked: `not caught` at core/worker/tests/panics.rs:")
    );
    assert!(!said.contains("caught 0"), "{said}");
}

#[test]
fn a_task_of_the_control_thread_ends_it_too_and_a_thread_of_others_does_not() {
    let (code, said) = run("task");
    assert_eq!(code, Some(EXIT_CODE), "{said}");
    let (code, said) = run("other");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("'other'") && said.contains("not ours"), "as without us: {said}");
}
