//! The control loop of a program that always has something to do.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};

use twinpath_command::{CommandError, Request, Topic, ask};
use twinpath_host::{Addresses, Controlled, WorkerHandle, run_to_end};
use twinpath_machine::Answer;
use twinpath_metrics::MetricsError;
use twinpath_report::Report;
use twinpath_switch_engine::SwitchEngine;

/// A program without workers whose next event has always happened. It ends when its only client has.
struct Busy {
    client: JoinHandle<Result<serde_json::Value, CommandError>>,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Command(#[from] CommandError),
    #[error("{0}")]
    Metrics(#[from] MetricsError),
}

impl Controlled for Busy {
    type Engine = SwitchEngine;
    type Event = ();
    type Error = Failed;

    const NAME: &'static str = "the busy program";
    const TAKES_CONNECTIONS: bool = false;

    fn workers(&self) -> impl Iterator<Item = &WorkerHandle<SwitchEngine>> {
        std::iter::empty()
    }

    fn worker_mut(&mut self, _: usize) -> &mut WorkerHandle<SwitchEngine> {
        unreachable!("there is no worker")
    }

    fn flush(&mut self) -> bool {
        true
    }

    async fn next(&mut self) -> Result<(), Failed> {
        Ok(())
    }

    async fn happened(&mut self, (): ()) -> bool {
        true
    }

    async fn read_workers(&mut self) {}

    async fn request(&mut self, _: Request, answer: Answer) {
        answer.send(Ok("here".into())).expect("the client waits");
    }

    async fn connection(&mut self, _: Request, _: UnixStream) {}

    fn report(&mut self) -> Report {
        Report::default()
    }

    fn scrape(&mut self) -> Report {
        Report::default()
    }

    async fn reload(&mut self) {}

    async fn end(&mut self) -> bool {
        false
    }

    async fn finish_turn(&mut self) -> Result<bool, Failed> {
        Ok(!self.client.is_finished())
    }
}

#[test]
fn a_program_that_always_has_something_to_do_answers_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("busy.sock");
    let addresses = Addresses { socket: Some(&socket), kind: "test", name: "busy", metrics: None };
    let start = async |_, socket: &Path| {
        let socket = socket.to_owned();
        Ok(Busy { client: thread::spawn(move || ask(&socket, &Request::Show(Topic::Ports))) })
    };
    let mut answer = None;
    let stop = |busy: Busy| answer = Some(busy.client.join().expect("the client does not panic"));
    run_to_end(addresses, start, |_| {}, stop).expect("it ends well");
    assert_eq!(answer.expect("it was stopped").expect("an answer"), "here");
}
