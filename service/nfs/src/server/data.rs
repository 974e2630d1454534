//! READ, WRITE, COMMIT, READLINK.

use twinpath_rpc::nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, stable_how};

use super::{OFFSET_MAX, Opened, TARGET_MAX, Turn, regular};
use crate::files::{Fault, Files, OpenAs, Rights, Sync};
use crate::reply::Reply;

impl<F: Files> Turn<'_, '_, F> {
    /// READLINK (RFC 1813, 3.3.5).
    pub(super) fn read_link(&mut self, symlink: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let opened = self.watch(symlink)?;
        let attributes = self.files.attributes(&opened.file)?;
        if !matches!(attributes.type_, ftype3::NF3LNK) {
            return Err(nfsstat3::NFS3ERR_INVAL.into());
        }
        reply.write_status(nfsstat3::NFS3_OK);
        let head = reply.reserve(1);
        let data = reply.len();
        self.files.read_link(&opened.who, &opened.file, reply.buffer())?;
        let len = reply.len() - data;
        if len > TARGET_MAX {
            return Err(nfsstat3::NFS3ERR_NAMETOOLONG.into());
        }
        reply.pad(len);
        reply.fill(&head, &attributes, &[len as u32]);
        Ok(())
    }

    /// READ (RFC 1813, 3.3.6). The data goes where it is sent from; attributes are of the time after it.
    pub(super) fn read(
        &mut self,
        file: &[u8],
        offset: u64,
        count: u32,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let opened = self.watch(file)?;
        let attributes = self.files.attributes(&opened.file)?;
        regular(&attributes)?;
        let room = OFFSET_MAX.saturating_sub(offset);
        let count = u64::from(count.min(self.context.sizes.read_max)).min(room) as usize;
        reply.write_status(nfsstat3::NFS3_OK);
        // The count, the mark of the end, the length of the data.
        let head = reply.reserve(3);
        let data = reply.len();
        let who = &opened.who;
        let out = reply.buffer();
        let start = out.len();
        let mut read = |files: &mut F, open_as| {
            out.truncate(start);
            files.read(who, open_as, &opened.file, offset, count, out)
        };
        match self.as_owner(who, &attributes, &mut read) {
            // Whoever may run a file may read it: a client reads it to run it (RFC 1813, 4.4).
            Err(Fault::Status(nfsstat3::NFS3ERR_ACCES))
                if self.files.permits(who, &opened.file, Rights::EXECUTE)? =>
            {
                read(self.files, OpenAs::Server)?;
            }
            other => other?,
        }
        reply.truncate((data + count).min(reply.len()));
        let len = reply.len() - data;
        let after = self.files.attributes(&opened.file)?;
        let is_end = (len == 0 && count > 0) || offset.saturating_add(len as u64) >= after.size;
        reply.pad(len);
        reply.fill(&head, &after, &[len as u32, u32::from(is_end), len as u32]);
        Ok(())
    }

    /// WRITE (RFC 1813, 3.3.7). The verifier is taken before the data is written: a sync that fails later shows.
    pub(super) fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        stable: stable_how,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let (opened, attributes) = self.change(file)?;
        regular(&attributes)?;
        let verifier = self.server.verifier.now();
        let data = &data[..data.len().min(self.context.sizes.write_max as usize)];
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > OFFSET_MAX) {
            return Err(nfsstat3::NFS3ERR_FBIG.into());
        }
        let written = if data.is_empty() {
            self.may_write(&opened, &attributes)?;
            0
        } else {
            self.as_owner(&opened.who, &attributes, |files, open_as| {
                files.write(&opened.who, open_as, &opened.file, offset, data)
            })?
        };
        match stable {
            stable_how::UNSTABLE => {}
            stable_how::DATA_SYNC => self.settle(opened.export, &opened.file, Sync::Data)?,
            stable_how::FILE_SYNC => self.settle(opened.export, &opened.file, Sync::All)?,
        }
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_wcc(&self.first_wcc());
        reply.write_u32(written as u32);
        reply.write_u32(stable as u32);
        reply.write(&verifier);
        Ok(())
    }

    /// Checks that the caller may write to a file or owns it, where nothing is written that would show it. Otherwise
    /// whoever finds a file could have it synced, and calls of its owner would wait behind that. The kernel's server
    /// asks for the same right (`nfsd_commit` in fs/nfsd/vfs.c).
    fn may_write(&mut self, opened: &Opened<'_, F::File>, attributes: &fattr3) -> Result<(), Fault> {
        let is_owner = attributes.uid == opened.who.uid;
        if is_owner || self.files.permits(&opened.who, &opened.file, Rights::WRITE)? {
            return Ok(());
        }
        Err(nfsstat3::NFS3ERR_ACCES.into())
    }

    /// COMMIT (RFC 1813, 3.3.21) of the whole file. The verifier is taken after the sync.
    pub(super) fn commit(&mut self, file: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
        let (opened, attributes) = self.change(file)?;
        regular(&attributes)?;
        self.may_write(&opened, &attributes)?;
        self.settle(opened.export, &opened.file, Sync::All)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_wcc(&self.first_wcc());
        reply.write(&self.server.verifier.now());
        Ok(())
    }
}
