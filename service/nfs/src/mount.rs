//! MOUNT versions 1 and 3 (RFC 1813, appendix I; RFC 1094, appendix A): a client gets the handle of a directory.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use twinpath_rpc::Refusal;
use twinpath_rpc::nfs3_types::mount::{MNTPATHLEN, MOUNT_PROGRAM, VERSION, mountstat3};
use twinpath_rpc::nfs3_types::nfs3::{ftype3, nfsstat3};
use twinpath_rpc::nfs3_types::rpc::auth_flavor;
use twinpath_rpc::xdr::Reader;

use crate::export::Export;
use crate::files::{Fault, Files};
use crate::handle::{FileId, Handle};
use crate::reply::Reply;
use crate::server::{Context, Server, WouldBlock};

/// The flavours of credentials that files take, in order of preference.
const FLAVOURS: [u32; 2] = [auth_flavor::AUTH_UNIX as u32, auth_flavor::AUTH_NULL as u32];
/// Length of the longest name in a path, bytes.
const NAME_MAX: usize = 255;

/// Length of the longest address in text, bytes, in whole words.
const ADDRESS_MAX: usize = 48;

/// A call of MOUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountCall<'a> {
    /// NULL.
    Null,
    /// MNT of a path.
    Mount(&'a [u8]),
    /// DUMP.
    Dump,
    /// UMNT of a path.
    Unmount(&'a [u8]),
    /// UMNTALL.
    UnmountAll,
    /// EXPORT.
    Export,
}

impl<'a> MountCall<'a> {
    /// Decodes the arguments of a procedure. They are the same in versions 1 and 3.
    ///
    /// # Errors
    /// PROC_UNAVAIL: there is no such procedure. GARBAGE_ARGS: no path, or one that is longer than the RFC allows.
    pub fn read(procedure: u32, args: &'a [u8]) -> Result<Self, Refusal> {
        const NULL: u32 = MOUNT_PROGRAM::MOUNTPROC3_NULL as u32;
        const MNT: u32 = MOUNT_PROGRAM::MOUNTPROC3_MNT as u32;
        const DUMP: u32 = MOUNT_PROGRAM::MOUNTPROC3_DUMP as u32;
        const UMNT: u32 = MOUNT_PROGRAM::MOUNTPROC3_UMNT as u32;
        const UMNTALL: u32 = MOUNT_PROGRAM::MOUNTPROC3_UMNTALL as u32;
        const EXPORT: u32 = MOUNT_PROGRAM::MOUNTPROC3_EXPORT as u32;
        let path = || Reader::new(args).opaque(MNTPATHLEN as u32);
        Ok(match procedure {
            NULL => Self::Null,
            MNT => Self::Mount(path()?),
            DUMP => Self::Dump,
            UMNT => Self::Unmount(path()?),
            UMNTALL => Self::UnmountAll,
            EXPORT => Self::Export,
            _ => return Err(Refusal::ProcedureUnavailable),
        })
    }
}

/// Who has mounted what, as clients said it (RFC 1813, appendix I): for DUMP alone. A client that crashed stays in it.
/// Threads share it.
#[derive(Debug, Default)]
pub struct Mounts {
    entries: Mutex<Vec<(IpAddr, Vec<u8>)>>,
    max: usize,
}

impl Mounts {
    /// A list of at most `max` mounts. In place of one more, the oldest is forgotten.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { entries: Mutex::new(Vec::new()), max }
    }

    /// Length of the longest list, bytes: for each mount two marks, an address, and a path.
    pub(crate) const fn listed_max(&self) -> usize {
        4 + self.max * (4 + (4 + ADDRESS_MAX) + (4 + MNTPATHLEN))
    }

    /// The entries; the lock is held for a search and never while a file system works.
    fn entries(&self) -> MutexGuard<'_, Vec<(IpAddr, Vec<u8>)>> {
        // No code under this lock panics halfway.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, client: IpAddr, path: &[u8]) {
        self.remove(client, path);
        let mut entries = self.entries();
        if entries.len() >= self.max && !entries.is_empty() {
            entries.remove(0);
        }
        if self.max > 0 {
            entries.push((client, path.to_vec()));
        }
    }

    fn remove(&self, client: IpAddr, path: &[u8]) {
        self.entries().retain(|(other, mounted)| *other != client || mounted != path);
    }

    fn remove_all(&self, client: IpAddr) {
        self.entries().retain(|(other, _)| *other != client);
    }
}

impl Server {
    /// Carries MNT out, and appends its results to `out`.
    ///
    /// # Errors
    /// The file system must not wait, and would have to. `out` is as before.
    pub fn mount<F: Files>(
        &self,
        files: &mut F,
        mounts: &Mounts,
        context: &Context,
        version: u32,
        path: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), WouldBlock> {
        let mut reply = Reply::new(out);
        if let Err(status) = self.mount_place(context, version, path) {
            reply.write_u32(status as u32);
            return Ok(());
        }
        match self.root_of(files, context, path) {
            Ok(handle) => {
                mounts.add(context.peer.ip().to_canonical(), path);
                reply.write_u32(mountstat3::MNT3_OK as u32);
                reply.write_opaque(handle.bytes());
                reply.write_u32(FLAVOURS.len() as u32);
                FLAVOURS.iter().for_each(|flavour| reply.write_u32(*flavour));
            }
            Err(Denial::WouldBlock) => return Err(WouldBlock),
            Err(Denial::Status(status)) => reply.write_u32(status as u32),
        }
        Ok(())
    }

