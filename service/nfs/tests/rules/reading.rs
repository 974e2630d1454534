//! What reads: data, names, directories, limits.

use twinpath_nfs::Call;
use twinpath_rpc::nfs3_types::nfs3::*;

use crate::rig::{P, Rig, at, result};

#[test]
fn a_handle_of_a_file_that_is_gone_is_stale_and_a_missing_name_is_not() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.remove(&root, "file").expect("removed");
    assert_eq!(rig.attributes(&file).err(), Some(nfsstat3::NFS3ERR_STALE));
    assert_eq!(rig.look_up(&root, "file"), Err(nfsstat3::NFS3ERR_NOENT));
}

#[test]
fn handles_hold_across_a_rename_and_a_restart() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let dir = rig.make_directory(&root, "dir").expect("new");
    rig.rename(at(&root, "file"), at(&dir, "moved")).expect("renamed");
    rig.restart();
    rig.attributes(&file).expect("the same file");
    assert_eq!(rig.look_up(&dir, "moved"), Ok(file));
}

#[test]
fn an_error_has_no_bytes_of_a_success() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.write(&file, 0, stable_how::UNSTABLE, &[7; 4000]).expect("written");
    rig.files.read_fails = true;
    let call = Call::Read { file: &file.data, offset: 0, count: 4000 };
    let results = rig.raw(&call).expect("nothing waits");
    // The status, and attributes with their mark.
    assert_eq!(results.len(), 4 + 4 + 84);
    assert_eq!(results[..4], (nfsstat3::NFS3ERR_IO as u32).to_be_bytes());
}

#[test]
fn a_call_that_would_block_leaves_nothing() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.files.must_not_wait = true;
    let call = Call::Read { file: &file.data, offset: 0, count: 4000 };
    assert!(rig.raw(&call).is_err());
    rig.attributes(&file).expect("attributes do not wait");
}

#[test]
fn data_is_read_up_to_the_end_and_no_further() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    rig.write(&file, 0, stable_how::UNSTABLE, b"0123456789").expect("written");
    assert_eq!(rig.read(&file, 0, 4), Ok((b"0123".to_vec(), false)));
    assert_eq!(rig.read(&file, 4, 6), Ok((b"456789".to_vec(), true)));
    assert_eq!(rig.read(&file, 8, u32::MAX), Ok((b"89".to_vec(), true)));
    for offset in [10, 11, i64::MAX as u64, u64::MAX] {
        assert_eq!(rig.read(&file, offset, 5), Ok((Vec::new(), true)), "offset {offset}");
    }
    assert_eq!(rig.read(&file, 3, 0), Ok((Vec::new(), false)));
    rig.write(&file, 4000, stable_how::UNSTABLE, &[1; 2000]).expect("written");
    assert_eq!(
        rig.read(&file, 0, u32::MAX).expect("read").0.len(),
        4096,
        "the most that the transport takes"
    );
    assert_eq!(rig.read(&root, 0, 5), Err(nfsstat3::NFS3ERR_ISDIR));
}

