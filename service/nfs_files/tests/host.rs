//! Files of this host behind the server's interface. Each test has a thread of its own, as rights are a thread's.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use twinpath_nfs::{
    Caller, Fault, FileId, Files as _, Listed, Make, OpenAs, Rights, SetTime, Sync, ThreadFiles as _,
    WriteVerifier,
};
use twinpath_nfs_files::{Directory, HostExports, HostFile, HostFiles, HostThreads};
use twinpath_rpc::nfs3_types::nfs3::{ftype3, nfsstat3, nfstime3};
use twinpath_sys::file_rights::own_mask;
use twinpath_test_rig::root_or_skip;

/// A directory that is exported by this number.
fn exported(number: u32, path: &Path) -> Arc<HostExports> {
    let directory = Arc::new(Directory::open(path).expect("a directory"));
    let verifier = Arc::new(WriteVerifier::new(1));
    Arc::new(HostExports::new(vec![(number, directory)], None, &verifier).expect("exported"))
}

/// Whether this process has a file open whose path ends so.
fn is_open(path: &Path) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").expect("there").flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    // A mount that is attached nowhere has paths of its own.
    targets.into_iter().any(|target| target.file_name() == path.file_name())
}

struct Host {
    files: HostFiles,
    exports: Arc<HostExports>,
    root: HostFile,
    who: Caller,
    folder: tempfile::TempDir,
}

impl Host {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("export").join(name)
    }

    fn make(&mut self, name: &str, what: Make<'_>, mode: u32) -> Result<HostFile, Fault> {
        self.files.make(&self.who, &self.root, name.as_bytes(), what, mode)
    }

    fn look_up(&mut self, name: &str) -> Result<HostFile, Fault> {
        self.files.look_up(&self.who, &self.root, name.as_bytes())
    }

    fn read(&mut self, open_as: OpenAs, file: &HostFile) -> Result<Vec<u8>, Fault> {
        let mut out = b"header".to_vec();
        self.files.read(&self.who, open_as, file, 0, 100, &mut out)?;
        Ok(out.split_off(6))
    }

    fn names(&mut self, cookie: u64, count: usize) -> (Vec<(String, u64)>, bool) {
        let mut names = Vec::new();
        let mut each = |entry: &Listed<'_>| {
            let is_more = names.len() < count;
            if is_more {
                names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.cookie));
            }
            is_more
        };
        let is_end = self.files.list(&self.who, &self.root, cookie, true, &mut each).expect("listed");
        (names, is_end)
    }
}

/// Runs a test as root, with an export that everybody may write to; the caller is 1000.
fn with_host(test: impl FnOnce(Host) + Send + 'static) {
    if !root_or_skip() {
        return;
    }
    let run = move || {
        own_mask().expect("root may");
        let folder = tempfile::tempdir().expect("a folder");
        let export = folder.path().join("export");
        fs::create_dir(&export).expect("made");
        for path in [folder.path(), &export] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("set");
        }
        let exports = exported(1, &export);
        let mut files = HostFiles::new(Arc::clone(&exports));
        let root = files.root(1).expect("there");
        test(Host { files, exports, root, who: Caller::new(1000, 1000), folder });
    };
    std::thread::spawn(run).join().expect("the test passes");
}

fn is(status: nfsstat3) -> Option<Fault> {
    Some(Fault::Status(status))
}