    /// The place among all exports of the one that MNT of a path asks for.
    ///
    /// # Errors
    /// There is none, or this client may not use it: this is the status of MNT, and no file system has to be asked.
    pub fn mount_place(&self, context: &Context, version: u32, path: &[u8]) -> Result<u32, mountstat3> {
        if version < VERSION {
            // Handles of former versions are of NFS version 2, which is not served.
            return Err(mountstat3::MNT3ERR_ACCES);
        }
        if path.contains(&0) {
            return Err(mountstat3::MNT3ERR_INVAL);
        }
        let (export, _) = self.exports.of_path(path).ok_or(mountstat3::MNT3ERR_NOENT)?;
        export.admit(context.peer).map_err(|_| mountstat3::MNT3ERR_ACCES)?;
        self.exports.place_of(export.number).ok_or(mountstat3::MNT3ERR_NOENT)
    }

    /// Carries another call of MOUNT out, which needs no file system, and appends its results to `out`.
    pub fn answer_mount(&self, mounts: &Mounts, context: &Context, call: MountCall<'_>, out: &mut Vec<u8>) {
        let client = context.peer.ip().to_canonical();
        let mut reply = Reply::new(out);
        match call {
            MountCall::Null | MountCall::Mount(_) => {}
            MountCall::Dump => self.dump(mounts, client, &mut reply),
            MountCall::Unmount(path) => mounts.remove(client, path),
            MountCall::UnmountAll => mounts.remove_all(client),
            MountCall::Export => self.list_exports(client, &mut reply),
        }
    }

    /// The handle of the directory at a path, which is an export that this client may use, or within one.
    fn root_of<F: Files>(&self, files: &mut F, context: &Context, path: &[u8]) -> Result<Handle, Denial> {
        let (export, names) = self.exports.of_path(path).ok_or(Denial::Status(mountstat3::MNT3ERR_NOENT))?;
        let who = export.caller(context.claimed.as_ref());
        let mut file = files.root(export.number)?;
        for name in names {
            match name {
                b"." => continue,
                b".." => return Err(Denial::Status(mountstat3::MNT3ERR_INVAL)),
                name if name.len() > NAME_MAX => return Err(Denial::Status(mountstat3::MNT3ERR_NAMETOOLONG)),
                name => file = files.look_up(&who, &file, name)?,
            }
        }
        if !matches!(files.attributes(&file)?.type_, ftype3::NF3DIR) {
            return Err(Denial::Status(mountstat3::MNT3ERR_NOTDIR));
        }
        let key = files.key(&file)?;
        Ok(self.secret.handle(&FileId { export: export.number, key }))
    }

    /// The exports that a client may know of.
    fn list_exports(&self, client: IpAddr, reply: &mut Reply<'_>) {
        for export in self.exports.iter().filter(|export| export.is_for(client)) {
            reply.write_present();
            reply.write_opaque(&export.path);
            for network in &export.clients {
                reply.write_present();
                reply.write_opaque(network.to_string().as_bytes());
            }
            reply.write_absent();
        }
        reply.write_absent();
    }

    /// The mounts of the exports that a client may know of.
    fn dump(&self, mounts: &Mounts, client: IpAddr, reply: &mut Reply<'_>) {
        let is_shown = |path: &[u8]| {
            self.exports.of_path(path).is_some_and(|(export, _): (&Export, _)| export.is_for(client))
        };
        for (other, path) in mounts.entries().iter().filter(|(_, path)| is_shown(path)) {
            reply.write_present();
            reply.write_opaque(other.to_string().as_bytes());
            reply.write_opaque(path);
        }
        reply.write_absent();
    }
}

/// Why there is no handle.
enum Denial {
    Status(mountstat3),
    WouldBlock,
}

impl From<Fault> for Denial {
    /// Each error keeps its name, where MOUNT has one.
    fn from(fault: Fault) -> Self {
        let Fault::Status(status) = fault else { return Self::WouldBlock };
        Self::Status(match status {
            nfsstat3::NFS3ERR_PERM => mountstat3::MNT3ERR_PERM,
            nfsstat3::NFS3ERR_NOENT | nfsstat3::NFS3ERR_STALE => mountstat3::MNT3ERR_NOENT,
            nfsstat3::NFS3ERR_IO => mountstat3::MNT3ERR_IO,
            nfsstat3::NFS3ERR_ACCES => mountstat3::MNT3ERR_ACCES,
            nfsstat3::NFS3ERR_NOTDIR => mountstat3::MNT3ERR_NOTDIR,
            nfsstat3::NFS3ERR_INVAL => mountstat3::MNT3ERR_INVAL,
            nfsstat3::NFS3ERR_NAMETOOLONG => mountstat3::MNT3ERR_NAMETOOLONG,
            nfsstat3::NFS3ERR_NOTSUPP => mountstat3::MNT3ERR_NOTSUPP,
            _ => mountstat3::MNT3ERR_SERVERFAULT,
        })
    }
}
