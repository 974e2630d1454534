//! Who may do what.

use twinpath_nfs::Network;
use twinpath_rpc::nfs3_types::nfs3::*;

use crate::model::Event;
use crate::rig::{Rig, at, size};

const ALL: u32 = 0x3f;

#[test]
fn root_is_squashed() {
    let mut rig = Rig::new();
    let root = rig.root();
    rig.uid = 0;
    let file = rig.create(&root, "file", 0o600);
    assert_eq!(rig.attributes(&file).expect("there").uid, 65_534);
    rig.uid = 1000;
    let file = rig.create(&root, "private", 0o600);
    rig.uid = 0;
    assert_eq!(rig.read(&file, 0, 5), Err(nfsstat3::NFS3ERR_ACCES));
}

#[test]
fn nothing_changes_on_a_read_only_export() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o666);
    let mut read_only = Rig::with(|exports| exports.iter_mut().for_each(|export| export.is_read_only = true));
    std::mem::swap(&mut rig.files, &mut read_only.files);
    let rig = &mut read_only;
    rig.files.log.clear();
    let rofs = Some(nfsstat3::NFS3ERR_ROFS);
    assert_eq!(rig.write(&file, 0, stable_how::UNSTABLE, b"x").err(), rofs);
    assert_eq!(rig.commit(&file).err(), rofs);
    assert_eq!(rig.set(&file, size(0), None).err(), rofs);
    assert_eq!(rig.make_directory(&root, "new").err(), rofs);
    assert_eq!(rig.create_as(&root, "file", createhow3::UNCHECKED(sattr3::default())).err(), rofs);
    assert_eq!(rig.remove(&root, "file").err(), rofs);
    assert_eq!(rig.remove_directory(&root, "none").err(), rofs);
    assert_eq!(rig.rename(at(&root, "file"), at(&root, "new")).err(), rofs);
    assert_eq!(rig.link(&file, at(&root, "new")).err(), rofs);
    assert_eq!(rig.files.log, []);
    assert_eq!(rig.access(&file, ALL), ACCESS3_READ);
    assert_eq!(rig.read(&file, 0, 5), Ok((Vec::new(), true)));
}

#[test]
fn a_client_that_may_not_use_the_export_sees_stale_handles() {
    let mut rig = Rig::with(|exports| {
        exports[0].clients =
            vec![Network::new("192.0.2.0".parse().expect("an address"), 24).expect("24 bits")];
    });
    let root = rig.root();
    rig.attributes(&root).expect("it may");
    rig.peer = "198.51.100.1:700".parse().expect("an address");
    assert_eq!(rig.attributes(&root).err(), Some(nfsstat3::NFS3ERR_STALE));
    rig.peer = "192.0.2.1:1024".parse().expect("an address");
    assert_eq!(rig.attributes(&root).err(), Some(nfsstat3::NFS3ERR_PERM));
}

#[test]
fn a_handle_that_was_guessed_altered_or_cut_opens_nothing() {
    let mut rig = Rig::new();
    let root = rig.root();
    let other = rig.files.roots[&2];
    let other = rig.handle(2, other);
    let mut mixed = root.data.to_vec();
    mixed[4..8].copy_from_slice(&other.data[4..8]);
    let mut altered = root.data.to_vec();
    altered[15] ^= 1;
    for bytes in [mixed, altered] {
        let handle = nfs_fh3 { data: twinpath_rpc::nfs3_types::xdr_codec::Opaque::owned(bytes) };
        assert_eq!(rig.attributes(&handle).err(), Some(nfsstat3::NFS3ERR_STALE));
    }
    for bytes in [Vec::new(), vec![0; 64], root.data[..10].to_vec()] {
        let handle = nfs_fh3 { data: twinpath_rpc::nfs3_types::xdr_codec::Opaque::owned(bytes) };
        assert_eq!(rig.attributes(&handle).err(), Some(nfsstat3::NFS3ERR_BADHANDLE));
    }
}

