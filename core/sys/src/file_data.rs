//! Data of files (pread(2)), read into room that is not cleared first.
#![allow(
    unsafe_code,
    reason = "a vector has no safe way to count what was read into the room behind its end"
)]

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread, retry_on_intr};

/// Appends at most `count` bytes of a file from `offset` on, in one read; returns how many. 0: the file ends there.
///
/// # Errors
/// As pread(2). `out` is as before, but may have more room.
pub fn append(file: BorrowedFd<'_>, offset: u64, count: usize, out: &mut Vec<u8>) -> Result<usize, Errno> {
    out.reserve(count);
    let (len, room) = (out.len(), out.spare_capacity_mut());
    let read = retry_on_intr(|| pread(file, &mut room[..count], offset).map(|(read, _)| read.len()))?;
    // SAFETY: the kernel has written so many bytes into the room behind the end.
    unsafe { out.set_len(len + read) };
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn no_more_is_read_than_is_asked_for_and_it_goes_behind_what_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        std::fs::write(&path, "0123456789").expect("written");
        let file = File::open(&path).expect("there");
        let mut out = Vec::with_capacity(100);
        out.extend_from_slice(b"head");
        assert_eq!(append(file.as_fd(), 2, 3, &mut out), Ok(3));
        assert_eq!(append(file.as_fd(), 8, 50, &mut out), Ok(2));
        assert_eq!(append(file.as_fd(), 10, 5, &mut out), Ok(0));
        assert_eq!(append(file.as_fd(), 0, 0, &mut out), Ok(0));
        assert_eq!(out, b"head23489");
        let mut out = Vec::new();
        assert_eq!(append(file.as_fd(), 0, 10, &mut out), Ok(10));
        let is_dir = File::open(dir.path()).expect("there");
        assert_eq!(append(is_dir.as_fd(), 0, 10, &mut out), Err(Errno::ISDIR));
        assert_eq!(out, b"0123456789");
    }
}
