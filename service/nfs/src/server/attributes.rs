//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use twinpath_rpc::nfs3_types::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, Nfs3Option, fattr3, ftype3, nfsstat3,
    nfstime3, sattr3, set_atime, set_mtime,
};
use twinpath_rpc::nfs3_types::xdr_codec::{Pack, Unpack};

use super::{OFFSET_MAX, Opened, Turn, regular};
use crate::caller::NOBODY_AT_ALL;
use crate::files::{Fault, Files, Rights, SetTime, Sync};
use crate::reply::Reply;

/// Permission bits of a mode, with set-user-id, set-group-id and sticky.
const MODE_BITS: u32 = 0o7777;
/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;
/// Data of this multiple is read and written fastest, bytes: a page.
const MULTIPLE: u32 = 4096;

/// The value of an option of the library.
pub(super) fn option<T: Pack + Unpack + Copy>(value: &Nfs3Option<T>) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(*value),
        Nfs3Option::None => None,
    }
}

/// The mode in attributes; nothing is allowed where none is given.
pub(super) fn mode(new: &sattr3) -> u32 {
    option(&new.mode).unwrap_or(0) & MODE_BITS
}

fn accessed(new: &sattr3) -> SetTime {
    match new.atime {
        set_atime::DONT_CHANGE => SetTime::Keep,
        set_atime::SET_TO_SERVER_TIME => SetTime::Now,
        set_atime::SET_TO_CLIENT_TIME(time) => SetTime::To(time),
    }
}

fn modified(new: &sattr3) -> SetTime {
    match new.mtime {
        set_mtime::DONT_CHANGE => SetTime::Keep,
        set_mtime::SET_TO_SERVER_TIME => SetTime::Now,
        set_mtime::SET_TO_CLIENT_TIME(time) => SetTime::To(time),
    }
}

/// Checks attributes that are to be set, before any of them is.
pub(super) fn check(new: &sattr3) -> Result<(), Fault> {
    let is_bad = |time| matches!(time, SetTime::To(nfstime3 { nseconds: SECOND_NS.., .. }));
    let ids = [option(&new.uid), option(&new.gid)];
    if is_bad(accessed(new)) || is_bad(modified(new)) || ids.contains(&Some(NOBODY_AT_ALL)) {
        return Err(nfsstat3::NFS3ERR_INVAL.into());
    }
    if option(&new.size).is_some_and(|size| size > OFFSET_MAX) {
        return Err(nfsstat3::NFS3ERR_FBIG.into());
    }
    Ok(())
}

impl<F: Files> Turn<'_, '_, F> {
    pub(super) fn getattr(&mut self, object: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.open(object)?;
        let attributes = self.files.attributes(&opened.file)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_attributes(&attributes);
        Ok(())
    }

    /// SETATTR (RFC 1813, 3.3.2). The guard is compared only if there is one.
    pub(super) fn setattr(
        &mut self,
        object: &[u8],
        new: &sattr3,
        guard: Option<nfstime3>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let (opened, attributes) = self.change(object)?;
        if guard.is_some_and(|ctime| ctime != attributes.ctime) {
            return Err(nfsstat3::NFS3ERR_NOT_SYNC.into());
        }
        check(new)?;
        if let Some(size) = option(&new.size) {
            regular(&attributes)?;
            self.resize(&opened, &attributes, size)?;
        }
        self.set_rest(&opened, &opened.file, new)?;
        if let Some(mode) = option(&new.mode) {
            self.files.set_mode(&opened.who, &opened.file, mode & MODE_BITS)?;
        }
        self.set_times(&opened, &opened.file, new)?;
        let is_opened = matches!(attributes.type_, ftype3::NF3REG | ftype3::NF3DIR);
        let how = if is_opened { Sync::All } else { Sync::FileSystem };
        self.settle(opened.export, &opened.file, how)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_wcc(&self.first_wcc());
        Ok(())
    }

    /// Sets the length of a regular file.
    pub(super) fn resize(
        &mut self,
        opened: &Opened<'_, F::File>,
        attributes: &fattr3,
        size: u64,
    ) -> Result<(), Fault> {
        self.as_owner(&opened.who, attributes, |files, open_as| {
            files.set_size(&opened.who, open_as, &opened.file, size)
        })
    }

