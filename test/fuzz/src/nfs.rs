//! Fuzzes NFS over a naive file system: any calls get results of their procedure, whole and of no more than its length, and
//! change nothing in an export that is read-only.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_nfs::{
    Call, Caller, Context, Export, Exports, FileId, Files as _, HandleSecret, Server, Sizes, Squash,
    WriteVerifier,
};
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::Unpack;
use twinpath_rpc::xdr::write_opaque;

use crate::fuzz;

#[path = "../../../service/nfs/tests/rules/model.rs"]
pub mod model;

use model::{Event, Memory};

/// The longest data of one call, bytes.
const SIZES: Sizes = Sizes { read_max: 512, write_max: 512, directory_max: 1024 };
/// What results have beside data, at most: status, attributes, handles, those of two directories, bytes.
const BESIDE_DATA: usize = 1024;
/// Files whose handles calls use.
const FILES_MAX: usize = 40;

/// The server, with export 1 to be changed, and export 2 not.
fn server() -> Server {
    let export =
        |number: u32, path: &[u8]| Export { squash: Squash::None, ..Export::new(number, path.to_vec()) };
    let exports = vec![Export { is_read_only: false, ..export(1, b"/one") }, export(2, b"/two")];
    Server {
        exports: Exports::new(exports).expect("two exports"),
        secret: HandleSecret::new([7; 16]),
        verifier: Arc::new(WriteVerifier::new(9)),
    }
}

/// The handles of all files by each export.
fn handles(server: &Server, files: &mut Memory) -> Vec<Vec<u8>> {
    let nodes: Vec<u64> = files.nodes.keys().copied().take(FILES_MAX).collect();
    let of = |export, key| server.secret.handle(&FileId { export, key }).bytes().to_vec();
    let keys: Vec<_> = nodes.iter().filter_map(|node| files.key(node).ok()).collect();
    let each = keys.iter().flat_map(|key| [of(1, *key), of(2, *key)]);
    let mut handles: Vec<_> = each.collect();
    // And some that are nobody's.
    handles.extend([Vec::new(), vec![1; 64]]);
    handles
}

/// Arguments, of which each byte makes a part: a handle, a short name, a word, or bytes.
fn arguments(parts: &[u8], handles: &[Vec<u8>]) -> Vec<u8> {
    let mut args = Vec::new();
    for part in parts {
        match part {
            0..0x60 => write_opaque(&handles[usize::from(*part) % handles.len()], &mut args),
            0x60..0x68 => write_opaque(&[b'a' + part % 4][..], &mut args),
            0x68 => write_opaque(b"..", &mut args),
            0x69 => write_opaque(b"a/b", &mut args),
            0x6a => write_opaque(&[b'x'; 256], &mut args),
            0x6b => args.extend([0xff; 8]),
            0x6c..0x70 => write_opaque(&[*part; 300], &mut args),
            _ => args.extend(u32::from(part - 0x70).to_be_bytes()),
        }
    }
    args
}

fn decode(procedure: NFS_PROGRAM, results: &[u8]) {
    use NFS_PROGRAM as P;
    fn all<R: Unpack>(mut results: &[u8]) {
        R::unpack(&mut results).expect("results of the procedure");
        assert!(results.is_empty(), "{} bytes behind the results", results.len());
    }
    match procedure {
        P::NFSPROC3_NULL => assert!(results.is_empty()),
        P::NFSPROC3_GETATTR => all::<GETATTR3res>(results),
        P::NFSPROC3_SETATTR => all::<SETATTR3res>(results),
        P::NFSPROC3_LOOKUP => all::<LOOKUP3res>(results),
        P::NFSPROC3_ACCESS => all::<ACCESS3res>(results),
        P::NFSPROC3_READLINK => all::<READLINK3res<'static>>(results),
        P::NFSPROC3_READ => all::<READ3res<'static>>(results),
        P::NFSPROC3_WRITE => all::<WRITE3res>(results),
        P::NFSPROC3_CREATE => all::<CREATE3res>(results),
        P::NFSPROC3_MKDIR => all::<MKDIR3res>(results),
        P::NFSPROC3_SYMLINK => all::<SYMLINK3res>(results),
        P::NFSPROC3_MKNOD => all::<MKNOD3res>(results),
        P::NFSPROC3_REMOVE => all::<REMOVE3res>(results),
        P::NFSPROC3_RMDIR => all::<Nfs3Result<RMDIR3resok, RMDIR3resfail>>(results),
        P::NFSPROC3_RENAME => all::<RENAME3res>(results),
        P::NFSPROC3_LINK => all::<LINK3res>(results),
        P::NFSPROC3_READDIR => all::<READDIR3res<'static>>(results),
        P::NFSPROC3_READDIRPLUS => all::<READDIRPLUS3res<'static>>(results),
        P::NFSPROC3_FSSTAT => all::<FSSTAT3res>(results),
        P::NFSPROC3_FSINFO => all::<FSINFO3res>(results),
        P::NFSPROC3_PATHCONF => all::<PATHCONF3res>(results),
        P::NFSPROC3_COMMIT => all::<COMMIT3res>(results),
    }
}

/// Carries a call out, and checks its results.
fn carry_out(server: &Server, files: &mut Memory, uid: u32, procedure: u8, args: &[u8]) {
    let procedure = u32::from(procedure % 22);
    let Ok(call) = Call::read(procedure, args) else { return };
    let peer = SocketAddr::from(([192, 0, 2, 1], 700));
    let context = Context { peer, claimed: Some(Caller::new(uid, 100)), sizes: SIZES };
    let is_read_only =
        call.handle().is_some_and(|handle| server.secret.open(handle).is_ok_and(|id| id.export == 2));
    files.log.clear();
    let mut results = Vec::new();
    server.call(files, &context, &call, &mut results).expect("it may wait");
    assert!(results.len() <= BESIDE_DATA + SIZES.directory_max as usize, "{} bytes", results.len());
    decode(NFS_PROGRAM::try_from(procedure).expect("one of 22"), &results);
    let has_changed = files.log.iter().any(|event| matches!(event, Event::Changed(_)));
    assert!(!(is_read_only && has_changed), "{procedure} changed what is read-only");
    let mut refused = Vec::new();
    server.refuse(&call, nfsstat3::NFS3ERR_JUKEBOX, &mut refused);
    if procedure > 0 {
        decode(NFS_PROGRAM::try_from(procedure).expect("one of 22"), &refused);
    }
}

/// Each call: its procedure, its user and the number of parts in one byte, and the parts of its arguments.
#[test]
fn calls() {
    fuzz!("nfs__calls", |input: &[u8]| {
        let (server, mut files, mut rest) = (server(), Memory::new(), input);
        while let Some(([procedure, how], parts)) = rest.split_first_chunk::<2>() {
            let count = usize::from(how % 16).min(parts.len());
            let (parts, others) = parts.split_at(count);
            rest = others;
            let uid = [0, 1000, 1001][usize::from(how / 16 % 3)];
            let args = arguments(parts, &handles(&server, &mut files));
            carry_out(&server, &mut files, uid, *procedure, &args);
        }
    });
}

/// The first byte is the procedure, the others are its arguments as they are.
#[test]
fn arguments_of_any_form() {
    fuzz!("nfs__arguments_of_any_form", |input: &[u8]| {
        let Some((procedure, args)) = input.split_first() else { return };
        carry_out(&server(), &mut Memory::new(), 0, *procedure, args);
    });
}
