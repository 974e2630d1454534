//! The engine of a program without workers. It has no value, so such a program cannot start a worker.

use rustix::io::Errno;
use twinpath_frame::Burst;
use twinpath_port::PortId;
use twinpath_time::Instant;
use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{Engine, Hosted, Io, Worker};

/// The engine of a program with a control loop and no workers: the kernel's programs do its work.
#[derive(Debug)]
pub enum NoWorkers {}

impl Engine for NoWorkers {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        match *self {}
    }

    fn receive(&mut self, _now: Instant, _port: PortId, _frames: &mut Burst, _io: &mut Io<'_, ()>) {
        match *self {}
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        match *self {}
    }

    fn run(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> bool {
        match *self {}
    }

    fn next_deadline(&self) -> Instant {
        match *self {}
    }

    fn command(&mut self, _now: Instant, _command: (), _io: &mut Io<'_, ()>) {
        match *self {}
    }
}

impl Hosted for NoWorkers {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}
