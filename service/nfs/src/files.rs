//! The interface of a file system, as the server needs it: what the kernel does for a process.

use twinpath_rpc::nfs3_types::nfs3::{fattr3, nfsstat3, nfstime3};

use crate::caller::Caller;
use crate::handle::{FileId, FileKey};

/// Why an operation was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It failed, with the status for the client.
    Status(nfsstat3),
    /// It would have to wait for a disk, and this file system is one that must not wait. Nothing was changed: the whole
    /// call is repeated over one that may.
    WouldBlock,
}

impl From<nfsstat3> for Fault {
    fn from(status: nfsstat3) -> Self {
        Self::Status(status)
    }
}

/// What may be done with a file: bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u32);

impl Rights {
    /// Run it, or look a name up in a directory.
    pub const EXECUTE: Self = Self(1);
    /// Write.
    pub const WRITE: Self = Self(2);
    /// Read.
    pub const READ: Self = Self(4);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits: 4 to read, 2 to write, 1 to execute.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// By whose rights a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAs {
    /// By those of the caller.
    Caller,
    /// By those of the server: the rules allow it although the mode does not. Whatever is charged or checked later is
    /// the caller's still.
    Server,
}

/// How far a sync goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The data, and what is needed to read it: `fdatasync(2)`.
    Data,
    /// All of it: `fsync(2)`.
    All,
    /// All of its file system: `syncfs(2)`. For links, pipes and devices: a link cannot be opened, and opening another one
    /// does something.
    FileSystem,
}

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    Keep,
    /// The file system's present time.
    Now,
    /// This time.
    To(nfstime3),
}

/// What kind of node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make<'a> {
    /// A regular file, which must not exist. It gets these times (access, modification) before it can be seen under
    /// its name, if there are any.
    File(Option<(nfstime3, nfstime3)>),
    /// A directory.
    Directory,
    /// A symbolic link with that target.
    Symlink(&'a [u8]),
    /// A block device (major, minor).
    Block(u32, u32),
    /// A character device (major, minor).
    Character(u32, u32),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Listed<'a> {
    /// The number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The position behind it: where listing goes on after it.
    pub cookie: u64,
    /// What it is, if that was asked for and could be found out.
    pub found: Option<(fattr3, FileKey)>,
}

/// Space and files of a file system (RFC 1813, 3.3.18): bytes and numbers of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in RFC 1813")]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
    pub available_files: u64,
}

/// Limits of a file system (RFC 1813, 3.3.19 and 3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the longest file, bytes.
    pub file_max: u64,
    /// The most links to a file.
    pub link_max: u32,
    /// Length of the longest name, bytes.
    pub name_max: u32,
    /// The distance of two times that it tells apart, ns.
    pub time_step_ns: u32,
}

/// A file system. Its operations take a caller's rights and names that have been checked: a name has no slash and no
/// NUL, and is not empty, `.` or `..`. No operation follows a symbolic link or leaves the export.
///
/// A status is that which the error of the kernel has in RFC 1813, 2.6. A file that is gone is STALE from
/// [`Self::open`], and NOENT only where a name was looked up.
pub trait Files {
    /// An open reference to a file that needs no right: a descriptor of `O_PATH`.
    type File: Clone;

    /// The root of an export.
    ///
    /// # Errors
    /// As said for the trait.
    fn root(&mut self, export: u32) -> Result<Self::File, Fault>;

    /// The file of a handle that was signed.
    ///
    /// # Errors
    /// As said for the trait.
    fn open(&mut self, id: &FileId) -> Result<Self::File, Fault>;

    /// The key of a file.
    ///
    /// # Errors
    /// As said for the trait.
    fn key(&mut self, file: &Self::File) -> Result<FileKey, Fault>;

    /// The attributes of a file.
    ///
    /// # Errors
    /// As said for the trait.
    fn attributes(&mut self, file: &Self::File) -> Result<fattr3, Fault>;

    /// Whether the caller has all of these rights.
    ///
    /// # Errors
    /// As said for the trait, but not for a right that it has not.
    fn permits(&mut self, who: &Caller, file: &Self::File, rights: Rights) -> Result<bool, Fault>;

    /// Looks a name up.
    ///
    /// # Errors
    /// As said for the trait.
    fn look_up(&mut self, who: &Caller, dir: &Self::File, name: &[u8]) -> Result<Self::File, Fault>;