#[test]
fn a_pipe_or_device_is_never_opened() {
    let mut rig = Rig::with_root();
    let root = rig.root();
    let spec = specdata3 { specdata1: 1, specdata2: 3 };
    for what in [
        mknoddata3::NF3FIFO(sattr3::default()),
        mknoddata3::NF3SOCK(sattr3::default()),
        mknoddata3::NF3CHR(devicedata3 { dev_attributes: sattr3::default(), spec }),
    ] {
        let made: MKNOD3res = rig.ask(P::NFSPROC3_MKNOD, &MKNOD3args { where_: at(&root, "node"), what });
        let node = result(made).expect("root may").obj.unwrap();
        rig.files.log.clear();
        assert_eq!(rig.read(&node, 0, 5), Err(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(rig.write(&node, 0, stable_how::FILE_SYNC, b"x").err(), Some(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(rig.commit(&node).err(), Some(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(rig.set(&node, crate::rig::size(0), None).err(), Some(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(rig.files.log, []);
        rig.remove(&root, "node").expect("removed");
    }
}

#[test]
fn names_that_are_paths_or_nothing_are_refused() {
    let mut rig = Rig::new();
    let root = rig.root();
    let long = "x".repeat(256);
    for (name, status) in [
        ("", nfsstat3::NFS3ERR_ACCES),
        ("a/b", nfsstat3::NFS3ERR_ACCES),
        ("/", nfsstat3::NFS3ERR_ACCES),
        ("a\0b", nfsstat3::NFS3ERR_ACCES),
        (long.as_str(), nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(rig.look_up(&root, name), Err(status), "{name:?}");
        assert_eq!(rig.make_directory(&root, name), Err(status), "{name:?}");
        assert_eq!(rig.remove(&root, name).err(), Some(status), "{name:?}");
        let new = createhow3::UNCHECKED(sattr3::default());
        assert_eq!(rig.create_as(&root, name, new), Err(status), "{name:?}");
        assert_eq!(rig.rename(at(&root, name), at(&root, "new")).err(), Some(status), "{name:?}");
        assert_eq!(rig.rename(at(&root, "old"), at(&root, name)).err(), Some(status), "{name:?}");
    }
    rig.make_directory(&root, &long[..255]).expect("255 bytes are a name");
}

#[test]
fn dots_are_neither_made_nor_removed() {
    let mut rig = Rig::new();
    let root = rig.root();
    let dir = rig.make_directory(&root, "dir").expect("new");
    let file = rig.create(&root, "file", 0o640);
    for dots in [".", ".."] {
        let new = createhow3::UNCHECKED(sattr3::default());
        assert_eq!(rig.create_as(&dir, dots, new), Err(nfsstat3::NFS3ERR_EXIST));
        assert_eq!(rig.make_directory(&dir, dots), Err(nfsstat3::NFS3ERR_EXIST));
        assert_eq!(rig.link(&file, at(&dir, dots)).err(), Some(nfsstat3::NFS3ERR_EXIST));
        assert_eq!(rig.rename(at(&dir, dots), at(&root, "new")).err(), Some(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(rig.rename(at(&root, "file"), at(&dir, dots)).err(), Some(nfsstat3::NFS3ERR_INVAL));
    }
    assert_eq!(rig.remove_directory(&dir, ".").err(), Some(nfsstat3::NFS3ERR_INVAL));
    assert_eq!(rig.remove_directory(&dir, "..").err(), Some(nfsstat3::NFS3ERR_EXIST));
}

#[test]
fn the_parent_of_the_root_is_the_root() {
    let mut rig = Rig::new();
    let root = rig.root();
    let number = rig.files.roots[&1];
    rig.files.node(number).parent = rig.files.roots[&2];
    assert_eq!(rig.look_up(&root, ".."), Ok(root.clone()));
    assert_eq!(rig.look_up(&root, "."), Ok(root.clone()));
    let dir = rig.make_directory(&root, "dir").expect("new");
    assert_eq!(rig.look_up(&dir, ".."), Ok(root.clone()));
    let listed = rig.list(&root, 0, [0; 8], 4096).unwrap();
    let dots: Vec<_> = listed.reply.entries.0.iter().filter(|entry| entry.name.as_ref() == b"..").collect();
    assert_eq!(dots.len(), 1);
    assert_eq!((dots[0].fileid, dots[0].name_handle.is_some()), (number, false), "nothing outside is shown");
    // A directory that was moved out of the export, by others.
    let number = rig.file(&dir);
    rig.files.node(number).parent = rig.files.roots[&2];
    assert_eq!(rig.look_up(&dir, ".."), Err(nfsstat3::NFS3ERR_STALE));
}

#[test]
fn a_directory_is_listed_in_pieces_that_fit() {
    let mut rig = Rig::new();
    let root = rig.root();
    let mut names: Vec<String> =
        (0..40).map(|number| format!("file-{number:0width$}", width = number + 1)).collect();
    for name in &names {
        rig.create(&root, name, 0o640);
    }
    names.extend([".".to_owned(), "..".to_owned()]);
    names.sort();
    for bytes in [500, 512, 1000, 4096, u32::MAX] {
        let (mut seen, mut cookie, mut verifier, mut is_end) = (Vec::new(), 0, [0; 8], false);
        while !is_end {
            let listed = rig.list(&root, cookie, verifier, bytes).unwrap();
            assert!(listed.dir_attributes.is_some());
            is_end = listed.reply.eof;
            verifier = listed.cookieverf.0;
            for entry in listed.reply.entries.0.iter() {
                cookie = entry.cookie;
                seen.push(String::from_utf8(entry.name.as_ref().to_vec()).expect("ours"));
            }
        }
        seen.sort();
        assert_eq!(seen, names, "{bytes} bytes");
    }
}

#[test]
fn a_listing_has_at_most_the_bytes_asked_for_and_too_few_are_too_small() {
    let mut rig = Rig::new();
    let root = rig.root();
    for number in 0..20 {
        rig.create(&root, &format!("{number:030}"), 0o640);
    }
    let handle = &root.data;
    let mut is_answered = false;
    for bytes in 0..1000 {
        for is_plus in [false, true] {
            let (dir, cookie, verifier) = (&handle[..], 0, [0; 8]);
            let call = if is_plus {
                Call::Readdirplus { dir, cookie, verifier, dircount: bytes, maxcount: bytes }
            } else {
                Call::Readdir { dir, cookie, verifier, count: bytes }
            };
            let results = rig.raw(&call).expect("nothing waits");
            if results[..4] == [0; 4] {
                assert!(
                    results.len() - 4 <= bytes as usize,
                    "{} bytes, {bytes} asked for",
                    results.len() - 4
                );
                is_answered = true;
            } else {
                assert_eq!(results[..4], (nfsstat3::NFS3ERR_TOOSMALL as u32).to_be_bytes());
                assert!(bytes < 260, "{bytes} bytes are enough for an entry");
            }
        }
    }
    assert!(is_answered);
}

#[test]
fn a_cookie_with_a_verifier_of_another_directory_is_bad() {
    let mut rig = Rig::new();
    let root = rig.root();
    let dir = rig.make_directory(&root, "dir").expect("new");
    let verifier = |rig: &mut Rig, dir: &nfs_fh3| rig.list(dir, 0, [9; 8], 4096).unwrap().cookieverf.0;
    let (ours, other) = (verifier(&mut rig, &root), verifier(&mut rig, &dir));
    assert!(ours != [0; 8] && ours != other);
    assert_eq!(result(rig.list(&root, 1, other, 4096)).err(), Some(nfsstat3::NFS3ERR_BAD_COOKIE));
    for good in [ours, [0; 8]] {
        assert!(result(rig.list(&root, 1, good, 4096)).is_ok());
    }
    rig.make_directory(&root, "more").expect("new");
    rig.restart();
    assert_eq!(verifier(&mut rig, &root), ours, "positions hold when names come, and across a restart");
}

#[test]
fn entries_with_handles_have_those_that_a_lookup_has() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let listed = rig.list(&root, 0, [0; 8], 4096).unwrap();
    let found: Vec<_> =
        listed.reply.entries.0.iter().filter(|entry| entry.name.as_ref() == b"file").collect();
    assert_eq!(found[0].name_handle, Nfs3Option::Some(file.clone()));
    let Nfs3Option::Some(attributes) = &found[0].name_attributes else { panic!("no attributes") };
    assert_eq!(attributes.fileid, rig.attributes(&file).expect("there").fileid);
}

#[test]
fn limits_are_told_of_files_that_exist_alone() {
    let mut rig = Rig::new();
    let root = rig.root();
    let file = rig.create(&root, "file", 0o640);
    let ask = |rig: &mut Rig, handle: &nfs_fh3| {
        let space: FSSTAT3res = rig.ask(P::NFSPROC3_FSSTAT, &FSSTAT3args { fsroot: handle.clone() });
        let info: FSINFO3res = rig.ask(P::NFSPROC3_FSINFO, &FSINFO3args { fsroot: handle.clone() });
        let conf: PATHCONF3res = rig.ask(P::NFSPROC3_PATHCONF, &PATHCONF3args { object: handle.clone() });
        (
            result(space).map(|space| space.tbytes),
            result(info).map(|info| info.rtmax),
            result(conf).map(|conf| conf.name_max),
        )
    };
    assert_eq!(ask(&mut rig, &file), (Ok(1 << 20), Ok(4096), Ok(255)));
    rig.remove(&root, "file").expect("removed");
    let stale = nfsstat3::NFS3ERR_STALE;
    assert_eq!(ask(&mut rig, &file), (Err(stale), Err(stale), Err(stale)));
}