    /// Sets owner and group. It comes before the mode, as the kernel takes set-user-id away with a new owner.
    pub(super) fn set_rest(
        &mut self,
        opened: &Opened<'_, F::File>,
        file: &F::File,
        new: &sattr3,
    ) -> Result<(), Fault> {
        let (uid, gid) = (option(&new.uid), option(&new.gid));
        if uid.is_some() || gid.is_some() {
            self.files.set_owner(&opened.who, file, uid, gid)?;
        }
        Ok(())
    }

    /// Sets times. It comes last, as other changes set them.
    pub(super) fn set_times(
        &mut self,
        opened: &Opened<'_, F::File>,
        file: &F::File,
        new: &sattr3,
    ) -> Result<(), Fault> {
        let (accessed, modified) = (accessed(new), modified(new));
        if (accessed, modified) != (SetTime::Keep, SetTime::Keep) {
            self.files.set_times(&opened.who, file, accessed, modified)?;
        }
        Ok(())
    }

    /// ACCESS (RFC 1813, 3.3.4): of what is asked, what the kernel would allow.
    pub(super) fn access(&mut self, object: &[u8], asked: u32, reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.watch(object)?;
        let attributes = self.files.attributes(&opened.file)?;
        let change = Rights::WRITE.and(Rights::EXECUTE);
        let is_directory = matches!(attributes.type_, ftype3::NF3DIR);
        let rules: &[(u32, Rights)] = if is_directory {
            &[
                (ACCESS3_READ, Rights::READ),
                (ACCESS3_LOOKUP, Rights::EXECUTE),
                (ACCESS3_MODIFY, change),
                (ACCESS3_EXTEND, change),
                (ACCESS3_DELETE, change),
            ]
        } else {
            &[
                (ACCESS3_READ, Rights::READ),
                (ACCESS3_MODIFY, Rights::WRITE),
                (ACCESS3_EXTEND, Rights::WRITE),
                (ACCESS3_EXECUTE, Rights::EXECUTE),
            ]
        };
        let mut allowed = 0;
        for (bit, rights) in rules.iter().filter(|(bit, _)| asked & bit != 0) {
            let is_change = rights.bits() & Rights::WRITE.bits() != 0;
            if is_change && opened.export.is_read_only {
                continue;
            }
            if self.files.permits(&opened.who, &opened.file, *rights)? {
                allowed |= bit;
            }
        }
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op(Some(&attributes));
        reply.write_u32(allowed);
        Ok(())
    }

    /// FSSTAT (RFC 1813, 3.3.18).
    pub(super) fn fsstat(&mut self, root: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.watch(root)?;
        let space = self.files.space(&opened.file)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op(self.first_wcc().after.as_ref());
        let bytes = [space.total_bytes, space.free_bytes, space.available_bytes];
        let files = [space.total_files, space.free_files, space.available_files];
        bytes.into_iter().chain(files).for_each(|value| reply.write_u64(value));
        // For how many seconds these are expected to hold: not at all.
        reply.write_u32(0);
        Ok(())
    }

    /// FSINFO (RFC 1813, 3.3.19).
    pub(super) fn fsinfo(&mut self, root: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.watch(root)?;
        let limits = self.files.limits(&opened.file)?;
        let sizes = self.context.sizes;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op(self.first_wcc().after.as_ref());
        for max in [sizes.read_max, sizes.write_max] {
            // The most, the preferred, the best multiple.
            [max, max, MULTIPLE].into_iter().for_each(|value| reply.write_u32(value));
        }
        reply.write_u32(sizes.directory_max);
        reply.write_u64(limits.file_max);
        reply.write_time(nfstime3 { seconds: 0, nseconds: limits.time_step_ns });
        reply.write_u32(FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);
        Ok(())
    }

    /// PATHCONF (RFC 1813, 3.3.20).
    pub(super) fn pathconf(&mut self, object: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.watch(object)?;
        let limits = self.files.limits(&opened.file)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op(self.first_wcc().after.as_ref());
        reply.write_u32(limits.link_max);
        reply.write_u32(limits.name_max);
        // A longer name is an error; files are not given away; case matters, and is kept.
        [1, 1, 0, 1].into_iter().for_each(|value| reply.write_u32(value));
        Ok(())
    }
}