    /// The parent of a directory that is not the export's root.
    ///
    /// # Errors
    /// As said for the trait. STALE: it is not beneath the root any more.
    fn parent(&mut self, who: &Caller, export: u32, dir: &Self::File) -> Result<Self::File, Fault>;

    /// Appends the target of a symbolic link to `out`.
    ///
    /// # Errors
    /// As said for the trait. INVAL: it is none.
    fn read_link(&mut self, who: &Caller, link: &Self::File, out: &mut Vec<u8>) -> Result<(), Fault>;

    /// Appends at most `count` bytes of a regular file to `out`, from `offset` on.
    ///
    /// # Errors
    /// As said for the trait. `out` may have grown.
    fn read(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &Self::File,
        offset: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault>;

    /// Writes to a regular file; returns how many bytes were written.
    ///
    /// # Errors
    /// As said for the trait. Nothing was written.
    fn write(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &Self::File,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Fault>;

    /// Makes a file or directory durable. After a failure it is unknown what is on the disk; a later success says
    /// nothing about it. So syncs of one file follow each other, on whichever threads, and if one fails, `failed` is
    /// called before the next one begins.
    ///
    /// # Errors
    /// As said for the trait.
    fn sync(&mut self, file: &Self::File, how: Sync, failed: &mut dyn FnMut()) -> Result<(), Fault>;

    /// Sets the length of a regular file.
    ///
    /// # Errors
    /// As said for the trait.
    fn set_size(&mut self, who: &Caller, open_as: OpenAs, file: &Self::File, size: u64) -> Result<(), Fault>;

    /// Sets owner and group, those that are given.
    ///
    /// # Errors
    /// As said for the trait.
    fn set_owner(
        &mut self,
        who: &Caller,
        file: &Self::File,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Fault>;

    /// Sets the mode.
    ///
    /// # Errors
    /// As said for the trait.
    fn set_mode(&mut self, who: &Caller, file: &Self::File, mode: u32) -> Result<(), Fault>;

    /// Sets the times of access and modification.
    ///
    /// # Errors
    /// As said for the trait.
    fn set_times(
        &mut self,
        who: &Caller,
        file: &Self::File,
        accessed: SetTime,
        modified: SetTime,
    ) -> Result<(), Fault>;

    /// Makes a node of that mode.
    ///
    /// # Errors
    /// As said for the trait. EXIST: the name is taken. NOTSUPP: the file system does not keep these times exactly;
    /// then nothing was made.
    fn make(
        &mut self,
        who: &Caller,
        dir: &Self::File,
        name: &[u8],
        what: Make<'_>,
        mode: u32,
    ) -> Result<Self::File, Fault>;

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// As said for the trait.
    fn remove(&mut self, who: &Caller, dir: &Self::File, name: &[u8]) -> Result<(), Fault>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As said for the trait.
    fn remove_directory(&mut self, who: &Caller, dir: &Self::File, name: &[u8]) -> Result<(), Fault>;

    /// Renames, in place of what had the new name.
    ///
    /// # Errors
    /// As said for the trait.
    fn rename(
        &mut self,
        who: &Caller,
        from: (&Self::File, &[u8]),
        to: (&Self::File, &[u8]),
    ) -> Result<(), Fault>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As said for the trait.
    fn link(&mut self, who: &Caller, file: &Self::File, dir: &Self::File, name: &[u8]) -> Result<(), Fault>;

    /// Passes the entries of a directory from `cookie` on to `each`, `.` and `..` among them, until it returns false;
    /// 0 is the start. With `find`, entries say what they are. Returns whether all were passed.
    ///
    /// # Errors
    /// As said for the trait. BAD_COOKIE: no such position.
    fn list(
        &mut self,
        who: &Caller,
        dir: &Self::File,
        cookie: u64,
        find: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<bool, Fault>;

    /// Space of the file system that a file is in.
    ///
    /// # Errors
    /// As said for the trait.
    fn space(&mut self, file: &Self::File) -> Result<Space, Fault>;

    /// Limits of the file system that a file is in.
    ///
    /// # Errors
    /// As said for the trait.
    fn limits(&mut self, file: &Self::File) -> Result<Limits, Fault>;
}
