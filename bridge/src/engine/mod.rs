//! The engine of an exception port: frames that arrive on one side leave by the other, in the same turn.
//!
//! A worker has one queue of each side. If the other side does not accept a frame as it is, the worker
//! makes it fit ([`twinpath_port::fit`]).
//!
//! This engine has no queues or timers of its own, and never inspects the contents of a frame.

use rustix::io::Errno;
use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_port::PortId;
use twinpath_time::Instant;
use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{Engine, Hosted, Io, Worker};

/// The side of the bridge that a port is on. Port numbers go up with each interface attached; even ones are devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The device.
    Port,
    /// The interface where the kernel's own stack lives.
    Kernel,
}

impl Side {
    /// The side of a port.
    #[must_use]
    pub const fn of(id: PortId) -> Self {
        if id.port.is_multiple_of(2) { Self::Port } else { Self::Kernel }
    }

    /// The side across.
    const fn other(self) -> Self {
        match self {
            Self::Port => Self::Kernel,
            Self::Kernel => Self::Port,
        }
    }

    /// The number of the `attachment`th port on this side.
    #[must_use]
    pub const fn port_number(self, attachment: u16) -> u16 {
        attachment.wrapping_mul(2) | self as u16
    }
}

/// Carries frames between two ports.
#[derive(Debug, Default)]
pub struct BridgeEngine {
    /// The port on each side.
    sides: [Option<PortId>; 2],
}

impl Engine for BridgeEngine {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn attached(&mut self, port: PortId, _io: &mut Io<'_, ()>) {
        self.sides[Side::of(port) as usize] = Some(port);
    }

    fn detached(&mut self, port: PortId, _io: &mut Io<'_, ()>) {
        let side = &mut self.sides[Side::of(port) as usize];
        side.take_if(|attached| *attached == port);
    }

    fn receive(&mut self, _now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let other = self.sides[Side::of(port).other() as usize];
        for frame in frames.drain(usize::MAX) {
            match other {
                Some(other) => io.forward(other, frame),
                None => {
                    io.drops().add(Reason::PortDown, 1);
                    io.release(frame);
                }
            }
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _now: Instant, _command: (), _io: &mut Io<'_, ()>) {}
}

/// Compiles the loop of a bridging worker.
impl Hosted for BridgeEngine {
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError> {
        place::spawn(worker, number, placement)
    }
}

#[cfg(test)]
mod tests;
