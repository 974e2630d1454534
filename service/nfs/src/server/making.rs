//! CREATE, MKDIR, SYMLINK, MKNOD.

use twinpath_rpc::nfs3_types::nfs3::{
    createhow3, devicedata3, ftype3, mknoddata3, nfsstat3, nfstime3, sattr3,
};

use super::attributes::{check, mode, option};
use super::{Opened, TARGET_MAX, Turn, directory, proper};
use crate::call::{CreateAt, Name};
use crate::files::{Fault, Files, Make, Sync};
use crate::reply::Reply;

/// The seconds that every file system keeps in a time, bits.
const SECONDS_BITS: u32 = 31;
/// A part of a second that also coarse times keep, ns.
const HALF_SECOND_NS: u32 = 500_000_000;

/// The times that keep the verifier of an exclusive CREATE with the file, across a restart (RFC 1813, 3.3.8): all 64
/// bits of it. Some file systems end their times in 2038, so a half of a second has the highest bit of each word.
pub(super) fn times_of(verifier: [u8; 8]) -> (nfstime3, nfstime3) {
    let [accessed, modified] = [0, 4].map(|at| {
        let word = u32::from_be_bytes([verifier[at], verifier[at + 1], verifier[at + 2], verifier[at + 3]]);
        let seconds = word & ((1 << SECONDS_BITS) - 1);
        nfstime3 { seconds, nseconds: (word >> SECONDS_BITS) * HALF_SECOND_NS }
    });
    (accessed, modified)
}

