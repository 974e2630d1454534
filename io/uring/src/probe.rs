//! Whether io_uring can be used here, by using it.

use std::os::fd::AsFd as _;

use io_uring::{IoUring, Probe, opcode};
use rustix::io::{Errno, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::error::RingError;
use crate::ring::{Completion, Key, Ring, RingConfig, errno};

/// A ring for a moment.
const SMALL: RingConfig = RingConfig { entries: 8, completions: 32, buffers: 8, buffer_bytes: 64 };

/// What its armed receive may take, of more than that.
const MOST: u32 = 150;

/// Sets a ring up, and receives through it as a server would.
///
/// # Errors
/// Why io_uring cannot be used here.
pub fn probe() -> Result<(), RingError> {
    let mut ring = Ring::new(&SMALL)?;
    has_operations()?;
    ring.enable()?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(RingError::Trial)?;
    write(&theirs, &[0; 2 * MOST as usize]).map_err(RingError::Trial)?;
    ring.receive(ours.as_fd(), Key { number: 0, generation: 0 }, MOST);
    ring.enter();
    let (mut taken, mut over) = (0, false);
    while let Some(completion) = ring.take() {
        match completion {
            Completion::Received { buffer, armed, .. } => {
                taken += buffer.len();
                over |= !armed;
                ring.give(buffer);
            }
            // What a kernel says that does not know the field, or the operation.
            Completion::ReceiveEnded { why: Err(Errno::INVAL), .. } => return Err(RingError::NoReceiveLimit),
            Completion::ReceiveEnded { why, .. } => why.map_err(RingError::Trial)?,
            Completion::Writable { .. } | Completion::Sent { .. } => {}
        }
    }
    if over && (1..=MOST as usize).contains(&taken) { Ok(()) } else { Err(RingError::NoReceiveLimit) }
}

fn has_operations() -> Result<(), RingError> {
    let mut probe = Probe::new();
    let uring = IoUring::new(1).map_err(|error| RingError::SetUp(errno(&error)))?;
    uring.submitter().register_probe(&mut probe).map_err(|error| RingError::SetUp(errno(&error)))?;
    let needed = [
        ("IORING_OP_RECV", opcode::RecvMulti::CODE),
        ("IORING_OP_SEND", opcode::Send::CODE),
        ("IORING_OP_POLL_ADD", opcode::PollAdd::CODE),
        ("IORING_OP_ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ];
    let missing = needed.iter().find(|(_, code)| !probe.is_supported(*code));
    missing.map_or(Ok(()), |(name, _)| Err(RingError::Operation(name)))
}
