//! What changes files: durability, verifiers, attributes before and after.

use std::sync::Arc;

use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::Void;

use crate::model::Event;
use crate::rig::{P, Rig, at, result, size};

fn exclusive(verifier: [u8; 8]) -> createhow3 {
    createhow3::EXCLUSIVE(createverf3(verifier))
}

#[test]
fn an_exclusive_create_knows_all_of_its_verifier_after_a_restart() {
    let mut rig = Rig::new();
    let root = rig.root();
    let verifier = *b"\xff\x80\x00\x01\x80\xff\xff\xff";
    let file = rig.create_as(&root, "file", exclusive(verifier)).expect("new");
    rig.restart();
    assert_eq!(rig.create_as(&root, "file", exclusive(verifier)), Ok(file.clone()), "the same call again");
    for bit in 0..64 {
        let mut other = verifier;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(rig.create_as(&root, "file", exclusive(other)), Err(nfsstat3::NFS3ERR_EXIST), "bit {bit}");
    }
    rig.write(&file, 0, stable_how::UNSTABLE, b"data").expect("its owner may, whatever its mode");
    assert_eq!(
        rig.create_as(&root, "file", exclusive(verifier)),
        Err(nfsstat3::NFS3ERR_EXIST),
        "it is in use"
    );
}

#[test]
fn an_unchecked_create_takes_the_length_alone_of_a_file_that_is_there() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.write(&file, 0, stable_how::UNSTABLE, b"data").expect("written");
    let new = sattr3 { mode: Nfs3Option::Some(0o777), ..sattr3::default() };
    assert_eq!(rig.create_as(&root, "file", createhow3::UNCHECKED(new.clone())), Ok(file.clone()));
    let attributes = rig.attributes(&file).expect("there");
    assert_eq!((attributes.mode, attributes.size), (0o640, 4));
    assert_eq!(rig.create_as(&root, "file", createhow3::UNCHECKED(size(0))), Ok(file.clone()));
    assert_eq!(rig.attributes(&file).expect("there").size, 0);
    assert_eq!(rig.create_as(&root, "file", createhow3::GUARDED(new)), Err(nfsstat3::NFS3ERR_EXIST));
    rig.make_directory(&root, "dir").expect("new");
    assert_eq!(rig.create_as(&root, "dir", createhow3::UNCHECKED(size(0))), Err(nfsstat3::NFS3ERR_EXIST));
}

#[test]
fn a_sync_that_fails_is_an_error_and_changes_the_verifier() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let first = rig.write(&file, 0, stable_how::UNSTABLE, b"data").expect("written").verf;
    assert_eq!(rig.commit(&file).expect("durable").verf, first, "one verifier for WRITE and COMMIT");
    rig.files.sync_fails = Some(nfsstat3::NFS3ERR_IO);
    assert_eq!(rig.commit(&file).err(), Some(nfsstat3::NFS3ERR_IO));
    let second = rig.write(&file, 0, stable_how::UNSTABLE, b"data").expect("written").verf;
    for stable in [stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        assert_eq!(rig.write(&file, 0, stable, b"data").err(), Some(nfsstat3::NFS3ERR_IO));
    }
    rig.files.sync_fails = None;
    let third = rig.commit(&file).expect("durable").verf;
    assert!(first != second && second != third, "{first:?} {second:?} {third:?}");
    rig.restart();
    assert_ne!(rig.commit(&file).expect("durable").verf, third);
}

#[test]
fn nobody_is_told_to_ask_again_for_a_name_that_was_made_or_removed() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.files.sync_fails = Some(nfsstat3::NFS3ERR_JUKEBOX);
    assert_eq!(rig.commit(&file).err(), Some(nfsstat3::NFS3ERR_JUKEBOX), "it is done again");
    let new = createhow3::GUARDED(sattr3::default());
    let lost = Some(nfsstat3::NFS3ERR_SERVERFAULT);
    assert_eq!(rig.create_as(&root, "new", new).err(), lost);
    let renamed: RENAME3res =
        rig.ask(P::NFSPROC3_RENAME, &RENAME3args { from: at(&root, "new"), to: at(&root, "moved") });
    let linked: LINK3res =
        rig.ask(P::NFSPROC3_LINK, &LINK3args { file: file.clone(), link: at(&root, "linked") });
    let made: MKDIR3res =
        rig.ask(P::NFSPROC3_MKDIR, &MKDIR3args { where_: at(&root, "dir"), attributes: sattr3::default() });
    assert_eq!(result(renamed).err(), lost);
    assert_eq!(result(linked).err(), lost);
    assert_eq!(result(made).err(), lost);
    assert_eq!(rig.remove(&root, "moved").err(), lost);
    assert_eq!(rig.remove_directory(&root, "dir").err(), lost);
    rig.look_up(&root, "linked").expect("it was made");
}

