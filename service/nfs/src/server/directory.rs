//! LOOKUP, READDIR, READDIRPLUS, REMOVE, RMDIR, RENAME, LINK.

use twinpath_rpc::nfs3_types::nfs3::{ftype3, nfsstat3};
use twinpath_rpc::xdr::padding;

use super::{Opened, Turn, directory, proper, well_formed, writable};
use crate::call::Name;
use crate::files::{Fault, Files, Listed, Rights, Sync};
use crate::handle::{FileId, FileKey, Handle, HandleSecret};
use crate::reply::Reply;

/// The end of a list and the mark of the end of a directory, bytes.
const TAIL_LEN: usize = 8;
/// Length of an entry without its name: a mark, the file's number, the length of the name, the cookie, bytes.
const ENTRY_LEN: usize = 24;
/// Length of an optional value that is absent, and of one that is there in front of it, bytes.
const MARK_LEN: usize = 4;
/// Length of attributes that are there, bytes.
const ATTRIBUTES_LEN: usize = MARK_LEN + 84;
/// A verifier that a client has of nobody.
const NO_VERIFIER: [u8; 8] = [0; 8];

/// What of a directory is asked for.
pub(super) struct Listing<'a> {
    pub(super) cookie: u64,
    pub(super) verifier: &'a [u8; 8],
    /// For READDIRPLUS, the most bytes of names and numbers.
    pub(super) plus: Option<u32>,
    /// The most bytes of the results behind the status.
    pub(super) bytes: u32,
}

/// Entries as they are written into a reply.
struct Entries<'r, 'b> {
    reply: &'r mut Reply<'b>,
    secret: &'r HandleSecret,
    export: u32,
    /// Where the results may end, with the tail.
    end: usize,
    /// The bytes of names and numbers left.
    names: usize,
    is_plus: bool,
    /// If it is the root: its number, which is that of its parent for clients.
    root: Option<u64>,
    count: usize,
}

impl Entries<'_, '_> {
    /// Writes an entry, or returns false if it does not fit.
    fn write(&mut self, entry: &Listed<'_>) -> bool {
        let name_len = entry.name.len() + padding(entry.name.len());
        let found = entry.found.as_ref().filter(|_| entry.name != b"..");
        let handle = found.map(|(_, key)| self.handle(key));
        let plus_len = match (&handle, self.is_plus) {
            (_, false) => 0,
            (None, true) => 2 * MARK_LEN,
            (Some(handle), true) => ATTRIBUTES_LEN + 2 * MARK_LEN + handle.bytes().len().next_multiple_of(4),
        };
        let entry_len = ENTRY_LEN + name_len;
        let fits = self.reply.len() + entry_len + plus_len + TAIL_LEN <= self.end;
        if !fits || (self.count > 0 && entry_len > self.names) {
            return false;
        }
        self.names = self.names.saturating_sub(entry_len);
        self.count += 1;
        self.reply.write_present();
        self.reply.write_u64(self.root.filter(|_| entry.name == b"..").unwrap_or(entry.fileid));
        self.reply.write_opaque(entry.name);
        self.reply.write_u64(entry.cookie);
        if self.is_plus {
            self.reply.write_post_op(found.map(|(attributes, _)| attributes));
            match &handle {
                Some(handle) => self.reply.write_post_op_handle(handle.bytes()),
                None => self.reply.write_absent(),
            }
        }
        true
    }

    fn handle(&self, key: &FileKey) -> Handle {
        self.secret.handle(&FileId { export: self.export, key: *key })
    }
}

impl<F: Files> Turn<'_, '_, F> {
    /// LOOKUP (RFC 1813, 3.3.3). The parent of the root is the root.
    pub(super) fn look_up(&mut self, what: Name<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
        let dir = self.watch(what.dir)?;
        well_formed(what.name)?;
        let file = match what.name {
            b"." | b".." => self.dots(&dir, what.name)?,
            name => self.files.look_up(&dir.who, &dir.file, name)?,
        };
        let attributes = self.files.attributes(&file)?;
        let handle = self.handle_of(&dir, &file)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_opaque(handle.bytes());
        reply.write_post_op(Some(&attributes));
        reply.write_post_op(self.first_wcc().after.as_ref());
        Ok(())
    }

    /// A directory by `.`, or its parent.
    fn dots(&mut self, dir: &Opened<'_, F::File>, name: &[u8]) -> Result<F::File, Fault> {
        directory(&self.files.attributes(&dir.file)?)?;
        if !self.files.permits(&dir.who, &dir.file, Rights::EXECUTE)? {
            return Err(nfsstat3::NFS3ERR_ACCES.into());
        }
        if name == b"." || self.is_root(dir)? {
            return Ok(dir.file.clone());
        }
        self.files.parent(&dir.who, dir.export.number, &dir.file)
    }

    fn is_root(&mut self, dir: &Opened<'_, F::File>) -> Result<bool, Fault> {
        let root = self.files.root(dir.export.number)?;
        Ok(self.files.key(&root)? == dir.id.key)
    }

