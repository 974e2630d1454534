//! Handles of files (open_by_handle_at(2)): what a file system finds a file again by, without its path.
#![allow(unsafe_code, reason = "name_to_handle_at(2) and open_by_handle_at(2) have no safe wrapper")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use libc::c_int;
use rustix::io::Errno;

use crate::last_errno;

/// `MAX_HANDLE_SZ` of linux/exportfs.h, bytes.
const BYTES_MAX: usize = 128;

/// `struct file_handle` of linux/fs.h, with room for the longest.
#[repr(C)]
struct Raw {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; BYTES_MAX],
}

/// A file system's handle of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHandle {
    kind: i32,
    len: usize,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// The handle of a file. A descriptor of `O_PATH` will do.
    ///
    /// # Errors
    /// As name_to_handle_at(2). EOPNOTSUPP: the file system has no handles.
    pub fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::found(file, c"", libc::AT_EMPTY_PATH).map(|(handle, _)| handle)
    }

    /// The handle of what a name in a directory is, and the number of the mount that it is found in. A symbolic link is not
    /// followed. The thread needs the right to look the name up.
    ///
    /// # Errors
    /// As for [`Self::of`].
    pub fn at(dir: BorrowedFd<'_>, name: &CStr) -> Result<(Self, i32), Errno> {
        Self::found(dir, name, 0)
    }

    fn found(dir: BorrowedFd<'_>, name: &CStr, flags: c_int) -> Result<(Self, i32), Errno> {
        let mut raw = Raw { handle_bytes: BYTES_MAX as u32, handle_type: 0, f_handle: [0; BYTES_MAX] };
        let mut mount: c_int = 0;
        // SAFETY: all three live across the call, and it writes at most as many bytes as the first field says.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                dir.as_raw_fd(),
                name.as_ptr(),
                &raw mut raw,
                &raw mut mount,
                flags,
            )
        };
        if done < 0 {
            return Err(last_errno());
        }
        let len = (raw.handle_bytes as usize).min(BYTES_MAX);
        Ok((Self { kind: raw.handle_type, len, bytes: raw.f_handle }, mount))
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> i32 {
        self.kind
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// `struct fsuuid2` of linux/fs.h.
#[repr(C)]
struct FileSystemUuid {
    len: u8,
    uuid: [u8; 16],
}

/// `FS_IOC_GETFSUUID` of linux/fs.h, since Linux 6.9.
const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;

/// ext2 to ext4, btrfs and tmpfs (linux/magic.h): their `f_fsid` depends on a UUID. That of others may be the number of a
/// device, which another boot may change.
const WITH_FSID: [u32; 3] = [0xef53, 0x9123_683e, 0x0102_1994];

/// What tells a file system from others, also after a restart of the host, if it has that. `file` is any file of it that was
/// opened without `O_PATH`.
#[must_use]
pub fn file_system_id(file: BorrowedFd<'_>) -> Vec<u8> {
    let is_of_uuid = rustix::fs::fstatfs(file).is_ok_and(|stat| WITH_FSID.contains(&(stat.f_type as u32)));
    if is_of_uuid {
        return rustix::fs::fstatvfs(file).map_or(Vec::new(), |stat| stat.f_fsid.to_be_bytes().to_vec());
    }
    let mut found = FileSystemUuid { len: 0, uuid: [0; 16] };
    // SAFETY: the kernel writes one `struct fsuuid2`, which lives across the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFSUUID, &raw mut found) };
    let len = if done == 0 { usize::from(found.len) } else { 0 };
    found.uuid.get(..len).unwrap_or_default().to_vec()
}

/// Opens a file by its handle with flags of open(2), such as `O_PATH`. `mount` is any file of its file system that was
/// opened without `O_PATH`. The thread needs CAP_DAC_READ_SEARCH.
///
/// # Errors
/// As open_by_handle_at(2). ESTALE: there is no such file. EINVAL: more than 128 bytes.
pub fn open(mount: BorrowedFd<'_>, kind: i32, bytes: &[u8], flags: c_int) -> Result<OwnedFd, Errno> {
    let mut raw = Raw { handle_bytes: bytes.len() as u32, handle_type: kind, f_handle: [0; BYTES_MAX] };
    raw.f_handle.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the handle lives across the call, and has as many bytes as its first field says.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut raw, flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use twinpath_test_rig::root_or_skip;

    use super::*;

    #[test]
    fn two_file_systems_have_two_identities_and_one_has_the_same_everywhere() {
        if !root_or_skip() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let id = |path: &std::path::Path| file_system_id(File::open(path).expect("there").as_fd());
        let (here, shared) = (id(dir.path()), id("/dev/shm".as_ref()));
        assert_eq!(here, id(dir.path().parent().expect("a folder")));
        assert!(here != shared || here.is_empty(), "{here:?}");
    }

    #[test]
    fn a_handle_opens_the_same_file_after_a_rename_and_none_after_it_is_gone() {
        if !root_or_skip() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "data").expect("written");
        let handle = FileHandle::of(File::open(&old).expect("there").as_fd()).expect("a handle");
        fs::rename(&old, &new).expect("renamed");
        let mount = File::open(dir.path()).expect("there");
        let reopened = |flags| open(mount.as_fd(), handle.kind(), handle.bytes(), flags);
        let file = reopened(libc::O_RDONLY).expect("the same file");
        assert_eq!(FileHandle::of(file.as_fd()), Ok(handle));
        assert_eq!(std::io::read_to_string(File::from(file)).expect("read"), "data");
        fs::remove_file(&new).expect("removed");
        assert_eq!(reopened(libc::O_PATH).err(), Some(Errno::STALE));
        let long = open(mount.as_fd(), handle.kind(), &[0; BYTES_MAX + 1], libc::O_PATH);
        assert_eq!(long.err(), Some(Errno::INVAL));
    }
}
