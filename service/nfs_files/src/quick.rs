//! Files for a worker: what is open and cached already. Whatever could wait is [`Fault::WouldBlock`], and so is all of a
//! file system whose answers depend on others.

use std::sync::Arc;

use rustix::fs::{Access, AtFlags, ResolveFlags};
use rustix::io::Errno;
use twinpath_nfs::{
    Caller, Fault, FileId, FileKey, Files, Limits, Listed, Make, OpenAs, Rights, SetTime, Space, Sync,
};
use twinpath_rpc::nfs3_types::nfs3::fattr3;

use super::operations::attributes;
use super::{HostExports, HostFile, Root, acting, fault, find, key, permitted};

/// The files of exports, for a worker.
pub struct QuickFiles(Arc<HostExports>);

impl QuickFiles {
    /// The files of these exports; `None`: none of them has any that a worker could use.
    #[must_use]
    pub fn new(exports: &Arc<HostExports>) -> Option<Self> {
        let has_quick = exports.roots.iter().any(|root| root.directory.is_quick());
        has_quick.then(|| Self(Arc::clone(exports)))
    }

    fn quick(&self, export: u32) -> Result<&Root, Fault> {
        let is_here = |root: &&Root| root.number == export && root.directory.is_quick();
        self.0.roots.iter().find(is_here).ok_or(Fault::WouldBlock)
    }
}

impl Files for QuickFiles {
    type File = HostFile;

    fn root(&mut self, _: u32) -> Result<HostFile, Fault> {
        Err(Fault::WouldBlock)
    }

    fn open(&mut self, id: &FileId) -> Result<HostFile, Fault> {
        self.quick(id.export)?.cache.get_at_once(id).ok_or(Fault::WouldBlock)
    }

    fn key(&mut self, file: &HostFile) -> Result<FileKey, Fault> {
        key(file)
    }

    fn attributes(&mut self, file: &HostFile) -> Result<fattr3, Fault> {
        let attributes = attributes(file)?;
        // It was removed, and is here only because it is open: a thread finds out what it is.
        if attributes.nlink == 0 { Err(Fault::WouldBlock) } else { Ok(attributes) }
    }

    fn permits(&mut self, who: &Caller, file: &HostFile, rights: Rights) -> Result<bool, Fault> {
        if !file.checked.is_set() {
            return Err(Fault::WouldBlock);
        }
        let _acting = acting(who)?;
        let access = Access::from_bits_retain(rights.bits());
        let descriptors = &self.0.descriptors;
        permitted(rustix::fs::accessat(descriptors, file.name(), access, AtFlags::EACCESS))
    }

    fn look_up(&mut self, who: &Caller, dir: &HostFile, name: &[u8]) -> Result<HostFile, Fault> {
        let cache = &self.quick(dir.export)?.cache;
        if cache.closer().is_behind() {
            return Err(Fault::WouldBlock);
        }
        let found = {
            let _acting = acting(who)?;
            find(dir, name, ResolveFlags::CACHED)
        };
        let mut found = match found {
            Err(Errno::AGAIN) => return Err(Fault::WouldBlock),
            found => found.map_err(fault)?,
        };
        // Somebody may remove it meanwhile: then whoever closes it frees it.
        found.fd.close_by(cache.closer());
        let id = FileId { export: dir.export, key: key(&found)? };
        Ok(cache.share_at_once(id, found))
    }

    fn parent(&mut self, _: &Caller, _: u32, _: &HostFile) -> Result<HostFile, Fault> {
        Err(Fault::WouldBlock)
    }

    fn read_link(&mut self, _: &Caller, _: &HostFile, _: &mut Vec<u8>) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn read(
        &mut self,
        _: &Caller,
        _: OpenAs,
        _: &HostFile,
        _: u64,
        _: usize,
        _: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn write(&mut self, _: &Caller, _: OpenAs, _: &HostFile, _: u64, _: &[u8]) -> Result<usize, Fault> {
        Err(Fault::WouldBlock)
    }

    fn sync(&mut self, _: &HostFile, _: Sync, _: &mut dyn FnMut()) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn set_size(&mut self, _: &Caller, _: OpenAs, _: &HostFile, _: u64) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn set_owner(&mut self, _: &Caller, _: &HostFile, _: Option<u32>, _: Option<u32>) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn set_mode(&mut self, _: &Caller, _: &HostFile, _: u32) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn set_times(&mut self, _: &Caller, _: &HostFile, _: SetTime, _: SetTime) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn make(&mut self, _: &Caller, _: &HostFile, _: &[u8], _: Make<'_>, _: u32) -> Result<HostFile, Fault> {
        Err(Fault::WouldBlock)
    }

    fn remove(&mut self, _: &Caller, _: &HostFile, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn remove_directory(&mut self, _: &Caller, _: &HostFile, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn rename(&mut self, _: &Caller, _: (&HostFile, &[u8]), _: (&HostFile, &[u8])) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn link(&mut self, _: &Caller, _: &HostFile, _: &HostFile, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn list(
        &mut self,
        _: &Caller,
        _: &HostFile,
        _: u64,
        _: bool,
        _: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<bool, Fault> {
        Err(Fault::WouldBlock)
    }

    fn space(&mut self, _: &HostFile) -> Result<Space, Fault> {
        Err(Fault::WouldBlock)
    }

    fn limits(&mut self, _: &HostFile) -> Result<Limits, Fault> {
        Err(Fault::WouldBlock)
    }
}
