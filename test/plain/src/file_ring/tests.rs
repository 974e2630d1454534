//! Tests of reads by io_uring, where the kernel allows it.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::fs::File;
use std::io::{ErrorKind, Write as _};

use rustix::event::{PollFd, PollFlags, poll};

use super::{Errno, FileRing};

/// `None`, said on standard error, where the kernel refuses io_uring.
fn ring() -> Option<FileRing> {
    FileRing::new(1000).inspect_err(|error| eprintln!("skipped: io_uring is refused: {error}")).ok()
}

fn completed(ring: &mut FileRing) -> std::io::Result<Vec<u8>> {
    loop {
        poll(&mut [PollFd::new(&*ring, PollFlags::IN)], None).unwrap();
        if let Some(bytes) = ring.completion()? {
            return Ok(bytes.to_vec());
        }
    }
}

#[test]
fn a_file_is_read_in_parts_to_its_end() {
    let Some(mut ring) = ring() else { return };
    let content: Vec<u8> = (0..2500u32).map(|number| number as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let mut read = Vec::new();
    loop {
        ring.submit(&file, read.len() as u64).unwrap();
        assert_eq!(ring.submit(&file, 0).unwrap_err().kind(), ErrorKind::ResourceBusy);
        let part = completed(&mut ring).unwrap();
        if part.is_empty() {
            break;
        }
        read.extend(part);
    }
    assert_eq!(read, content);
    assert!(ring.completion().unwrap().is_none());
}

#[test]
fn the_error_of_a_read_is_given_and_the_next_read_works() {
    let Some(mut ring) = ring() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let for_writing = File::create(&path).unwrap();
    ring.submit(&for_writing, 0).unwrap();
    assert_eq!(completed(&mut ring).unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
    ring.submit(File::open(&path).unwrap(), 0).unwrap();
    assert!(completed(&mut ring).unwrap().is_empty());
}

#[test]
fn a_pipe_is_refused_and_a_ring_with_a_read_in_progress_can_be_dropped() {
    let Some(mut ring) = ring() else { return };
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(ring.submit(&reader, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    ring.submit(tempfile::tempfile().unwrap(), 0).unwrap();
}
