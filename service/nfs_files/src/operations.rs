//! The operations, each by the system calls that it is made of.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Statx, StatxFlags,
    StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use twinpath_nfs::{
    Caller, Fault, FileId, FileKey, Files, Limits, Listed, Make, OpenAs, Rights, SetTime, Space, Sync,
};
use twinpath_rpc::nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3};
use twinpath_sys::file_handle::FileHandle;
use twinpath_sys::{file_data, file_handle};

use super::{HostFile, HostFiles, above, acting, fault, find, key, key_from, permitted};

/// The unit in which the kernel counts what a file uses, bytes.
const BLOCK_LEN: u64 = 512;
/// The most bytes that pad data in a reply (RFC 4506, 4.10).
const PADDING_MAX: usize = 3;
/// The most links that are promised: those of a directory of ext4.
const LINK_MAX: u32 = 65_000;

/// A time in NFS has 32 bits of seconds: what is outside becomes the nearest.
fn time(time: StatxTimestamp) -> nfstime3 {
    let seconds = u32::try_from(time.tv_sec.max(0)).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: time.tv_nsec }
}

fn timespec(time: nfstime3) -> Timespec {
    Timespec { tv_sec: i64::from(time.seconds), tv_nsec: time.nseconds.into() }
}

fn set_time(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(time) => timespec(time),
    }
}

fn kind(mode: u16) -> ftype3 {
    match FileType::from_raw_mode(mode.into()) {
        FileType::Directory => ftype3::NF3DIR,
        FileType::BlockDevice => ftype3::NF3BLK,
        FileType::CharacterDevice => ftype3::NF3CHR,
        FileType::Symlink => ftype3::NF3LNK,
        FileType::Socket => ftype3::NF3SOCK,
        FileType::Fifo => ftype3::NF3FIFO,
        _ => ftype3::NF3REG,
    }
}

