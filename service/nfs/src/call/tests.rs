use twinpath_rpc::nfs3_types::nfs3::{
    ACCESS3args, COMMIT3args, CREATE3args, FSINFO3args, GETATTR3args, LINK3args, LOOKUP3args, MKDIR3args,
    MKNOD3args, READ3args, READDIR3args, READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args,
    RMDIR3args, SETATTR3args, SYMLINK3args, WRITE3args, cookieverf3, createverf3, devicedata3, diropargs3,
    nfs_fh3, set_mtime, specdata3, symlinkdata3,
};
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack};

use super::*;

const HANDLE: [u8; 13] = *b"thirteenbytes";

fn handle() -> nfs_fh3 {
    nfs_fh3 { data: Opaque::borrowed(&HANDLE) }
}

fn at(name: &[u8]) -> diropargs3<'_> {
    diropargs3 { dir: handle(), name: name.into() }
}

fn attributes() -> sattr3 {
    sattr3 {
        mode: twinpath_rpc::nfs3_types::nfs3::Nfs3Option::Some(0o640),
        mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds: 7, nseconds: 9 }),
        ..sattr3::default()
    }
}

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("it can be encoded");
    bytes
}

fn times() -> nfstime3 {
    nfstime3 { seconds: 3, nseconds: 4 }
}

/// A call of each procedure, encoded by the library, and what has to be read from it.
fn calls() -> Vec<(NFS_PROGRAM, Vec<u8>, &'static str)> {
    use NFS_PROGRAM as P;
    let verifier = cookieverf3(*b"verifier");
    let device = devicedata3 { dev_attributes: attributes(), spec: specdata3 { specdata1: 8, specdata2: 1 } };
    let symlink =
        symlinkdata3 { symlink_attributes: attributes(), symlink_data: b"../target".as_slice().into() };
    let write = WRITE3args {
        file: handle(),
        offset: 1 << 40,
        count: 5,
        stable: stable_how::DATA_SYNC,
        data: Opaque::borrowed(b"hello"),
    };
    let listing = READDIRPLUS3args {
        dir: handle(),
        cookie: u64::MAX,
        cookieverf: verifier,
        dircount: 512,
        maxcount: 4096,
    };
    let new =
        SETATTR3args { object: handle(), new_attributes: attributes(), guard: sattrguard3::Some(times()) };
    vec![
        (P::NFSPROC3_NULL, Vec::new(), "Null"),
        (P::NFSPROC3_GETATTR, packed(&GETATTR3args { object: handle() }), "Getattr"),
        (P::NFSPROC3_SETATTR, packed(&new), "Setattr"),
        (P::NFSPROC3_LOOKUP, packed(&LOOKUP3args { what: at(b"name") }), "Lookup"),
        (P::NFSPROC3_ACCESS, packed(&ACCESS3args { object: handle(), access: 0x3f }), "Access"),
        (P::NFSPROC3_READLINK, packed(&READLINK3args { symlink: handle() }), "Readlink"),
        (P::NFSPROC3_READ, packed(&READ3args { file: handle(), offset: 9, count: 8 }), "Read"),
        (P::NFSPROC3_WRITE, packed(&write), "Write"),
        (
            P::NFSPROC3_CREATE,
            packed(&CREATE3args {
                where_: at(b"new"),
                how: createhow3::EXCLUSIVE(createverf3(*b"12345678")),
            }),
            "Create",
        ),
        (P::NFSPROC3_MKDIR, packed(&MKDIR3args { where_: at(b"new"), attributes: attributes() }), "Mkdir"),
        (P::NFSPROC3_SYMLINK, packed(&SYMLINK3args { where_: at(b"new"), symlink }), "Symlink"),
        (
            P::NFSPROC3_MKNOD,
            packed(&MKNOD3args { where_: at(b"new"), what: mknoddata3::NF3CHR(device) }),
            "Mknod",
        ),
        (P::NFSPROC3_REMOVE, packed(&REMOVE3args { object: at(b"old") }), "Remove"),
        (P::NFSPROC3_RMDIR, packed(&RMDIR3args { object: at(b"old") }), "Rmdir"),
        (P::NFSPROC3_RENAME, packed(&RENAME3args { from: at(b"from"), to: at(b"to") }), "Rename"),
        (P::NFSPROC3_LINK, packed(&LINK3args { file: handle(), link: at(b"to") }), "Link"),
        (
            P::NFSPROC3_READDIR,
            packed(&READDIR3args { dir: handle(), cookie: 3, cookieverf: verifier, count: 4096 }),
            "Readdir",
        ),
        (P::NFSPROC3_READDIRPLUS, packed(&listing), "Readdirplus"),
        (P::NFSPROC3_FSSTAT, packed(&FSINFO3args { fsroot: handle() }), "Fsstat"),
        (P::NFSPROC3_FSINFO, packed(&FSINFO3args { fsroot: handle() }), "Fsinfo"),
        (P::NFSPROC3_PATHCONF, packed(&FSINFO3args { fsroot: handle() }), "Pathconf"),
        (P::NFSPROC3_COMMIT, packed(&COMMIT3args { file: handle(), offset: 1, count: 2 }), "Commit"),
    ]
}

