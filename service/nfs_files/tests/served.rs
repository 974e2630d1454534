//! Files of this host, served by NFS and MOUNT as programs of an RPC server.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use twinpath_nfs::{
    Bounds, Export, Exports, HandleSecret, MountProgram, Mounts, NfsProgram, Server as Nfs, Sizes,
    WriteVerifier,
};
use twinpath_nfs_files::{Directory, HostExports, HostThreads};
use twinpath_rpc::client::{Auth, Call, Reply};
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use twinpath_rpc::xdr::Reader;
use twinpath_rpc::{DuplicateLimits, Server};
use twinpath_test_rig::root_or_skip;
use twinpath_time::{Duration, Instant};

const MOUNT: (u32, u32) = (100_005, 3);
const MNT: u32 = 1;

/// A directory that is exported by this number.
fn exported(number: u32, path: &Path) -> Arc<HostExports> {
    let directory = Arc::new(Directory::open(path).expect("a directory"));
    let verifier = Arc::new(WriteVerifier::new(1));
    Arc::new(HostExports::new(vec![(number, directory)], None, &verifier).expect("exported"))
}

/// An instance that serves a folder, writable, as its secret and its boot say.
fn instance(folder: &Path, boot: u64) -> Server {
    let path = folder.as_os_str().as_encoded_bytes().to_vec();
    let export = Export { is_read_only: false, ..Export::new(7, path) };
    let nfs = Nfs {
        exports: Exports::new(vec![export]).expect("one"),
        secret: HandleSecret::new([9; 16]),
        verifier: Arc::new(WriteVerifier::new(boot)),
    };
    let files = HostThreads::new(exported(7, folder));
    let sizes = Sizes { read_max: 32 << 10, write_max: 32 << 10, directory_max: 8 << 10 };
    let nfs = NfsProgram::new(
        Arc::new(nfs),
        files,
        sizes,
        sizes,
        Bounds { export: 8, peer: 8, datagrams: 8, export_bytes: 16 << 20, peer_bytes: 8 << 20 },
    );
    let mount = MountProgram::new(nfs.sibling(), Arc::new(Mounts::new(16)));
    let limits = DuplicateLimits { calls: 64, age: Duration::from_secs(60) };
    Server::new(vec![Box::new(nfs), Box::new(mount)], limits, boot).expect("two programs")
}

struct Client {
    server: Server,
    uid: u32,
    xid: u32,
}

impl Client {
    fn send(&mut self, (program, version): (u32, u32), procedure: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let auth = Auth::sys("client", self.uid, 100, &[]).expect("a short name");
        let mut message = Vec::new();
        Call { xid: self.xid, program, version, procedure, auth: &auth, args }.write(&mut message);
        let peer = SocketAddr::from(([192, 0, 2, 1], 700));
        let answer = self.server.datagram_or_later(Instant::ZERO, peer, &message).expect("a call");
        let later = answer.expect_err("it waits for files");
        let args = args.to_vec();
        let reply = std::thread::spawn(move || later.run_datagram(&args)).join().expect("the thread ends");
        Reply::parse(&reply).expect("a reply").outcome.expect("accepted").to_vec()
    }

    fn ask<T, E>(&mut self, procedure: NFS_PROGRAM, args: &impl Pack) -> Result<T, nfsstat3>
    where
        Nfs3Result<T, E>: Unpack,
    {
        let mut packed = Vec::new();
        args.pack(&mut packed).expect("it can be encoded");
        let results = self.send((PROGRAM, VERSION), procedure as u32, &packed);
        let mut rest = results.as_slice();
        let (result, _) = Nfs3Result::<T, E>::unpack(&mut rest).expect("results of the procedure");
        assert!(rest.is_empty());
        match result {
            Nfs3Result::Ok(ok) => Ok(ok),
            Nfs3Result::Err((status, _)) => Err(status),
        }
    }

    fn mount(&mut self, folder: &Path) -> nfs_fh3 {
        let mut args = Vec::new();
        Opaque::borrowed(folder.as_os_str().as_encoded_bytes()).pack(&mut args).expect("it can be encoded");
        let results = self.send(MOUNT, MNT, &args);
        let mut reader = Reader::new(&results);
        assert_eq!(reader.u32(), Ok(0), "mounted");
        nfs_fh3 { data: Opaque::owned(reader.opaque(64).expect("a handle").to_vec()) }
    }

    fn read(&mut self, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
        let args = READ3args { file: file.clone(), offset: 0, count: u32::MAX };
        let read = self.ask::<READ3resok<'static>, READ3resfail>(NFS_PROGRAM::NFSPROC3_READ, &args);
        read.map(|read| read.data.to_vec())
    }

    fn commit(&mut self, file: &nfs_fh3) -> writeverf3 {
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let done = self.ask::<COMMIT3resok, COMMIT3resfail>(NFS_PROGRAM::NFSPROC3_COMMIT, &args);
        done.expect("durable").verf
    }
}

#[test]
fn what_a_client_wrote_is_there_for_the_next_instance_by_the_same_handle() {
    if !root_or_skip() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("export");
    fs::create_dir(&export).expect("made");
    for path in [folder.path(), &export] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("set");
    }
    let mut client = Client { server: instance(&export, 1), uid: 1000, xid: 0 };
    let root = client.mount(&export);
    let at = |name: &'static str| diropargs3 { dir: root.clone(), name: name.as_bytes().into() };
    let new = sattr3 { mode: Nfs3Option::Some(0o400), ..sattr3::default() };
    let args = CREATE3args { where_: at("file"), how: createhow3::GUARDED(new) };
    let made = client.ask::<CREATE3resok, CREATE3resfail>(NFS_PROGRAM::NFSPROC3_CREATE, &args);
    let file = made.expect("a new file").obj.unwrap();
    let data: Vec<u8> = (0..20_000_u32).map(|at| (at * 7) as u8).collect();
    let args = WRITE3args {
        file: file.clone(),
        offset: 0,
        count: data.len() as u32,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(&data),
    };
    let written = client.ask::<WRITE3resok, WRITE3resfail>(NFS_PROGRAM::NFSPROC3_WRITE, &args);
    let written = written.expect("its owner may, though it is read-only");
    assert_eq!((written.count as usize, written.verf), (data.len(), client.commit(&file)));
    assert_eq!(fs::read(export.join("file")).expect("there"), data);

    client.server = instance(&export, 2);
    assert_eq!(client.read(&file), Ok(data.clone()));
    assert_ne!(client.commit(&file), written.verf, "another instance");
    assert_eq!(client.mount(&export), root, "the same handle");
    client.uid = 0;
    assert_eq!(client.read(&file), Err(nfsstat3::NFS3ERR_ACCES), "root is squashed");
    client.uid = 1001;
    assert_eq!(client.read(&file), Err(nfsstat3::NFS3ERR_ACCES));
}