#[test]
fn nothing_moves_from_one_export_to_another() {
    let mut rig = Rig::new();
    let root = rig.root();
    let other = rig.files.roots[&2];
    let other = rig.handle(2, other);
    let file = rig.create(&root, "file", 0o640);
    assert_eq!(rig.rename(at(&root, "file"), at(&other, "file")).err(), Some(nfsstat3::NFS3ERR_XDEV));
    assert_eq!(rig.link(&file, at(&other, "file")).err(), Some(nfsstat3::NFS3ERR_XDEV));
}

#[test]
fn a_call_of_two_exports_does_not_wait_for_the_second() {
    let mut rig = Rig::new();
    let root = rig.root();
    let other = rig.files.roots[&2];
    let other = rig.handle(2, other);
    let file = rig.create(&root, "file", 0o640);
    rig.files.hung = Some(2);
    assert_eq!(rig.rename(at(&root, "file"), at(&other, "file")).err(), Some(nfsstat3::NFS3ERR_XDEV));
    assert_eq!(rig.link(&file, at(&other, "file")).err(), Some(nfsstat3::NFS3ERR_XDEV));
}

#[test]
fn an_owner_reads_and_writes_whatever_the_mode_says_and_others_do_not() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o000);
    rig.write(&file, 0, stable_how::FILE_SYNC, b"data").expect("as a program that created it read-only does");
    assert_eq!(rig.read(&file, 0, 9), Ok((b"data".to_vec(), true)));
    rig.set(&file, size(2), None).expect("its owner may");
    assert_eq!(rig.access(&file, ALL), 0, "ACCESS says what the mode says");
    rig.uid = 1001;
    rig.files.log.clear();
    assert_eq!(rig.write(&file, 0, stable_how::UNSTABLE, b"x").err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(rig.read(&file, 0, 9), Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(rig.set(&file, size(0), None).err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(rig.files.log, []);
}

#[test]
fn who_may_run_a_file_may_read_it() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o711);
    rig.uid = 1001;
    rig.files.log.clear();
    assert!(rig.read(&file, 0, 9).is_ok());
    assert_eq!(rig.files.log.len(), 1);
    assert!(matches!(rig.files.log[0], Event::Opened(_)));
    assert_eq!(rig.write(&file, 0, stable_how::UNSTABLE, b"x").err(), Some(nfsstat3::NFS3ERR_ACCES));
}

#[test]
fn access_answers_what_is_asked_and_what_the_kind_of_file_has() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o700);
    assert_eq!(rig.access(&file, ALL), ALL & !ACCESS3_LOOKUP & !ACCESS3_DELETE);
    assert_eq!(rig.access(&file, ACCESS3_READ | ACCESS3_LOOKUP), ACCESS3_READ);
    assert_eq!(rig.access(&root, ALL), ALL & !ACCESS3_EXECUTE);
    let dir = rig.make_directory(&root, "dir").expect("new");
    rig.uid = 1001;
    assert_eq!(rig.access(&dir, ALL), ACCESS3_READ | ACCESS3_LOOKUP);
    assert_eq!(rig.access(&file, ALL), 0);
    rig.access(&file, u32::MAX);
}

#[test]
fn a_lookup_asks_for_the_right_of_the_caller() {
    let mut rig = Rig::new();
    let root = rig.root();
    let dir = rig.make_directory(&root, "dir").expect("new");
    rig.create(&dir, "file", 0o644);
    let number = rig.file(&dir);
    rig.files.node(number).mode = 0o700;
    rig.look_up(&dir, "file").expect("its owner may");
    rig.uid = 1001;
    for name in ["file", ".", "..", "none"] {
        assert_eq!(rig.look_up(&dir, name), Err(nfsstat3::NFS3ERR_ACCES), "{name}");
    }
}

#[test]
fn who_may_not_write_a_file_does_not_sync_it() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o444);
    rig.commit(&file).expect("its owner may");
    rig.uid = 1001;
    rig.files.log.clear();
    assert_eq!(rig.commit(&file).err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(rig.write(&file, 0, stable_how::FILE_SYNC, b"").err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(rig.files.log, []);
    let number = rig.file(&file);
    rig.files.node(number).mode = 0o666;
    rig.commit(&file).expect("everybody may write");
    assert_eq!(rig.write(&file, 0, stable_how::FILE_SYNC, b"").map(|done| done.count), Ok(0));
    assert_eq!(rig.files.log, [Event::Synced(number); 2]);
}
