//! The arguments of the 22 procedures (RFC 1813, 3.3), decoded without a copy.

use twinpath_rpc::Refusal;
use twinpath_rpc::nfs3_types::nfs3::{
    NFS_PROGRAM, NFS3_COOKIEVERFSIZE, createhow3, mknoddata3, nfstime3, sattr3, sattrguard3, stable_how,
};
use twinpath_rpc::nfs3_types::xdr_codec::Unpack;
use twinpath_rpc::xdr::Reader;

use crate::HANDLE_MAX;

/// A name in a directory (`diropargs3`: RFC 1813, 3.3). It may have any length and any bytes: the server checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The handle of the directory.
    pub dir: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// Where and how CREATE makes a file.
#[derive(Debug)]
pub struct CreateAt<'a> {
    /// Its name.
    pub at: Name<'a>,
    /// The mode of creation, with attributes or a verifier.
    pub how: createhow3,
}

/// A call of a procedure. Handles have at most [`HANDLE_MAX`] bytes.
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "fields are named and described as in RFC 1813, in the section of each procedure"
)]
pub enum Call<'a> {
    /// 3.3.0.
    Null,
    /// 3.3.1.
    Getattr { object: &'a [u8] },
    /// 3.3.2.
    Setattr { object: &'a [u8], new: sattr3, guard: Option<nfstime3> },
    /// 3.3.3.
    Lookup(Name<'a>),
    /// 3.3.4.
    Access { object: &'a [u8], access: u32 },
    /// 3.3.5.
    Readlink { symlink: &'a [u8] },
    /// 3.3.6.
    Read { file: &'a [u8], offset: u64, count: u32 },
    /// 3.3.7. `data` has as many bytes as the call's count says.
    Write { file: &'a [u8], offset: u64, stable: stable_how, data: &'a [u8] },
    /// 3.3.8.
    Create(CreateAt<'a>),
    /// 3.3.9.
    Mkdir { at: Name<'a>, attributes: sattr3 },
    /// 3.3.10.
    Symlink { at: Name<'a>, attributes: sattr3, target: &'a [u8] },
    /// 3.3.11. A type that is no node is `mknoddata3::default`.
    Mknod { at: Name<'a>, what: mknoddata3 },
    /// 3.3.12.
    Remove(Name<'a>),
    /// 3.3.13.
    Rmdir(Name<'a>),
    /// 3.3.14.
    Rename { from: Name<'a>, to: Name<'a> },
    /// 3.3.15.
    Link { file: &'a [u8], link: Name<'a> },
    /// 3.3.16.
    Readdir { dir: &'a [u8], cookie: u64, verifier: [u8; NFS3_COOKIEVERFSIZE], count: u32 },
    /// 3.3.17.
    Readdirplus {
        dir: &'a [u8],
        cookie: u64,
        verifier: [u8; NFS3_COOKIEVERFSIZE],
        dircount: u32,
        maxcount: u32,
    },
    /// 3.3.18.
    Fsstat { root: &'a [u8] },
    /// 3.3.19.
    Fsinfo { root: &'a [u8] },
    /// 3.3.20.
    Pathconf { object: &'a [u8] },
    /// 3.3.21.
    Commit { file: &'a [u8], offset: u64, count: u32 },
}

impl<'a> Call<'a> {
    /// Decodes the arguments of a procedure. Bytes behind them are ignored.
    ///
    /// # Errors
    /// PROC_UNAVAIL: there is no such procedure. GARBAGE_ARGS: the arguments cannot be decoded, or a WRITE has not as
    /// many bytes as it says.
    pub fn read(procedure: u32, args: &'a [u8]) -> Result<Self, Refusal> {
        let procedure = NFS_PROGRAM::try_from(procedure).map_err(|_| Refusal::ProcedureUnavailable)?;
        let mut args = Args(Reader::new(args));
        args.call(procedure)
    }

    /// The handle of the file that it is about, or of the first one.
    #[must_use]
    pub const fn handle(&self) -> Option<&'a [u8]> {
        Some(match self {
            Self::Null => return None,
            Self::Getattr { object: handle }
            | Self::Setattr { object: handle, .. }
            | Self::Access { object: handle, .. }
            | Self::Readlink { symlink: handle }
            | Self::Read { file: handle, .. }
            | Self::Write { file: handle, .. }
            | Self::Link { file: handle, .. }
            | Self::Readdir { dir: handle, .. }
            | Self::Readdirplus { dir: handle, .. }
            | Self::Fsstat { root: handle }
            | Self::Fsinfo { root: handle }
            | Self::Pathconf { object: handle }
            | Self::Commit { file: handle, .. }
            | Self::Lookup(Name { dir: handle, .. })
            | Self::Create(CreateAt { at: Name { dir: handle, .. }, .. })
            | Self::Mkdir { at: Name { dir: handle, .. }, .. }
            | Self::Symlink { at: Name { dir: handle, .. }, .. }
            | Self::Mknod { at: Name { dir: handle, .. }, .. }
            | Self::Remove(Name { dir: handle, .. })
            | Self::Rmdir(Name { dir: handle, .. })
            | Self::Rename { from: Name { dir: handle, .. }, .. } => handle,
        })
    }
}

/// The arguments not decoded yet.
struct Args<'a>(Reader<'a>);

impl<'a> Args<'a> {
    fn call(&mut self, procedure: NFS_PROGRAM) -> Result<Call<'a>, Refusal> {
        use NFS_PROGRAM as P;
        Ok(match procedure {
            P::NFSPROC3_NULL => Call::Null,
            P::NFSPROC3_GETATTR => Call::Getattr { object: self.handle()? },
            P::NFSPROC3_SETATTR => {
                Call::Setattr { object: self.handle()?, new: self.fixed()?, guard: self.guard()? }
            }
            P::NFSPROC3_LOOKUP => Call::Lookup(self.name()?),
            P::NFSPROC3_ACCESS => Call::Access { object: self.handle()?, access: self.0.u32()? },
            P::NFSPROC3_READLINK => Call::Readlink { symlink: self.handle()? },
            P::NFSPROC3_READ => {
                Call::Read { file: self.handle()?, offset: self.u64()?, count: self.0.u32()? }
            }
            P::NFSPROC3_WRITE => self.write()?,
            P::NFSPROC3_CREATE => Call::Create(CreateAt { at: self.name()?, how: self.fixed()? }),
            P::NFSPROC3_MKDIR => Call::Mkdir { at: self.name()?, attributes: self.fixed()? },
            P::NFSPROC3_SYMLINK => {
                Call::Symlink { at: self.name()?, attributes: self.fixed()?, target: self.bytes()? }
            }
            P::NFSPROC3_MKNOD => Call::Mknod { at: self.name()?, what: self.fixed()? },
            P::NFSPROC3_REMOVE => Call::Remove(self.name()?),
            P::NFSPROC3_RMDIR => Call::Rmdir(self.name()?),
            P::NFSPROC3_RENAME => Call::Rename { from: self.name()?, to: self.name()? },
            P::NFSPROC3_LINK => Call::Link { file: self.handle()?, link: self.name()? },
            P::NFSPROC3_READDIR => Call::Readdir {
                dir: self.handle()?,
                cookie: self.u64()?,
                verifier: *self.0.array()?,
                count: self.0.u32()?,
            },
            P::NFSPROC3_READDIRPLUS => Call::Readdirplus {
                dir: self.handle()?,
                cookie: self.u64()?,
                verifier: *self.0.array()?,
                dircount: self.0.u32()?,
                maxcount: self.0.u32()?,
            },
            P::NFSPROC3_FSSTAT => Call::Fsstat { root: self.handle()? },
            P::NFSPROC3_FSINFO => Call::Fsinfo { root: self.handle()? },
            P::NFSPROC3_PATHCONF => Call::Pathconf { object: self.handle()? },
            P::NFSPROC3_COMMIT => {
                Call::Commit { file: self.handle()?, offset: self.u64()?, count: self.0.u32()? }
            }
        })
    }

    /// WRITE: the count and the length of the data say the same (RFC 1813, 3.3.7). A call where they differ was
    /// damaged: neither is written.
    fn write(&mut self) -> Result<Call<'a>, Refusal> {
        let (file, offset) = (self.handle()?, self.u64()?);
        let (count, stable, data) = (self.0.u32()?, self.fixed()?, self.bytes()?);
        if data.len() != count as usize {
            return Err(Refusal::GarbageArguments);
        }
        Ok(Call::Write { file, offset, stable, data })
    }

    fn handle(&mut self) -> Result<&'a [u8], Refusal> {
        Ok(self.0.opaque(HANDLE_MAX as u32)?)
    }

    /// A name, path or data: as long as the message allows.
    fn bytes(&mut self) -> Result<&'a [u8], Refusal> {
        Ok(self.0.opaque(u32::MAX)?)
    }

    fn name(&mut self) -> Result<Name<'a>, Refusal> {
        Ok(Name { dir: self.handle()?, name: self.bytes()? })
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        Ok(self.0.array().map(|bytes| u64::from_be_bytes(*bytes))?)
    }

    fn guard(&mut self) -> Result<Option<nfstime3>, Refusal> {
        Ok(match self.fixed()? {
            sattrguard3::Some(ctime) => Some(ctime),
            sattrguard3::None => None,
        })
    }

    /// A value of the library whose length is bounded by its type: decoding it allocates nothing.
    fn fixed<T: Unpack>(&mut self) -> Result<T, Refusal> {
        let mut rest = self.0.rest();
        let (value, _) = T::unpack(&mut rest).map_err(|_| Refusal::GarbageArguments)?;
        self.0 = Reader::new(rest);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