#[test]
fn what_was_made_is_what_is_returned_whoever_renames_something_to_its_name() {
    /// Modes by which one tells which of the two has made it.
    const OURS: u32 = 0o711;
    const THEIRS: u32 = 0o700;
    /// Without turns, one of some hundred is another one.
    const ROUNDS: usize = 3000;
    with_host(|mut host| {
        let (exports, root, who) = (Arc::clone(&host.exports), host.root.clone(), host.who);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let other = std::thread::spawn(move || {
            own_mask().expect("root may");
            let mut files = HostFiles::new(exports);
            let mut renamed = 0;
            while !ends.load(Ordering::Relaxed) {
                drop(files.make(&who, &root, b"other", Make::Directory, THEIRS));
                renamed += usize::from(files.rename(&who, (&root, b"other"), (&root, b"name")).is_ok());
            }
            renamed
        });
        let mut made = 0;
        while made < ROUNDS {
            match host.make("name", Make::Directory, OURS) {
                Ok(dir) => {
                    assert_eq!(host.files.attributes(&dir).expect("open").mode, OURS, "after {made}");
                    made += 1;
                }
                Err(fault) => assert_eq!(Some(fault), is(nfsstat3::NFS3ERR_EXIST)),
            }
            let root = host.root.clone();
            let _ = host.files.remove_directory(&who, &root, b"name");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(other.join().expect("it renames") > 0);
    });
}

#[test]
fn data_goes_to_the_disk_and_back_by_a_handle() {
    with_host(|mut host| {
        let file = host.make("file", Make::File(None), 0o640).expect("new");
        let who = host.who;
        assert_eq!(host.files.write(&who, OpenAs::Caller, &file, 3, b"data"), Ok(4));
        host.files.sync(&file, Sync::Data, &mut || {}).expect("durable");
        host.files.sync(&file, Sync::All, &mut || {}).expect("durable");
        let root = host.root.clone();
        host.files.sync(&root, Sync::All, &mut || {}).expect("durable");
        let stat = fs::metadata(host.path("file")).expect("there");
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1000, 1000, 0o640));
        let key = host.files.key(&file).expect("a key");
        fs::rename(host.path("file"), host.path("moved")).expect("renamed");
        drop(file);
        // As after a restart.
        host.files = HostFiles::new(exported(1, &host.path("")));
        let file = host.files.open(&FileId { export: 1, key }).expect("the same file");
        assert_eq!(host.read(OpenAs::Caller, &file), Ok(b"\0\0\0data".to_vec()));
        let attributes = host.files.attributes(&file).expect("there");
        assert_eq!((attributes.type_, attributes.size, attributes.fsid), (ftype3::NF3REG, 7, 1));
        host.files.set_size(&who, OpenAs::Caller, &file, 2).expect("set");
        assert_eq!(fs::read(host.path("moved")).expect("there"), [0, 0]);
        drop(file);
        fs::remove_file(host.path("moved")).expect("removed");
        assert_eq!(host.files.open(&FileId { export: 1, key }).err(), is(nfsstat3::NFS3ERR_STALE));
    });
}

#[test]
fn a_caller_has_the_rights_that_the_kernel_gives_it() {
    with_host(|mut host| {
        fs::write(host.path("secret"), "data").expect("written");
        fs::set_permissions(host.path("secret"), fs::Permissions::from_mode(0o600)).expect("set");
        let file = host.look_up("secret").expect("its name is no secret");
        let (who, root) = (host.who, host.root.clone());
        assert_eq!(host.read(OpenAs::Caller, &file).err(), is(nfsstat3::NFS3ERR_ACCES));
        assert_eq!(host.files.permits(&who, &file, Rights::READ), Ok(false));
        assert_eq!(host.files.permits(&who, &root, Rights::WRITE.and(Rights::EXECUTE)), Ok(true));
        assert_eq!(host.files.set_mode(&who, &file, 0o666).err(), is(nfsstat3::NFS3ERR_PERM));
        assert_eq!(host.files.set_owner(&who, &file, Some(1000), None).err(), is(nfsstat3::NFS3ERR_PERM));
        let times = (SetTime::Now, SetTime::Now);
        assert_eq!(host.files.set_times(&who, &file, times.0, times.1).err(), is(nfsstat3::NFS3ERR_ACCES));
        assert_eq!(host.read(OpenAs::Server, &file), Ok(b"data".to_vec()), "where the rules allow it");
        let device = host.make("null", Make::Character(1, 3), 0o666);
        assert_eq!(device.err(), is(nfsstat3::NFS3ERR_PERM));
        fs::create_dir(host.path("closed")).expect("made");
        fs::set_permissions(host.path("closed"), fs::Permissions::from_mode(0o700)).expect("set");
        let closed = host.look_up("closed").expect("its name is no secret");
        let inside = host.files.look_up(&who, &closed, b"x");
        assert_eq!(inside.err(), is(nfsstat3::NFS3ERR_ACCES));
        assert_eq!(
            host.files.make(&who, &closed, b"x", Make::Directory, 0).err(),
            is(nfsstat3::NFS3ERR_ACCES)
        );
        host.who = Caller::new(0, 0);
        host.make("null", Make::Character(1, 3), 0o666).expect("root may");
    });
}