    /// The handle of a file in the export of `dir`.
    pub(super) fn handle_of(&mut self, dir: &Opened<'_, F::File>, file: &F::File) -> Result<Handle, Fault> {
        let key = self.files.key(file)?;
        Ok(self.server.secret.handle(&FileId { export: dir.export.number, key }))
    }

    /// READDIR and READDIRPLUS (RFC 1813, 3.3.16 and 3.3.17). Cookies are positions of the file system, which hold for
    /// as long as the directory does: so does the verifier. A client that sends none is believed.
    pub(super) fn list(
        &mut self,
        handle: &[u8],
        listing: &Listing<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let dir = self.watch(handle)?;
        let attributes = self.files.attributes(&dir.file)?;
        directory(&attributes)?;
        let verifier = self.server.secret.verifier(b"cookies", &dir.id);
        let is_ours = *listing.verifier == verifier || *listing.verifier == NO_VERIFIER;
        if listing.cookie != 0 && !is_ours {
            return Err(nfsstat3::NFS3ERR_BAD_COOKIE.into());
        }
        let root = self.is_root(&dir)?.then_some(attributes.fileid);
        reply.write_status(nfsstat3::NFS3_OK);
        let start = reply.len();
        reply.write_post_op(Some(&attributes));
        reply.write(&verifier);
        let bytes = listing.bytes.min(self.context.sizes.directory_max) as usize;
        let mut entries = Entries {
            end: start + bytes,
            reply,
            secret: &self.server.secret,
            export: dir.export.number,
            names: listing.plus.map_or(usize::MAX, |bytes| bytes as usize),
            is_plus: listing.plus.is_some(),
            root,
            count: 0,
        };
        let is_plus = entries.is_plus;
        let mut each = |entry: &Listed<'_>| entries.write(entry);
        let is_end = self.files.list(&dir.who, &dir.file, listing.cookie, is_plus, &mut each)?;
        let count = entries.count;
        if (count == 0 && !is_end) || start + bytes < reply.len() + TAIL_LEN {
            return Err(nfsstat3::NFS3ERR_TOOSMALL.into());
        }
        reply.write_absent();
        reply.write_u32(u32::from(is_end));
        Ok(())
    }

    /// REMOVE and RMDIR (RFC 1813, 3.3.12 and 3.3.13).
    pub(super) fn remove(
        &mut self,
        what: Name<'_>,
        is_directory: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let (dir, attributes) = self.change(what.dir)?;
        directory(&attributes)?;
        let dots = if what.name == b".." { nfsstat3::NFS3ERR_EXIST } else { nfsstat3::NFS3ERR_INVAL };
        proper(what.name, dots)?;
        if is_directory {
            self.files.remove_directory(&dir.who, &dir.file, what.name)?;
        } else {
            self.files.remove(&dir.who, &dir.file, what.name)?;
        }
        self.is_named = true;
        self.settle(dir.export, &dir.file, Sync::All)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_wcc(&self.first_wcc());
        Ok(())
    }

    /// Checks that the second handle of a call is of the export of the first, without its file. The call waits on the
    /// threads of the first: a file system of another export that does not answer must not hold them.
    fn same_export(&self, first: &Opened<'_, F::File>, second: &[u8]) -> Result<(), Fault> {
        let number = self.server.export_of(second, self.context.peer)?.number;
        if number == first.export.number { Ok(()) } else { Err(nfsstat3::NFS3ERR_XDEV.into()) }
    }

    /// RENAME (RFC 1813, 3.3.14).
    pub(super) fn rename(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let (old, old_attributes) = self.change(from.dir)?;
        self.same_export(&old, to.dir)?;
        let (new, new_attributes) = self.change_second(to.dir)?;
        directory(&old_attributes)?;
        directory(&new_attributes)?;
        proper(from.name, nfsstat3::NFS3ERR_INVAL)?;
        proper(to.name, nfsstat3::NFS3ERR_INVAL)?;
        self.files.rename(&old.who, (&old.file, from.name), (&new.file, to.name))?;
        self.is_named = true;
        self.settle(new.export, &new.file, Sync::All)?;
        if old.id != new.id {
            self.settle(old.export, &old.file, Sync::All)?;
        }
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_wcc(&self.first_wcc());
        reply.write_wcc(&self.second_wcc());
        Ok(())
    }

    /// LINK (RFC 1813, 3.3.15).
    pub(super) fn link(&mut self, file: &[u8], link: Name<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
        let old = self.watch(file)?;
        writable(&old)?;
        self.same_export(&old, link.dir)?;
        let (dir, attributes) = self.change_second(link.dir)?;
        directory(&attributes)?;
        proper(link.name, nfsstat3::NFS3ERR_EXIST)?;
        self.files.link(&dir.who, &old.file, &dir.file, link.name)?;
        self.is_named = true;
        // Its number of links, on file systems whose sync of a directory leaves that out.
        if matches!(self.files.attributes(&old.file)?.type_, ftype3::NF3REG) {
            self.settle(old.export, &old.file, Sync::All)?;
        }
        self.settle(dir.export, &dir.file, Sync::All)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op(self.first_wcc().after.as_ref());
        reply.write_wcc(&self.second_wcc());
        Ok(())
    }
}