impl HostFiles {
    /// Makes a regular file whose times are set before it has its name, so a crash never leaves one without them.
    fn make_with_times(
        &self,
        dir: &HostFile,
        name: &[u8],
        times: (nfstime3, nfstime3),
        mode: Mode,
    ) -> Result<OwnedFd, Fault> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let unnamed = rustix::fs::openat(&*dir.fd, ".", flags | OFlags::TMPFILE, mode);
        let (file, has_name) = match unnamed {
            Ok(file) => (file, false),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let new = flags | OFlags::CREATE | OFlags::EXCL;
                (rustix::fs::openat(&*dir.fd, name, new, mode).map_err(fault)?, true)
            }
            // A file without a name takes the right to write to the directory. With its name, that is asked last.
            Err(_) if self.find(dir, name).is_ok() => return Err(nfsstat3::NFS3ERR_EXIST.into()),
            Err(errno) => return Err(fault(errno)),
        };
        let wanted = Timestamps { last_access: timespec(times.0), last_modification: timespec(times.1) };
        let set = rustix::fs::futimens(&file, &wanted).and_then(|()| {
            let kept = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
            let is_kept = (time(kept.stx_atime), time(kept.stx_mtime)) == times;
            if is_kept { Ok(()) } else { Err(Errno::OPNOTSUPP) }
        });
        if has_name {
            if set.is_err() {
                rustix::fs::unlinkat(&*dir.fd, name, AtFlags::empty()).map_err(fault)?;
            }
            return set.map(|()| file).map_err(fault);
        }
        set.map_err(fault)?;
        // By its name in /proc: by its descriptor alone it takes a capability, before Linux 6.10.
        let number = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
        rustix::fs::linkat(&self.exports.descriptors, number, &*dir.fd, name, AtFlags::SYMLINK_FOLLOW)
            .map_err(fault)?;
        Ok(file)
    }

    /// A file that was just made, as one of `O_PATH`.
    fn made(&self, dir: &HostFile, file: OwnedFd) -> Result<HostFile, Fault> {
        let opened = HostFile::new(file, dir.export);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.exports.descriptors, self.name(&opened), flags, Mode::empty());
        fd.map(|fd| HostFile::new(fd, dir.export)).map_err(fault_of_made)
    }

    /// Passes entries on, and returns whether all were.
    fn each_entry(
        &self,
        dir: &HostFile,
        open: &OwnedFd,
        buffer: &mut [std::mem::MaybeUninit<u8>],
        find: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<bool, Fault> {
        // Not by its name: whoever may read a directory need not be allowed to look names up.
        let stat = rustix::fs::statx(open, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(fault)?;
        let mount = stat.stx_mnt_id;
        let mut entries = RawDir::new(open, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(fault)?;
            let (text, name) = (entry.file_name(), entry.file_name().to_bytes());
            let is_dots = name == b"." || name == b"..";
            // An entry that is gone meanwhile, or may not be looked up, is listed without what it is.
            let found = if find && !is_dots { self.what_is(dir, mount, text).ok() } else { None };
            let listed = Listed { fileid: entry.ino(), name, cookie: entry.next_entry_cookie(), found };
            if !each(&listed) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a name in a directory is, which was found in this mount. That the two answers are of one file is checked. If they
    /// are not, as the name was given to another file in between, it is opened: that takes twice as long.
    fn what_is(&self, dir: &HostFile, mount: u64, name: &CStr) -> Result<(fattr3, FileKey), Fault> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(&*dir.fd, name, flags, wanted).map_err(fault)?;
        let (handle, found_in) = FileHandle::at(dir.fd.as_fd(), name).map_err(fault)?;
        let mounts = [stat.stx_mnt_id, found_in as u64];
        if mounts == [mount; 2] && has_number(&handle, stat.stx_ino) {
            return Ok((attributes_of(&stat, dir.export), key_from(&handle)?));
        }
        let file = self.find(dir, name.to_bytes())?;
        Ok((attributes(&file)?, key(&file)?))
    }
}

/// Appends at most `count` bytes of a file from `offset` on.
pub(super) fn read_into(data: &OwnedFd, offset: u64, count: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
    // With the padding behind them, which must not double a long buffer.
    out.reserve(count + PADDING_MAX);
    let mut len = 0;
    while len < count {
        match file_data::append(data.as_fd(), offset + len as u64, count - len, out)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(())
}

/// What was made could not be opened. It is there: asked again, the client would be told that it exists.
fn fault_of_made(errno: Errno) -> Fault {
    match fault(errno) {
        Fault::Status(nfsstat3::NFS3ERR_JUKEBOX) => nfsstat3::NFS3ERR_SERVERFAULT.into(),
        fault => fault,
    }
}

/// What is made.
const fn kind_of(what: &Make<'_>) -> ftype3 {
    match what {
        Make::File(_) => ftype3::NF3REG,
        Make::Directory => ftype3::NF3DIR,
        Make::Symlink(_) => ftype3::NF3LNK,
        Make::Block(..) => ftype3::NF3BLK,
        Make::Character(..) => ftype3::NF3CHR,
        Make::Socket => ftype3::NF3SOCK,
        Make::Fifo => ftype3::NF3FIFO,
    }
}

/// Whether a handle names a file by this number, as those of ext4, XFS, btrfs and tmpfs do.
fn has_number(handle: &FileHandle, number: u64) -> bool {
    handle.bytes().as_chunks::<4>().0.iter().any(|word| u32::from_ne_bytes(*word) == number as u32)
}

/// The attributes of a file.
pub(super) fn attributes(file: &HostFile) -> Result<fattr3, Fault> {
    let stat =
        rustix::fs::statx(&*file.fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(fault)?;
    Ok(attributes_of(&stat, file.export))
}

fn attributes_of(stat: &Statx, export: u32) -> fattr3 {
    fattr3 {
        type_: kind(stat.stx_mode),
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks * BLOCK_LEN,
        rdev: specdata3 { specdata1: stat.stx_rdev_major, specdata2: stat.stx_rdev_minor },
        // Numbers of devices change with a restart of the host.
        fsid: u64::from(export),
        fileid: stat.stx_ino,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

impl Files for HostFiles {
    type File = HostFile;

    fn root(&mut self, export: u32) -> Result<HostFile, Fault> {
        Ok(self.export(export)?.file.clone())
    }

    fn open(&mut self, id: &FileId) -> Result<HostFile, Fault> {
        let root = self.export(id.export)?;
        let (is_quick, cache) = (root.directory.is_quick(), &root.cache);
        if is_quick && let Some(file) = cache.get(id) {
            if attributes(&file)?.nlink > 0 {
                return Ok(file);
            }
            // It was removed. It is gone once it is closed, unless others have it open.
            cache.forget(id);
        }
        let (kind, flags) = (i32::from(id.key.kind()), OFlags::PATH.bits() as i32);
        let fd = file_handle::open(root.directory.mount(), kind, id.key.bytes(), flags).map_err(fault)?;
        let file = HostFile::new(fd, id.export);
        if is_quick && attributes(&file)?.nlink > 0 {
            cache.insert(*id, file.clone());
        }
        Ok(file)
    }

    fn key(&mut self, file: &HostFile) -> Result<FileKey, Fault> {
        key(file)
    }

    fn attributes(&mut self, file: &HostFile) -> Result<fattr3, Fault> {
        attributes(file)
    }

    fn permits(&mut self, who: &Caller, file: &HostFile, rights: Rights) -> Result<bool, Fault> {
        let _acting = acting(who)?;
        let access = Access::from_bits_retain(rights.bits());
        let answer = rustix::fs::accessat(&self.exports.descriptors, file.name(), access, AtFlags::EACCESS);
        file.checked.set();
        permitted(answer)
    }

    fn look_up(&mut self, who: &Caller, dir: &HostFile, name: &[u8]) -> Result<HostFile, Fault> {
        let _acting = acting(who)?;
        self.find(dir, name)
    }

    fn parent(&mut self, who: &Caller, export: u32, dir: &HostFile) -> Result<HostFile, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let acting = acting(who)?;
        let fd = rustix::fs::openat(&*dir.fd, "..", flags, Mode::empty()).map_err(above)?;
        drop(acting);
        let parent = HostFile::new(fd, export);
        let root = &self.export(export)?.file;
        if self.is_within(root, &parent)? { Ok(parent) } else { Err(nfsstat3::NFS3ERR_STALE.into()) }
    }

    fn read_link(&mut self, who: &Caller, link: &HostFile, out: &mut Vec<u8>) -> Result<(), Fault> {
        let _acting = acting(who)?;
        let target = rustix::fs::readlinkat(&*link.fd, "", Vec::new()).map_err(fault)?;
        out.extend_from_slice(target.to_bytes());
        Ok(())
    }

    fn read(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &HostFile,
        offset: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (data, _acting) = self.exports.open_data(who, open_as, file, OFlags::RDONLY)?;
        read_into(&data, offset, count, out).map_err(fault)
    }

    fn write(
        &mut self,
        who: &Caller,
        open_as: OpenAs,
        file: &HostFile,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Fault> {
        let (open, acting) = self.exports.open_data(who, open_as, file, OFlags::WRONLY)?;
        let mut len = 0;
        while len < data.len() {
            match rustix::io::pwrite(&open, &data[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(written) => len += written,
                Err(Errno::INTR) => {}
                // What was written is said; the next call says why no more was.
                Err(_) if len > 0 => break,
                Err(errno) => return Err(fault(errno)),
            }
        }
        drop(acting);
        // While it is open here.
        self.export(file.export)?.directory.unsynced().wrote(file, &self.exports.syncs)?;
        Ok(len)
    }

    fn sync(&mut self, file: &HostFile, how: Sync, failed: &mut dyn FnMut()) -> Result<(), Fault> {
        let directory = &self.export(file.export)?.directory;
        if how == Sync::FileSystem {
            return self.exports.syncs.sync_all(file, directory.mount(), failed);
        }
        self.exports.syncs.sync(file, how, directory.unsynced(), failed)
    }

    fn set_size(&mut self, who: &Caller, open_as: OpenAs, file: &HostFile, size: u64) -> Result<(), Fault> {
        let (open, _acting) = self.exports.open_data(who, open_as, file, OFlags::WRONLY)?;
        rustix::fs::ftruncate(&open, size).map_err(fault)
    }

    fn set_owner(
        &mut self,
        who: &Caller,
        file: &HostFile,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Fault> {
        let _acting = acting(who)?;
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(&*file.fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(fault)
    }

    fn set_mode(&mut self, who: &Caller, file: &HostFile, mode: u32) -> Result<(), Fault> {
        let _acting = acting(who)?;
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(&self.exports.descriptors, self.name(file), mode, AtFlags::empty()).map_err(fault)
    }

    fn set_times(
        &mut self,
        who: &Caller,
        file: &HostFile,
        accessed: SetTime,
        modified: SetTime,
    ) -> Result<(), Fault> {
        let _acting = acting(who)?;
        let times = Timestamps { last_access: set_time(accessed), last_modification: set_time(modified) };
        rustix::fs::utimensat(&self.exports.descriptors, self.name(file), &times, AtFlags::empty())
            .map_err(fault)
    }

    fn make(
        &mut self,
        who: &Caller,
        dir: &HostFile,
        name: &[u8],
        what: Make<'_>,
        mode: u32,
    ) -> Result<HostFile, Fault> {
        let _turn = match what {
            Make::File(_) => None,
            _ => Some(self.exports.turn_of(dir)?),
        };
        let _acting = acting(who)?;
        let mode = Mode::from_raw_mode(mode);
        let node = |kind, major, minor| {
            rustix::fs::mknodat(&*dir.fd, name, kind, mode, rustix::fs::makedev(major, minor))
        };
        let made = match what {
            Make::File(Some(times)) => {
                let file = self.make_with_times(dir, name, times, mode)?;
                return self.made(dir, file);
            }
            Make::File(None) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&*dir.fd, name, flags, mode).map_err(fault)?;
                return self.made(dir, file);
            }
            // What has no descriptor from its making is opened by its name below.
            Make::Directory => rustix::fs::mkdirat(&*dir.fd, name, mode),
            Make::Symlink(target) => rustix::fs::symlinkat(target, &*dir.fd, name),
            Make::Block(major, minor) => node(FileType::BlockDevice, major, minor),
            Make::Character(major, minor) => node(FileType::CharacterDevice, major, minor),
            Make::Socket => node(FileType::Socket, 0, 0),
            Make::Fifo => node(FileType::Fifo, 0, 0),
        };
        made.map_err(fault)?;
        let made = find(dir, name, ResolveFlags::empty()).map_err(fault_of_made)?;
        // Another process of this host waits for nobody.
        let is_of_kind = attributes(&made)?.type_ as u32 == kind_of(&what) as u32;
        if is_of_kind { Ok(made) } else { Err(nfsstat3::NFS3ERR_SERVERFAULT.into()) }
    }

    fn remove(&mut self, who: &Caller, dir: &HostFile, name: &[u8]) -> Result<(), Fault> {
        let _turn = self.exports.turn_of(dir)?;
        let _acting = acting(who)?;
        let gone = self.kept(dir, name);
        rustix::fs::unlinkat(&*dir.fd, name, AtFlags::empty()).map_err(fault)?;
        self.forget(gone);
        Ok(())
    }

    fn remove_directory(&mut self, who: &Caller, dir: &HostFile, name: &[u8]) -> Result<(), Fault> {
        let _turn = self.exports.turn_of(dir)?;
        let _acting = acting(who)?;
        let gone = self.kept(dir, name);
        rustix::fs::unlinkat(&*dir.fd, name, AtFlags::REMOVEDIR).map_err(fault)?;
        self.forget(gone);
        Ok(())
    }

    fn rename(
        &mut self,
        who: &Caller,
        from: (&HostFile, &[u8]),
        to: (&HostFile, &[u8]),
    ) -> Result<(), Fault> {
        let _turns = self.exports.turns_of(from.0, to.0)?;
        let _acting = acting(who)?;
        let gone = self.kept(to.0, to.1);
        rustix::fs::renameat(&*from.0.fd, from.1, &*to.0.fd, to.1).map_err(fault)?;
        self.forget(gone);
        Ok(())
    }

    fn link(&mut self, who: &Caller, file: &HostFile, dir: &HostFile, name: &[u8]) -> Result<(), Fault> {
        let _acting = acting(who)?;
        rustix::fs::linkat(
            &self.exports.descriptors,
            self.name(file),
            &*dir.fd,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
        .map_err(fault)
    }

    fn list(
        &mut self,
        who: &Caller,
        dir: &HostFile,
        cookie: u64,
        find: bool,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<bool, Fault> {
        let _acting = acting(who)?;
        let open = self.exports.descriptors.reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY).map_err(fault)?;
        if cookie != 0 {
            let position = SeekFrom::Start(cookie);
            rustix::fs::seek(&open, position).map_err(|_| Fault::Status(nfsstat3::NFS3ERR_BAD_COOKIE))?;
        }
        let mut buffer = std::mem::take(&mut self.entries);
        let listed = self.each_entry(dir, &open, &mut buffer, find, each);
        self.entries = buffer;
        listed
    }

    fn space(&mut self, file: &HostFile) -> Result<Space, Fault> {
        let space = rustix::fs::fstatvfs(&*file.fd).map_err(fault)?;
        Ok(Space {
            total_bytes: space.f_blocks * space.f_frsize,
            free_bytes: space.f_bfree * space.f_frsize,
            available_bytes: space.f_bavail * space.f_frsize,
            total_files: space.f_files,
            free_files: space.f_ffree,
            available_files: space.f_favail,
        })
    }

    fn limits(&mut self, file: &HostFile) -> Result<Limits, Fault> {
        let space = rustix::fs::fstatvfs(&*file.fd).map_err(fault)?;
        Ok(Limits {
            file_max: i64::MAX as u64,
            link_max: LINK_MAX,
            name_max: space.f_namemax as u32,
            time_step_ns: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn attributes_and_handle_of_a_name_are_known_to_be_of_one_file() {
        for folder in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
            let folder = folder.expect("a folder");
            let dir = std::fs::File::open(folder.path()).expect("there");
            let [first, second] = ["first", "second"].map(|name| {
                let file = std::fs::File::create(folder.path().join(name)).expect("made");
                file.metadata().expect("open").ino()
            });
            let (handle, found_in) = FileHandle::at(dir.as_fd(), c"first").expect("it has handles");
            assert!(has_number(&handle, first) && !has_number(&handle, second));
            let stat = rustix::fs::statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).expect("there");
            assert_eq!(u64::try_from(found_in), Ok(stat.stx_mnt_id));
            let (linked, _) = FileHandle::at(dir.as_fd(), c"second").expect("there");
            assert!(has_number(&linked, second) && linked != handle);
        }
    }
}