#[test]
fn attributes_are_set_by_their_owner_also_of_a_link() {
    with_host(|mut host| {
        let who = host.who;
        let file = host.make("file", Make::File(None), 0o600).expect("new");
        host.files.set_mode(&who, &file, 0o4751).expect("set");
        let time = nfstime3 { seconds: 1_000_000_000, nseconds: 123 };
        host.files.set_times(&who, &file, SetTime::Keep, SetTime::To(time)).expect("set");
        host.files.set_owner(&who, &file, None, Some(1000)).expect("its own group");
        let attributes = host.files.attributes(&file).expect("there");
        assert_eq!((attributes.mode & 0o777, attributes.mtime), (0o751, time));
        let link = host.make("link", Make::Symlink(b"file"), 0o777).expect("new");
        assert_eq!(host.files.attributes(&link).expect("there").type_, ftype3::NF3LNK);
        host.files.set_times(&who, &link, SetTime::To(time), SetTime::To(time)).expect("set");
        assert_eq!(host.files.attributes(&link).expect("there").mtime, time);
        let mut target = Vec::new();
        host.files.read_link(&who, &link, &mut target).expect("a link");
        assert_eq!(target, b"file");
    });
}

#[test]
fn a_verifier_is_kept_in_times_before_the_file_has_a_name() {
    with_host(|mut host| {
        let times =
            (nfstime3 { seconds: 0x7fff_ffff, nseconds: 500_000_000 }, nfstime3 { seconds: 1, nseconds: 0 });
        let file = host.make("file", Make::File(Some(times)), 0).expect("new");
        let attributes = host.files.attributes(&file).expect("there");
        assert_eq!((attributes.atime, attributes.mtime, attributes.uid), (times.0, times.1, 1000));
        let again = host.make("file", Make::File(Some(times)), 0);
        assert_eq!(again.err(), is(nfsstat3::NFS3ERR_EXIST));
        assert_eq!(host.names(0, 9).0.len(), 3, "it is the only one");
    });
}

#[test]
fn no_name_leads_out_of_the_export() {
    with_host(|mut host| {
        let outside = host.folder.path().join("outside");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("file"), "data").expect("written");
        symlink("../outside", host.path("link")).expect("made");
        let (who, link) = (host.who, host.look_up("link").expect("a link"));
        assert_eq!(host.files.look_up(&who, &link, b"file").err(), is(nfsstat3::NFS3ERR_NOTDIR));
        assert!(host.look_up("..").is_err());
        assert!(host.look_up("link/file").is_err());
        let dir = host.make("dir", Make::Directory, 0o755).expect("new");
        let inner = host.files.make(&who, &dir, b"inner", Make::Directory, 0o755).expect("new");
        let parent = host.files.parent(&who, 1, &inner).expect("within");
        assert_eq!(host.files.key(&parent), host.files.key(&dir));
        // Moved out by others: its parent is not the export's any more.
        fs::rename(host.path("dir/inner"), outside.join("inner")).expect("moved");
        assert_eq!(host.files.parent(&who, 1, &inner).err(), is(nfsstat3::NFS3ERR_STALE));
    });
}

#[test]
fn a_directory_is_listed_from_any_of_its_positions() {
    with_host(|mut host| {
        for number in 0..50 {
            host.make(&format!("file-{number}"), Make::File(None), 0o600).expect("new");
        }
        let (all, is_end) = host.names(0, 1000);
        assert!(is_end && all.len() == 52);
        let mut pieces = Vec::new();
        loop {
            let cookie = pieces.last().map_or(0, |(_, cookie)| *cookie);
            let (piece, is_end) = host.names(cookie, 7);
            pieces.extend(piece);
            if is_end {
                break;
            }
        }
        assert_eq!(pieces, all);
    });
}

