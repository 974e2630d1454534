//! Reads of regular files by io_uring, one at a time, with completions signalled by an eventfd.
//!
//! A loop that waits in epoll reads files so without blocking: epoll refuses regular files (`EPERM`, epoll_ctl(2)), and
//! takes the eventfd. The example `event_loop` of the library uses it; the product does not.
#![allow(unsafe_code, reason = "the kernel writes to a buffer that an entry of the ring points to")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

/// A read that the kernel may still work on.
struct Reading {
    /// Keeps the number in the ring's entry open until the kernel took it.
    _file: OwnedFd,
    /// The kernel took the entry.
    is_submitted: bool,
}

/// Reads regular files, one read at a time, into a buffer of its own. Used by one thread.
pub struct FileRing {
    ring: IoUring,
    completed: OwnedFd,
    /// Neither touched nor moved on the heap while `reading` is there.
    buffer: Box<[u8]>,
    reading: Option<Reading>,
}

impl FileRing {
    /// A ring whose reads have at most `read_max_bytes` bytes.
    ///
    /// # Errors
    /// `ENOSYS` of a kernel without io_uring, `EPERM` where `kernel.io_uring_disabled`, seccomp(2) or the kernel's security
    /// module refuses it, and those of io_uring_setup(2), io_uring_register(2) and eventfd(2).
    pub fn new(read_max_bytes: u32) -> io::Result<Self> {
        let ring = IoUring::new(1)?;
        let completed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(completed.as_raw_fd())?;
        Ok(Self { ring, completed, buffer: vec![0; read_max_bytes as usize].into(), reading: None })
    }

    /// Starts a read of `file`, a regular file, from `offset_bytes` on. It does not wait for the disk.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not a regular one, `ResourceBusy` while another read is in progress, and those of
    /// io_uring_enter(2) and fstat(2).
    pub fn submit(&mut self, file: impl AsFd, offset_bytes: u64) -> io::Result<()> {
        if self.reading.is_some() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // A read of anything else might never complete, and `drop` waits for it.
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = file.as_fd().try_clone_to_owned()?;
        let len = u32::try_from(self.buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), self.buffer.as_mut_ptr(), len);
        let entry = read.offset(offset_bytes).build();
        // SAFETY: the buffer has `len` bytes, is neither touched nor freed, and the file not closed, until the read is
        // complete: `completion` and `drop` see to it.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::ErrorKind::ResourceBusy)?;
        self.reading = Some(Reading { _file: file, is_submitted: false });
        self.enter()
    }

    /// Gives the kernel the entry, if it has not taken it yet.
    fn enter(&mut self) -> io::Result<()> {
        let Some(reading) = self.reading.as_mut().filter(|reading| !reading.is_submitted) else {
            return Ok(());
        };
        loop {
            match self.ring.submit() {
                Ok(taken) => {
                    reading.is_submitted = taken > 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The bytes of the read that has completed, none at the end of the file; `None` while the kernel works on it.
    ///
    /// # Errors
    /// Those of pread(2), and of io_uring_enter(2) if `submit` failed with one: this tries again.
    pub fn completion(&mut self) -> io::Result<Option<&[u8]>> {
        // The signal is taken back first, so that none of a later completion is lost.
        match rustix::io::read(&self.completed, &mut [0; 8][..]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(entry) = self.ring.completion().next() else {
            self.enter()?;
            return Ok(None);
        };
        self.reading = None;
        match usize::try_from(entry.result()) {
            Ok(len) => Ok(self.buffer.get(..len)),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        }
    }
}

/// The eventfd: readable once a read has completed.
impl AsFd for FileRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completed.as_fd()
    }
}

impl Drop for FileRing {
    /// Waits for a read in progress: the kernel writes to the buffer until then.
    fn drop(&mut self) {
        if !self.reading.as_ref().is_some_and(|reading| reading.is_submitted) {
            return;
        }
        while self.ring.completion().is_empty() {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // Memory that the kernel may still write to is never used again.
                    std::mem::forget(std::mem::take(&mut self.buffer));
                    return;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