impl<'s, F: Files> Turn<'s, '_, F> {
    /// The directory where a name is made.
    fn place(&mut self, at: Name<'_>) -> Result<Opened<'s, F::File>, Fault> {
        let (dir, attributes) = self.change(at.dir)?;
        directory(&attributes)?;
        proper(at.name, nfsstat3::NFS3ERR_EXIST)?;
        Ok(dir)
    }

    /// CREATE (RFC 1813, 3.3.8).
    pub(super) fn create(&mut self, what: &CreateAt<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
        let dir = self.place(what.at)?;
        let name = what.at.name;
        let file = match &what.how {
            createhow3::UNCHECKED(new) => match self.new_file(&dir, name, new) {
                Err(Fault::Status(nfsstat3::NFS3ERR_EXIST)) => self.existing(&dir, name, new)?,
                made => made?,
            },
            createhow3::GUARDED(new) => self.new_file(&dir, name, new)?,
            createhow3::EXCLUSIVE(verifier) => self.exclusive(&dir, name, verifier.0)?,
        };
        self.made(&dir, &file, reply)
    }

    fn make(
        &mut self,
        dir: &Opened<'_, F::File>,
        name: &[u8],
        what: Make<'_>,
        mode: u32,
    ) -> Result<F::File, Fault> {
        let made = self.files.make(&dir.who, &dir.file, name, what, mode)?;
        self.is_named = true;
        Ok(made)
    }

    fn new_file(&mut self, dir: &Opened<'_, F::File>, name: &[u8], new: &sattr3) -> Result<F::File, Fault> {
        check(new)?;
        let file = self.make(dir, name, Make::File(None), mode(new))?;
        if let Some(size @ 1..) = option(&new.size) {
            let attributes = self.files.attributes(&file)?;
            self.as_owner(&dir.who, &attributes, |files, open_as| {
                files.set_size(&dir.who, open_as, &file, size)
            })?;
        }
        self.set_rest(dir, &file, new)?;
        self.set_times(dir, &file, new)?;
        Ok(file)
    }

    /// An unchecked CREATE of a file that is there: of the attributes, it gets the length.
    fn existing(&mut self, dir: &Opened<'_, F::File>, name: &[u8], new: &sattr3) -> Result<F::File, Fault> {
        let file = self.files.look_up(&dir.who, &dir.file, name)?;
        let attributes = self.files.attributes(&file)?;
        if !matches!(attributes.type_, ftype3::NF3REG) {
            return Err(nfsstat3::NFS3ERR_EXIST.into());
        }
        if let Some(size) = option(&new.size) {
            self.as_owner(&dir.who, &attributes, |files, open_as| {
                files.set_size(&dir.who, open_as, &file, size)
            })?;
        }
        Ok(file)
    }

    /// An exclusive CREATE: one that is repeated finds the file with its verifier, whoever has been restarted.
    fn exclusive(
        &mut self,
        dir: &Opened<'_, F::File>,
        name: &[u8],
        verifier: [u8; 8],
    ) -> Result<F::File, Fault> {
        let times = times_of(verifier);
        let exists = nfsstat3::NFS3ERR_EXIST;
        match self.files.make(&dir.who, &dir.file, name, Make::File(Some(times)), 0) {
            Err(Fault::Status(status)) if status == exists => {}
            made => return made,
        }
        let file = self.files.look_up(&dir.who, &dir.file, name)?;
        let attributes = self.files.attributes(&file)?;
        let is_regular = matches!(attributes.type_, ftype3::NF3REG);
        if is_regular && attributes.size == 0 && (attributes.atime, attributes.mtime) == times {
            Ok(file)
        } else {
            Err(exists.into())
        }
    }

    /// MKDIR (RFC 1813, 3.3.9).
    pub(super) fn make_directory(
        &mut self,
        at: Name<'_>,
        new: &sattr3,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let dir = self.place(at)?;
        check(new)?;
        let made = self.make(&dir, at.name, Make::Directory, mode(new))?;
        self.set_rest(&dir, &made, new)?;
        self.set_times(&dir, &made, new)?;
        self.made(&dir, &made, reply)
    }

    /// SYMLINK (RFC 1813, 3.3.10). The target is the client's business, and so are its attributes: Linux has none.
    pub(super) fn make_symlink(
        &mut self,
        at: Name<'_>,
        target: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let dir = self.place(at)?;
        if target.len() > TARGET_MAX {
            return Err(nfsstat3::NFS3ERR_NAMETOOLONG.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(nfsstat3::NFS3ERR_INVAL.into());
        }
        let made = self.make(&dir, at.name, Make::Symlink(target), 0o777)?;
        self.made(&dir, &made, reply)
    }

    /// MKNOD (RFC 1813, 3.3.11). The kernel allows a device to root alone.
    pub(super) fn make_node(
        &mut self,
        at: Name<'_>,
        what: &mknoddata3,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let dir = self.place(at)?;
        let numbers = |device: &devicedata3| (device.spec.specdata1, device.spec.specdata2);
        let (make, new) = match what {
            mknoddata3::NF3CHR(device) => {
                let (major, minor) = numbers(device);
                (Make::Character(major, minor), &device.dev_attributes)
            }
            mknoddata3::NF3BLK(device) => {
                let (major, minor) = numbers(device);
                (Make::Block(major, minor), &device.dev_attributes)
            }
            mknoddata3::NF3SOCK(new) => (Make::Socket, new),
            mknoddata3::NF3FIFO(new) => (Make::Fifo, new),
            mknoddata3::default => return Err(nfsstat3::NFS3ERR_BADTYPE.into()),
        };
        check(new)?;
        let made = self.make(&dir, at.name, make, mode(new))?;
        self.set_rest(&dir, &made, new)?;
        self.set_times(&dir, &made, new)?;
        self.made(&dir, &made, reply)
    }

    /// Makes what was made durable, and answers.
    fn made(
        &mut self,
        dir: &Opened<'_, F::File>,
        file: &F::File,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fault> {
        let attributes = self.files.attributes(file)?;
        // Others are durable with their names: file systems write both at once.
        if matches!(attributes.type_, ftype3::NF3REG | ftype3::NF3DIR) {
            self.settle(dir.export, file, Sync::All)?;
        }
        self.settle(dir.export, &dir.file, Sync::All)?;
        let handle = self.handle_of(dir, file)?;
        reply.write_status(nfsstat3::NFS3_OK);
        reply.write_post_op_handle(handle.bytes());
        reply.write_post_op(Some(&attributes));
        reply.write_wcc(&self.first_wcc());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_of_a_verifier_is_lost_in_times_that_end_in_2038() {
        let mut seen = Vec::new();
        for bit in 0..64 {
            let (accessed, modified) = times_of((1_u64 << bit).to_be_bytes());
            for time in [accessed, modified] {
                assert!(time.seconds <= i32::MAX as u32 && time.nseconds < 1_000_000_000);
            }
            assert!(!seen.contains(&(accessed, modified)), "bit {bit}");
            seen.push((accessed, modified));
        }
    }
}