#[test]
fn names_are_moved_linked_and_removed() {
    with_host(|mut host| {
        let (who, root) = (host.who, host.root.clone());
        let file = host.make("file", Make::File(None), 0o600).expect("new");
        let dir = host.make("dir", Make::Directory, 0o755).expect("new");
        host.files.link(&who, &file, &dir, b"link").expect("linked");
        assert_eq!(fs::metadata(host.path("dir/link")).expect("there").nlink(), 2);
        assert_eq!(host.files.link(&who, &file, &dir, b"link").err(), is(nfsstat3::NFS3ERR_EXIST));
        host.files.rename(&who, (&root, b"file"), (&dir, b"moved")).expect("renamed");
        assert_eq!(host.files.remove_directory(&who, &root, b"dir").err(), is(nfsstat3::NFS3ERR_NOTEMPTY));
        assert_eq!(host.files.remove(&who, &root, b"dir").err(), is(nfsstat3::NFS3ERR_ISDIR));
        for name in [b"moved".as_slice(), b"link"] {
            host.files.remove(&who, &dir, name).expect("removed");
        }
        host.files.remove_directory(&who, &root, b"dir").expect("removed");
        let space = host.files.space(&root).expect("known");
        assert!(space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes);
        assert_eq!(host.files.limits(&root).expect("known").name_max, 255);
    });
}

#[test]
fn each_thread_has_files_of_its_own_without_a_mask() {
    with_host(|host| {
        let export = host.path("");
        let threads = HostThreads::new(exported(1, &export));
        let others: Vec<_> = (0..4)
            .map(|number| {
                let threads = threads.clone();
                std::thread::spawn(move || {
                    let made = threads.with(|files| {
                        let root = files.root(1)?;
                        let name = format!("file-{number}");
                        let who = Caller::new(1000 + number, 100);
                        files.make(&who, &root, name.as_bytes(), Make::File(None), 0o666).map(drop)
                    });
                    assert_eq!(made.expect("root may"), Ok(()));
                })
            })
            .collect();
        others.into_iter().for_each(|thread| thread.join().expect("it ends"));
        for number in 0..4 {
            let stat = fs::metadata(host.path(&format!("file-{number}"))).expect("there");
            assert_eq!((stat.uid(), stat.mode() & 0o777), (1000 + number, 0o666));
        }
    });
}

#[test]
fn a_file_with_data_that_is_not_durable_is_open_until_its_sync_or_its_end() {
    with_host(|mut host| {
        let names = ["unsynced-committed", "unsynced-removed", "unsynced-replaced", "unsynced-linked"];
        for name in names {
            let file = host.make(name, Make::File(None), 0o644).expect("made");
            let is_written = host.files.write(&host.who, OpenAs::Caller, &file, 0, b"data");
            assert_eq!(is_written.expect("written"), 4);
        }
        // Handles as of tmpfs or ext4 keep files open for workers, too: until those that nobody uses are closed.
        let settle = |path: &Path| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while is_open(path) && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            !is_open(path)
        };
        assert!(names.iter().all(|name| is_open(&host.path(name))));
        let committed = host.look_up(names[0]).expect("there");
        host.files.sync(&committed, Sync::All, &mut || panic!("it does not fail")).expect("synced");
        drop(committed);
        let (who, root) = (host.who, host.root.clone());
        fs::hard_link(host.path(names[3]), host.path("another")).expect("linked");
        host.files.remove(&who, &root, names[1].as_bytes()).expect("removed");
        host.files.remove(&who, &root, names[3].as_bytes()).expect("removed");
        let new = host.make("new", Make::File(None), 0o644).expect("made");
        host.files.rename(&who, (&root, b"new"), (&root, names[2].as_bytes())).expect("renamed");
        drop(new);
        assert!(names[..3].iter().all(|name| settle(&host.path(name))));
        // Its data has another name still.
        let removed = format!("{} (deleted)", names[3]);
        assert!(is_open(Path::new(&removed)) || is_open(Path::new("another")));
    });
}