#[test]
fn a_write_shows_the_verifier_of_before_it() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.files.disturbs = Some(Arc::clone(&rig.server));
    let written = rig.write(&file, 0, stable_how::UNSTABLE, b"data").expect("written").verf;
    assert_ne!(rig.commit(&file).expect("durable").verf, written, "the client has to write again");
}

#[test]
fn a_write_says_how_durable_it_is() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let number = rig.file(&file);
    for stable in [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        rig.files.log.clear();
        let written = rig.write(&file, 0, stable, b"data").expect("written");
        assert_eq!(written.committed, stable);
        let is_synced = rig.files.log.last() == Some(&Event::Synced(number));
        assert_eq!(is_synced, stable != stable_how::UNSTABLE, "{stable}");
    }
}

/// What was changed and is not durable yet.
fn loose(log: &[Event]) -> Vec<u64> {
    let mut loose = Vec::new();
    for event in log {
        match event {
            Event::Changed(file) => loose.push(*file),
            Event::Synced(file) => loose.retain(|changed| changed != file),
            Event::Opened(_) => {}
        }
    }
    loose
}

/// Carries a changing call of each kind out in an export, and returns the log of each.
fn change_everything(rig: &mut Rig, root: &nfs_fh3) -> Vec<(&'static str, Vec<Event>)> {
    let mut logs = Vec::new();
    let dir = rig.make_directory(root, "dir").expect("new");
    logs.push(("MKDIR", std::mem::take(&mut rig.files.log)));
    let file = rig.create(root, "file", 0o640);
    logs.push(("CREATE", std::mem::take(&mut rig.files.log)));
    rig.create_as(root, "sole", exclusive([1; 8])).expect("new");
    logs.push(("exclusive CREATE", std::mem::take(&mut rig.files.log)));
    rig.set(&file, size(7), None).expect("set");
    logs.push(("SETATTR", std::mem::take(&mut rig.files.log)));
    let link = rig.symlink(root, "symlink", b"target").expect("new");
    // It is durable with its name.
    rig.files.log.clear();
    rig.set(&link, sattr3 { mtime: set_mtime::SET_TO_SERVER_TIME, ..sattr3::default() }, None).expect("set");
    logs.push(("SETATTR of a link", std::mem::take(&mut rig.files.log)));
    rig.link(&file, at(&dir, "link")).expect("linked");
    logs.push(("LINK", std::mem::take(&mut rig.files.log)));
    rig.rename(at(root, "file"), at(&dir, "moved")).expect("renamed");
    logs.push(("RENAME", std::mem::take(&mut rig.files.log)));
    rig.remove(&dir, "moved").expect("removed");
    logs.push(("REMOVE", std::mem::take(&mut rig.files.log)));
    rig.remove(&dir, "link").expect("removed");
    rig.files.log.clear();
    rig.remove_directory(root, "dir").expect("removed");
    logs.push(("RMDIR", std::mem::take(&mut rig.files.log)));
    logs
}

#[test]
fn a_change_is_durable_before_it_is_answered_unless_the_export_is_asynchronous() {
    let mut rig = Rig::new();
    let root = rig.root();
    for (call, log) in change_everything(&mut rig, &root) {
        assert!(log.iter().any(|event| matches!(event, Event::Changed(_))), "{call} changes something");
        assert_eq!(loose(&log), Vec::<u64>::new(), "{call}: {log:?}");
    }
    let number = rig.files.roots[&2];
    let root = rig.handle(2, number);
    for (call, log) in change_everything(&mut rig, &root) {
        assert!(!log.iter().any(|event| matches!(event, Event::Synced(_))), "{call}: {log:?}");
    }
}

