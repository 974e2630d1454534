//! Pipes, and bytes of a socket that go into one.

use crate::descriptor;
use crate::errno::{Answer, Errno};
use crate::world::{Step, World};

/// One end of a pipe. What goes into it is not read again by any script, so it is only counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipe {
    bytes: usize,
}

impl World {
    pub(crate) fn pipe(&mut self) -> [i32; 2] {
        [(); 2].map(|()| {
            let fd = descriptor::open().unwrap_or(-1);
            self.pipes.insert(fd, Pipe::default());
            fd
        })
    }

    pub(crate) fn splice(&mut self, from: i32, to: i32, len: usize, flags: u32) -> Step<Answer<i32>> {
        if !self.pipes.contains_key(&to) {
            return Step::Done(Err(Errno::EINVAL));
        }
        let mut bytes = vec![0; len];
        let flags = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
        let mut done = 0;
        match self.receive(from, &mut [&mut bytes], flags, &mut done) {
            Step::Done(moved) => {
                if let (Ok(count), Some(pipe)) = (moved, self.pipes.get_mut(&to)) {
                    pipe.bytes += count;
                }
                Step::Done(moved.map(|count| i32::try_from(count).unwrap_or(i32::MAX)))
            }
            Step::Wait(until) => Step::Wait(until),
        }
    }
}
