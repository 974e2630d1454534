//! Writes the lines of the log to standard error while somebody reads it. A full pipe, terminal or socket
//! would otherwise block the thread that logs, and with it all control of an instance.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits for room, unless the previous one was lost. A reader that is merely slower than a
/// burst of lines makes room sooner.
const PATIENCE: Duration = Duration::from_millis(20);

/// Writes each line immediately, or drops it. The next line that can be written says how many were dropped.
#[derive(Debug)]
pub(super) struct Lines<T> {
    to: T,
    lost: Mutex<u64>,
}

impl<T: AsFd> Lines<T> {
    pub(super) const fn new(to: T) -> Self {
        Self { to, lost: Mutex::new(0) }
    }

    fn has_room(&self, wait: Duration) -> bool {
        let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let mut writable = [PollFd::new(&self.to, PollFlags::OUT)];
        match rustix::event::poll(&mut writable, Some(&wait)) {
            // For a pipe this means room for 4,096 bytes at least (pipe(7)), which no line of ours exceeds in practice.
            Ok(_) => writable[0].revents().contains(PollFlags::OUT),
            // Also after a signal: the line may have no reader, and the program may be told to end.
            Err(_) => false,
        }
    }
}

/// One line, from the thread that logs it.
pub(super) struct Line<'a, T>(&'a Lines<T>);

impl<T: AsFd> io::Write for Line<'_, T> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Lines { to, lost } = self.0;
        let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.0.has_room(if *lost == 0 { PATIENCE } else { Duration::ZERO }) {
            *lost += 1;
            return Ok(line.len());
        }
        if *lost > 0 {
            let said = format!("({lost} lines of the log were lost, as nobody read them)\n");
            rustix::io::write(to, said.as_bytes())?;
            *lost = 0;
            if !self.0.has_room(Duration::ZERO) {
                *lost = 1;
                return Ok(line.len());
            }
        }
        Ok(rustix::io::write(to, line)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a, T: AsFd + 'a> MakeWriter<'a> for Lines<T> {
    type Writer = Line<'a, T>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_stops_nobody_and_hears_what_it_missed() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let lines: Lines<OwnedFd> = Lines::new(write);
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        // A pipe has 64 KiB, unless the user has too many of them.
        let mut written = 0_u64;
        while *lines.lost.lock().unwrap() < 10 {
            lines.make_writer().write_all(&line).unwrap();
            written += 1;
        }
        assert!(written > 10);
        let mut reader = std::fs::File::from(read);
        let mut text = vec![0; (written as usize - 10) * line.len()];
        reader.read_exact(&mut text).unwrap();
        lines.make_writer().write_all(b"again\n").unwrap();
        drop(lines);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "(10 lines of the log were lost, as nobody read them)\nagain\n");
    }
}