#[test]
fn every_change_shows_attributes_before_and_after_also_if_it_fails() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let is_whole = |wcc: &wcc_data| wcc.before.is_some() && wcc.after.is_some();
    let checks = |wcc: &wcc_data, call: &str| assert!(is_whole(wcc), "{call}: {wcc:?}");

    let made: CREATE3res = rig.ask(
        P::NFSPROC3_CREATE,
        &CREATE3args { where_: at(&root, "file"), how: createhow3::GUARDED(sattr3::default()) },
    );
    let Nfs3Result::Err((_, failed)) = made else { panic!("it is there") };
    checks(&failed.dir_wcc, "CREATE");
    let made: MKDIR3res =
        rig.ask(P::NFSPROC3_MKDIR, &MKDIR3args { where_: at(&root, "."), attributes: sattr3::default() });
    let Nfs3Result::Err((status, failed)) = made else { panic!("it is there") };
    assert_eq!(status, nfsstat3::NFS3ERR_EXIST);
    checks(&failed.dir_wcc, "MKDIR");
    let removed: REMOVE3res = rig.ask(P::NFSPROC3_REMOVE, &REMOVE3args { object: at(&root, "none") });
    let Nfs3Result::Err((_, failed)) = removed else { panic!("it is not there") };
    checks(&failed.dir_wcc, "REMOVE");
    let renamed: RENAME3res =
        rig.ask(P::NFSPROC3_RENAME, &RENAME3args { from: at(&root, "none"), to: at(&root, "new") });
    let Nfs3Result::Err((_, failed)) = renamed else { panic!("it is not there") };
    checks(&failed.fromdir_wcc, "RENAME");
    checks(&failed.todir_wcc, "RENAME");
    let linked: LINK3res =
        rig.ask(P::NFSPROC3_LINK, &LINK3args { file: file.clone(), link: at(&root, "file") });
    let Nfs3Result::Err((_, failed)) = linked else { panic!("it is there") };
    checks(&failed.linkdir_wcc, "LINK");
    assert!(failed.file_attributes.is_some());

    checks(&rig.write(&file, 0, stable_how::UNSTABLE, b"x").expect("written").file_wcc, "WRITE");
    checks(&rig.commit(&file).expect("durable").file_wcc, "COMMIT");
    checks(&rig.remove(&root, "file").expect("removed").dir_wcc, "REMOVE");
}

#[test]
fn attributes_before_a_change_are_of_before_it_and_after_it_of_after() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let old = rig.attributes(&file).expect("there");
    let wcc = rig.write(&file, 0, stable_how::UNSTABLE, b"12345").expect("written").file_wcc;
    let before = wcc.before.unwrap();
    assert_eq!((before.size, before.ctime), (0, old.ctime));
    let after = wcc.after.unwrap();
    assert_eq!(after.size, 5);
    assert_eq!(after.ctime, rig.attributes(&file).expect("there").ctime);
}

#[test]
fn a_guard_is_compared_only_if_there_is_one() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let ctime = rig.attributes(&file).expect("there").ctime;
    for guard in [nfstime3::default(), nfstime3 { seconds: ctime.seconds, nseconds: ctime.nseconds + 1 }] {
        assert_eq!(rig.set(&file, size(5), Some(guard)).err(), Some(nfsstat3::NFS3ERR_NOT_SYNC));
    }
    assert_eq!(rig.attributes(&file).expect("there").size, 0);
    rig.set(&file, size(5), Some(ctime)).expect("its ctime is the guard");
    rig.set(&file, size(6), None).expect("without a guard");
    assert_eq!(rig.attributes(&file).expect("there").size, 6);
}

#[test]
fn attributes_that_mean_something_else_to_the_kernel_are_refused_before_anything_is_set() {
    let mut rig = Rig::with_root();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let time = nfstime3 { seconds: 1, nseconds: 1_000_000_000 };
    let bad = [
        sattr3 { uid: Nfs3Option::Some(u32::MAX), ..size(3) },
        sattr3 { gid: Nfs3Option::Some(u32::MAX), ..size(3) },
        sattr3 { atime: set_atime::SET_TO_CLIENT_TIME(time), ..size(3) },
        sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time), ..size(3) },
    ];
    for new in bad {
        assert_eq!(rig.set(&file, new.clone(), None).err(), Some(nfsstat3::NFS3ERR_INVAL), "{new:?}");
    }
    assert_eq!(rig.set(&file, size(1 << 63), None).err(), Some(nfsstat3::NFS3ERR_FBIG));
    assert_eq!(rig.attributes(&file).expect("there").size, 0);
    assert_eq!(rig.set(&root, size(0), None).err(), Some(nfsstat3::NFS3ERR_ISDIR));
}

