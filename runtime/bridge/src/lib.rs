//! The engine of an exception port: what arrives on one side leaves by the other, in the same turn.
//!
//! A worker has one queue of each side. Where the other side cannot take a frame as it is, the engine helps: a checksum left
//! to hardware is completed in software. What it can't do is dropped under a name.
//!
//! Never here: a queue of its own, a timer, a look at what a frame says.

use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Checksum, Frame, GsoKind};
use twinpath_inspect::{Counter, Reason};
use twinpath_port::{Capabilities, PortId};
use twinpath_time::Instant;
use twinpath_wire::checksum;
use twinpath_worker::{Engine, Io};

/// Which side of the bridge a port is. Port numbers go up with every interface attached; their parity tells.
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

/// What the engine counts; written by its worker, read by control.
#[derive(Debug, Default)]
pub struct BridgeCounters {
    /// Checksums completed in software.
    pub checksums_completed: Counter,
}

/// Carries frames between two ports.
#[derive(Debug)]
pub struct BridgeEngine {
    counters: Arc<BridgeCounters>,
    /// The port on each side.
    sides: [Option<PortId>; 2],
}

impl BridgeEngine {
    /// An engine that has carried nothing yet.
    #[must_use]
    pub const fn new(counters: Arc<BridgeCounters>) -> Self {
        Self { counters, sides: [None; 2] }
    }

    /// Makes `frame` one that a port of these capabilities can send.
    fn fit(&self, frame: &mut Frame, port: &Capabilities) -> Result<(), Reason> {
        let meta = frame.meta();
        if meta.gso.kind != GsoKind::None && !port.segmentation {
            return Err(Reason::OffloadRefused);
        }
        let too_many = meta.next.is_some() && !port.multi_buffer;
        if too_many || frame.chain_len() > port.frame_len_max as usize {
            return Err(Reason::FrameTooLarge);
        }
        if meta.checksum == Checksum::Partial && !port.checksum {
            let (start, offset) = (usize::from(meta.checksum_start), usize::from(meta.checksum_offset));
            let chained = meta.next.is_some();
            if chained || start == 0 || checksum::complete(frame.bytes_mut(), start, offset).is_err() {
                return Err(Reason::OffloadRefused);
            }
            frame.meta_mut().checksum = Checksum::Unverified;
            self.counters.checksums_completed.add(1);
        }
        Ok(())
    }
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
        let other = other.and_then(|port| Some((port, io.port(port)?.queue.capabilities())));
        for mut frame in frames.drain(usize::MAX) {
            let Some((port, capabilities)) = &other else {
                io.drops().add(Reason::PortDown, 1);
                io.release(frame);
                continue;
            };
            match self.fit(&mut frame, capabilities) {
                Ok(()) => io.send(*port, frame),
                Err(reason) => {
                    io.drops().add(reason, 1);
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

#[cfg(test)]
mod tests;
