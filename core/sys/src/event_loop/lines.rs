//! Reading lines from a connection.

use std::io::{self, Read};
use std::os::fd::AsFd;

use super::Watched;

/// What a connection has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line, with its newline.
    Whole(Vec<u8>),
    /// A longer line than permitted: its beginning.
    TooLong(Vec<u8>),
    /// The connection has ended, in the middle of a line unless this is empty.
    End(Vec<u8>),
}

/// Bytes read at a time.
const PART: usize = 4096;

/// Reads the lines of a connection that does not block.
pub struct Lines<T: AsFd> {
    stream: Watched<T>,
    /// Read, and not returned.
    read: Vec<u8>,
}

impl<T: AsFd> Lines<T>
where
    for<'a> &'a T: Read,
{
    /// Reads from this connection.
    pub const fn new(stream: Watched<T>) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// The connection.
    pub const fn stream(&self) -> &Watched<T> {
        &self.stream
    }

    /// The connection. What was read and not returned is lost.
    pub fn into_stream(self) -> Watched<T> {
        self.stream
    }

    /// Waits for the next line of at most `max` bytes. Cancelling it loses nothing.
    ///
    /// # Errors
    /// From `read(2)`.
    pub async fn next(&mut self, max: usize) -> io::Result<Line> {
        let mut looked_at = 0;
        loop {
            let newline = self.read[looked_at..].iter().position(|byte| *byte == b'\n');
            let end = newline.map_or(usize::MAX, |at| looked_at + at + 1);
            if end <= max.min(self.read.len()) {
                return Ok(Line::Whole(self.read.drain(..end).collect()));
            }
            if self.read.len() >= max {
                return Ok(Line::TooLong(self.read.drain(..max).collect()));
            }
            looked_at = self.read.len();
            let mut part = [0; PART];
            match self.stream.read(|mut from| from.read(&mut part)).await? {
                0 => return Ok(Line::End(std::mem::take(&mut self.read))),
                len => self.read.extend_from_slice(&part[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use twinpath_time::Duration;

    use super::super::{EventLoop, timeout};
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_sent_and_what_is_no_line_is_told_apart() {
        EventLoop::new().unwrap().run(async {
            let (mut far, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let mut lines = Lines::new(Watched::readable(near).unwrap());
            far.write_all(b"one\ntwo\nth").unwrap();
            assert_eq!(lines.next(8).await.unwrap(), Line::Whole(b"one\n".to_vec()));
            assert_eq!(lines.next(8).await.unwrap(), Line::Whole(b"two\n".to_vec()));
            assert!(timeout(Duration::from_millis(1), lines.next(8)).await.is_err());
            far.write_all(b"ree\n").unwrap();
            assert_eq!(lines.next(6).await.unwrap(), Line::Whole(b"three\n".to_vec()));
            far.write_all(b"too long\nlast").unwrap();
            assert_eq!(lines.next(8).await.unwrap(), Line::TooLong(b"too long".to_vec()));
            assert_eq!(lines.next(8).await.unwrap(), Line::Whole(b"\n".to_vec()));
            drop(far);
            assert_eq!(lines.next(8).await.unwrap(), Line::End(b"last".to_vec()));
            assert_eq!(lines.next(8).await.unwrap(), Line::End(Vec::new()));
        });
    }
}
