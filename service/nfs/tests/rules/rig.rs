//! A server, and a client that speaks by `nfs3_types`.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_nfs::{
    Call, Caller, Context, Export, Exports, FileId, Files, HandleSecret, Server, Sizes, Squash, WouldBlock,
    WriteVerifier,
};
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

use crate::model::Memory;

pub(crate) use twinpath_rpc::nfs3_types::nfs3::NFS_PROGRAM as P;

/// What stands in the buffer in front of results.
const HEADER: &[u8] = b"the header of a reply";

pub(crate) struct Rig {
    pub(crate) server: Arc<Server>,
    pub(crate) files: Memory,
    pub(crate) peer: SocketAddr,
    pub(crate) uid: u32,
    pub(crate) sizes: Sizes,
}

/// Exports 1 and 2, writable; the second one asynchronous.
fn exports() -> Vec<Export> {
    let export =
        |number, path: &str| Export { is_read_only: false, ..Export::new(number, path.as_bytes().to_vec()) };
    vec![export(1, "/one"), Export { is_async: true, ..export(2, "/two") }]
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With exports that were changed.
    pub(crate) fn with(change: impl FnOnce(&mut Vec<Export>)) -> Self {
        let mut exports = exports();
        change(&mut exports);
        let server = Server {
            exports: Exports::new(exports).expect("two exports"),
            secret: HandleSecret::new([3; 16]),
            verifier: Arc::new(WriteVerifier::new(70)),
        };
        Self {
            server: Arc::new(server),
            files: Memory::new(),
            peer: "192.0.2.1:700".parse().expect("an address"),
            uid: 1000,
            sizes: Sizes { read_max: 4096, write_max: 4096, directory_max: 4096 },
        }
    }

    /// Root is root.
    pub(crate) fn with_root() -> Self {
        let mut rig =
            Self::with(|exports| exports.iter_mut().for_each(|export| export.squash = Squash::None));
        rig.uid = 0;
        rig
    }

    /// The same files, served by another instance.
    pub(crate) fn restart(&mut self) {
        let server = Server {
            exports: self.server.exports.clone(),
            secret: HandleSecret::new([3; 16]),
            verifier: Arc::new(WriteVerifier::new(9000)),
        };
        self.server = Arc::new(server);
    }

    /// Results of a call whose arguments are encoded.
    pub(crate) fn raw(&mut self, call: &Call<'_>) -> Result<Vec<u8>, WouldBlock> {
        let context =
            Context { peer: self.peer, claimed: Some(Caller::new(self.uid, 100)), sizes: self.sizes };
        let mut buffer = HEADER.to_vec();
        let done = self.server.call(&mut self.files, &context, call, &mut buffer);
        let results = buffer.strip_prefix(HEADER).expect("the header stays");
        assert!(done.is_ok() || results.is_empty(), "nothing is written for a call that is repeated");
        done.map(|()| results.to_vec())
    }

    /// Carries a call out. Its results have no bytes more than they need.
    pub(crate) fn ask<R: Unpack>(&mut self, procedure: P, args: &impl Pack) -> R {
        let mut bytes = Vec::new();
        args.pack(&mut bytes).expect("arguments can be encoded");
        let call = Call::read(procedure as u32, &bytes).expect("arguments can be decoded");
        let results = self.raw(&call).expect("the file system may wait");
        let mut rest = results.as_slice();
        let (decoded, _) = R::unpack(&mut rest).unwrap_or_else(|error| panic!("{procedure}: {error:?}"));
        assert!(rest.is_empty(), "{procedure}: {} bytes behind the results", rest.len());
        decoded
    }

    /// The handle of a file of the model.
    pub(crate) fn handle(&mut self, export: u32, file: u64) -> nfs_fh3 {
        let key = self.files.key(&file).expect("it is there");
        let handle = self.server.secret.handle(&FileId { export, key });
        nfs_fh3 { data: Opaque::owned(handle.bytes().to_vec()) }
    }

    pub(crate) fn root(&mut self) -> nfs_fh3 {
        let root = self.files.roots[&1];
        self.handle(1, root)
    }

    /// The file of the model that a handle is of.
    pub(crate) fn file(&mut self, handle: &nfs_fh3) -> u64 {
        let id = self.server.secret.open(&handle.data).expect("signed");
        self.files.open(&id).expect("it is there")
    }

    pub(crate) fn look_up(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let found: LOOKUP3res = self.ask(P::NFSPROC3_LOOKUP, &LOOKUP3args { what: at(dir, name) });
        result(found).map(|found| found.object)
    }

    pub(crate) fn create_as(
        &mut self,
        dir: &nfs_fh3,
        name: &str,
        how: createhow3,
    ) -> Result<nfs_fh3, nfsstat3> {
        let args = CREATE3args { where_: at(dir, name), how };
        let made: CREATE3res = self.ask(P::NFSPROC3_CREATE, &args);
        result(made).map(|made| made.obj.unwrap())
    }

    pub(crate) fn create(&mut self, dir: &nfs_fh3, name: &str, mode: u32) -> nfs_fh3 {
        let new = sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
        self.create_as(dir, name, createhow3::GUARDED(new)).expect("a new file")
    }

    pub(crate) fn make_directory(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        let attributes = sattr3 { mode: Nfs3Option::Some(0o755), ..sattr3::default() };
        let made: MKDIR3res = self.ask(P::NFSPROC3_MKDIR, &MKDIR3args { where_: at(dir, name), attributes });
        result(made).map(|made| made.obj.unwrap())
    }

    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        stable: stable_how,
        data: &[u8],
    ) -> Result<WRITE3resok, nfsstat3> {
        let count = data.len() as u32;
        let args = WRITE3args { file: file.clone(), offset, count, stable, data: Opaque::borrowed(data) };
        result(self.ask::<WRITE3res>(P::NFSPROC3_WRITE, &args))
    }

    pub(crate) fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let read: READ3res<'static> =
            self.ask(P::NFSPROC3_READ, &READ3args { file: file.clone(), offset, count });
        result(read).map(|read| {
            assert_eq!(read.count as usize, read.data.len());
            (read.data.to_vec(), read.eof)
        })
    }

    pub(crate) fn commit(&mut self, file: &nfs_fh3) -> Result<COMMIT3resok, nfsstat3> {
        result(
            self.ask::<COMMIT3res>(
                P::NFSPROC3_COMMIT,
                &COMMIT3args { file: file.clone(), offset: 0, count: 0 },
            ),
        )
    }

    pub(crate) fn symlink(&mut self, dir: &nfs_fh3, name: &str, target: &[u8]) -> Result<nfs_fh3, nfsstat3> {
        let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: target.into() };
        let made: SYMLINK3res =
            self.ask(P::NFSPROC3_SYMLINK, &SYMLINK3args { where_: at(dir, name), symlink });
        result(made).map(|made| made.obj.unwrap())
    }

    pub(crate) fn attributes(&mut self, object: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        let got: GETATTR3res = self.ask(P::NFSPROC3_GETATTR, &GETATTR3args { object: object.clone() });
        result(got).map(|got| got.obj_attributes)
    }

    pub(crate) fn set(
        &mut self,
        object: &nfs_fh3,
        new: sattr3,
        guard: Option<nfstime3>,
    ) -> Result<SETATTR3resok, nfsstat3> {
        let guard = guard.map_or(Nfs3Option::None, Nfs3Option::Some);
        let args = SETATTR3args { object: object.clone(), new_attributes: new, guard };
        result(self.ask::<SETATTR3res>(P::NFSPROC3_SETATTR, &args))
    }

    pub(crate) fn list(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        verifier: [u8; 8],
        maxcount: u32,
    ) -> READDIRPLUS3res<'static> {
        let args = READDIRPLUS3args {
            dir: dir.clone(),
            cookie,
            cookieverf: cookieverf3(verifier),
            dircount: maxcount,
            maxcount,
        };
        self.ask(P::NFSPROC3_READDIRPLUS, &args)
    }

    pub(crate) fn rename(
        &mut self,
        from: diropargs3<'_>,
        to: diropargs3<'_>,
    ) -> Result<RENAME3resok, nfsstat3> {
        result(self.ask::<RENAME3res>(P::NFSPROC3_RENAME, &RENAME3args { from, to }))
    }

    pub(crate) fn remove(&mut self, dir: &nfs_fh3, name: &str) -> Result<REMOVE3resok, nfsstat3> {
        result(self.ask::<REMOVE3res>(P::NFSPROC3_REMOVE, &REMOVE3args { object: at(dir, name) }))
    }

    pub(crate) fn remove_directory(&mut self, dir: &nfs_fh3, name: &str) -> Result<RMDIR3resok, nfsstat3> {
        let removed: Nfs3Result<RMDIR3resok, RMDIR3resfail> =
            self.ask(P::NFSPROC3_RMDIR, &RMDIR3args { object: at(dir, name) });
        result(removed)
    }

    pub(crate) fn link(&mut self, file: &nfs_fh3, link: diropargs3<'_>) -> Result<LINK3resok, nfsstat3> {
        result(self.ask::<LINK3res>(P::NFSPROC3_LINK, &LINK3args { file: file.clone(), link }))
    }

    pub(crate) fn access(&mut self, object: &nfs_fh3, access: u32) -> u32 {
        let args = ACCESS3args { object: object.clone(), access };
        let allowed: ACCESS3res = self.ask(P::NFSPROC3_ACCESS, &args);
        allowed.unwrap().access
    }
}

pub(crate) fn result<T, E>(result: Nfs3Result<T, E>) -> Result<T, nfsstat3> {
    match result {
        Nfs3Result::Ok(ok) => Ok(ok),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub(crate) fn at<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

pub(crate) fn size(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}