#[test]
fn every_procedure_that_the_library_encodes_is_read() {
    let calls = calls();
    assert_eq!(calls.len(), 22);
    for (number, (procedure, args, name)) in calls.into_iter().enumerate() {
        assert_eq!(procedure as usize, number);
        let call = Call::read(procedure as u32, &args).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(format!("{call:?}").starts_with(name), "{call:?}");
        for len in 0..args.len() {
            let short = Call::read(procedure as u32, &args[..len]);
            assert_eq!(short.err(), Some(Refusal::GarbageArguments), "{name} cut to {len} bytes");
        }
    }
    assert_eq!(Call::read(22, &[]).err(), Some(Refusal::ProcedureUnavailable));
}

#[test]
fn fields_are_read_as_they_were_encoded() {
    let find = |wanted: NFS_PROGRAM| {
        calls().into_iter().find(|(procedure, ..)| *procedure == wanted).expect("one").1
    };
    let args = find(NFS_PROGRAM::NFSPROC3_WRITE);
    let Ok(Call::Write { file, offset, stable, data }) = Call::read(7, &args) else { panic!("no WRITE") };
    assert_eq!((file, offset, stable, data), (&HANDLE[..], 1 << 40, stable_how::DATA_SYNC, &b"hello"[..]));
    let args = find(NFS_PROGRAM::NFSPROC3_RENAME);
    let Ok(Call::Rename { from, to }) = Call::read(14, &args) else { panic!("no RENAME") };
    assert_eq!((from, to), (Name { dir: &HANDLE, name: b"from" }, Name { dir: &HANDLE, name: b"to" }));
    let args = find(NFS_PROGRAM::NFSPROC3_SETATTR);
    let Ok(Call::Setattr { new, guard, .. }) = Call::read(2, &args) else { panic!("no SETATTR") };
    assert_eq!((packed(&new), guard), (packed(&attributes()), Some(times())));
    let args = find(NFS_PROGRAM::NFSPROC3_READDIRPLUS);
    let Ok(Call::Readdirplus { cookie, verifier, dircount, maxcount, .. }) = Call::read(17, &args) else {
        panic!("no READDIRPLUS")
    };
    assert_eq!((cookie, &verifier, dircount, maxcount), (u64::MAX, b"verifier", 512, 4096));
    let args = find(NFS_PROGRAM::NFSPROC3_CREATE);
    let Ok(Call::Create(CreateAt { how: createhow3::EXCLUSIVE(verifier), .. })) = Call::read(8, &args) else {
        panic!("no exclusive CREATE")
    };
    assert_eq!(&verifier.0, b"12345678");
}

#[test]
fn a_write_whose_count_is_not_its_length_is_garbage() {
    for count in [0, 4, 6, u32::MAX] {
        let data = Opaque::borrowed(b"hello");
        let args = WRITE3args { file: handle(), offset: 0, count, stable: stable_how::UNSTABLE, data };
        assert_eq!(Call::read(7, &packed(&args)).err(), Some(Refusal::GarbageArguments), "{count}");
    }
}

#[test]
fn a_handle_of_65_bytes_is_garbage() {
    let long = |len| packed(&GETATTR3args { object: nfs_fh3 { data: Opaque::owned(vec![1; len]) } });
    assert!(Call::read(1, &long(64)).is_ok());
    assert_eq!(Call::read(1, &long(65)).err(), Some(Refusal::GarbageArguments));
}

/// Edits of valid calls, and bytes without a meaning. What the library takes, we take.
#[test]
fn damaged_calls_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(42);
    let calls = calls();
    for _ in 0..20_000 {
        let (procedure, args, _) = &calls[random.usize(..calls.len())];
        let mut args = args.clone();
        for _ in 0..random.usize(1..4) {
            if !args.is_empty() {
                let at = random.usize(..args.len());
                args[at] = if random.bool() { random.u8(..) } else { 0xff };
            }
        }
        args.truncate(random.usize(..=args.len()));
        drop(Call::read(*procedure as u32, &args));
        let garbage: Vec<u8> = (0..random.usize(..100)).map(|_| random.u8(..)).collect();
        drop(Call::read(random.u32(..24), &garbage));
    }
}