#[test]
fn a_node_that_is_none_is_a_bad_type_and_a_device_is_for_root() {
    let mut rig = Rig::new();
    let root = rig.root();
    let device =
        || devicedata3 { dev_attributes: sattr3::default(), spec: specdata3 { specdata1: 1, specdata2: 3 } };
    let make = |rig: &mut Rig, what| {
        let made: MKNOD3res = rig.ask(P::NFSPROC3_MKNOD, &MKNOD3args { where_: at(&root, "node"), what });
        result(made).map(drop)
    };
    assert_eq!(make(&mut rig, mknoddata3::NF3CHR(device())), Err(nfsstat3::NFS3ERR_PERM));
    assert_eq!(make(&mut rig, mknoddata3::NF3FIFO(sattr3::default())), Ok(()));
    assert_eq!(make(&mut rig, mknoddata3::NF3SOCK(sattr3::default())), Err(nfsstat3::NFS3ERR_EXIST));
    // Of a regular file, in words: a handle, a name, the type.
    let mut args = Vec::new();
    let what = LOOKUP3args { what: at(&root, "other") };
    twinpath_rpc::nfs3_types::xdr_codec::Pack::pack(&what, &mut args).expect("it can be encoded");
    args.extend([0, 0, 0, 1]);
    let call = twinpath_nfs::Call::read(11, &args).expect("decoded");
    let results = rig.raw(&call).expect("nothing waits");
    assert_eq!(results[..4], (nfsstat3::NFS3ERR_BADTYPE as u32).to_be_bytes());
}

#[test]
fn data_beyond_what_the_transport_takes_is_written_in_part() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let written = rig.write(&file, 0, stable_how::UNSTABLE, &[1; 5000]).expect("written");
    assert_eq!((written.count, rig.attributes(&file).expect("there").size), (4096, 4096));
    let far = rig.write(&file, i64::MAX as u64, stable_how::UNSTABLE, &[1]);
    assert_eq!(far.err(), Some(nfsstat3::NFS3ERR_FBIG));
    assert_eq!(rig.write(&file, u64::MAX, stable_how::UNSTABLE, &[1]).err(), Some(nfsstat3::NFS3ERR_FBIG));
    assert_eq!(rig.write(&file, 9, stable_how::FILE_SYNC, &[]).expect("nothing to write").count, 0);
    assert_eq!(rig.attributes(&file).expect("there").size, 4096);
}

#[test]
fn null_has_no_results() {
    let mut rig = Rig::new();
    let _: Void = rig.ask(P::NFSPROC3_NULL, &Void);
}

#[test]
fn a_target_of_a_link_is_kept_as_it_is_and_bounded() {
    let mut rig = Rig::new();
    let root = rig.root();
    let link = rig.symlink(&root, "link", b"../../etc/passwd").expect("the client's business");
    let read = |rig: &mut Rig, link: &nfs_fh3| {
        let read: READLINK3res<'static> =
            rig.ask(P::NFSPROC3_READLINK, &READLINK3args { symlink: link.clone() });
        result(read).map(|read| read.data.0.to_vec())
    };
    assert_eq!(read(&mut rig, &link), Ok(b"../../etc/passwd".to_vec()));
    assert_eq!(rig.symlink(&root, "long", &[b'x'; 4096]), Err(nfsstat3::NFS3ERR_NAMETOOLONG));
    assert_eq!(rig.symlink(&root, "nul", b"a\0b"), Err(nfsstat3::NFS3ERR_INVAL));
    let number = rig.file(&link);
    rig.files.node(number).data = vec![b'x'; 100_000];
    assert_eq!(read(&mut rig, &link), Err(nfsstat3::NFS3ERR_NAMETOOLONG), "made by others");
    let file = rig.create(&root, "file", 0o640);
    assert_eq!(read(&mut rig, &file), Err(nfsstat3::NFS3ERR_INVAL));
    let found = rig.look_up(&link, "passwd");
    assert_eq!(found, Err(nfsstat3::NFS3ERR_NOTDIR), "a link is not followed");
}
