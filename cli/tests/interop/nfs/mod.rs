//! Tests of `serve nfs`: a client mounts directories of this host, over UDP and TCP, on both paths.

mod bench;
mod client;
mod fuse;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use twinpath_rpc::client::Refusal;
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Void};
use twinpath_rpc::nfs3_types::{mount, nfs3};

use self::client::{Client, at};
use self::fuse::{Asked, Fuse};
use crate::reload::reload;
use crate::rig::{Rig, Server};
use crate::root_or_skip;

/// The longest data of a call.
const MIB: usize = 1 << 20;

/// Directories of the server, and where it keeps its state.
struct Place {
    rig: Rig,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { rig: Rig::new(), folder: tempfile::tempdir().unwrap() };
        open_to_all(place.folder.path());
        place
    }

    /// A directory to which every user may write.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        open_to_all(&path);
        path
    }

    /// Serves exports, with more options.
    fn serve(&self, exports: &[String], options: &[&str]) -> Server {
        self.try_serve(exports, options).unwrap_or_else(|said| panic!("it did not start: {said}"))
    }

    fn try_serve(&self, exports: &[String], options: &[&str]) -> Result<Server, String> {
        let state = self.folder.path().join("state");
        let mut arguments = vec!["nfs", "--on", "vs", "--state-directory", state.to_str().unwrap()];
        exports.iter().for_each(|export| arguments.extend(["--export", export]));
        self.rig.try_start(&[&arguments, options].concat())
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// An export with these options.
fn export(path: &Path, options: &str) -> String {
    format!("{}:{options}", path.display())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a client does with files of its own: whatever changes there is seen by the host.
fn walk(client: &mut Client, root: &nfs_fh3, export: &Path, data_max: usize) {
    let file = client.create(root, "file").expect("made");
    assert_eq!(fs::metadata(export.join("file")).unwrap().uid(), 1000);
    let data: Vec<u8> = (0..3 * data_max + 5).map(|at| (at / 7) as u8).collect();
    let mut verifier = None;
    for (number, part) in data.chunks(data_max).enumerate() {
        let offset = (number * data_max) as u64;
        let written = client.write(&file, offset, part, stable_how::UNSTABLE).expect("written");
        assert_eq!((written.count as usize, written.committed), (part.len(), stable_how::UNSTABLE));
        assert_eq!(*verifier.get_or_insert(written.verf), written.verf);
    }
    assert_eq!(Some(client.commit(&file).expect("durable")), verifier);
    assert_eq!(fs::read(export.join("file")).unwrap(), data);
    let mut read = Vec::new();
    while read.len() < data.len() {
        let part = client.read(&file, read.len() as u64, MIB as u32).expect("read");
        assert!(!part.is_empty() && part.len() <= data_max, "{}", part.len());
        read.extend(part);
    }
    assert!(read == data, "the data is what was written");

    let args = RENAME3args { from: at(root, "file"), to: at(root, "moved") };
    client.ask::<RENAME3resok, RENAME3resfail>(NFS_PROGRAM::NFSPROC3_RENAME, &args).expect("renamed");
    assert_eq!(client.look_up(root, "file"), Err(nfsstat3::NFS3ERR_NOENT));
    assert_eq!(client.look_up(root, "moved"), Ok(file.clone()), "its handle is the same");
    assert_eq!(client.attributes(&file).unwrap().size, data.len() as u64);
    let args = REMOVE3args { object: at(root, "moved") };
    client.ask::<REMOVE3resok, REMOVE3resfail>(NFS_PROGRAM::NFSPROC3_REMOVE, &args).expect("removed");
    assert_eq!(client.attributes(&file).err(), Some(nfsstat3::NFS3ERR_STALE));
    assert!(!export.join("moved").exists());
}

#[test]
fn files_are_made_written_read_and_renamed_over_both_transports_and_paths() {
    if !root_or_skip() {
        return;
    }
    for options in
        [&["--path", "packet", "--tcp-path", "fast"], &["--path", "kernel", "--tcp-path", "kernel"]]
    {
        let place = Place::new();
        let path = place.directory("data");
        let server = place.serve(&[export(&path, "rw")], options);
        for (mut client, data_max) in
            [(Client::udp(&place.rig, 1000), 32 << 10), (Client::tcp(&place.rig, 1000), MIB)]
        {
            assert_eq!(client.call(nfs3::PROGRAM, 0, &[]), Ok(vec![]));
            let root = client.mount(text(&path)).expect("mounted");
            walk(&mut client, &root, &path, data_max);
        }
        assert_rows_of_two_walks(&server);
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// `show rpc` after a [`walk`] over UDP and another one over TCP.
fn assert_rows_of_two_walks(server: &Server) {
    let rpc = server.show("rpc");
    let row = |program: &str, procedure: &str| {
        let mut rows = rpc.as_array().expect("a list").iter();
        let row = rows.find(|row| row["program"] == program && row["procedure"] == procedure);
        row.unwrap_or_else(|| panic!("no row of {procedure}: {rpc}"))
    };
    for (program, procedure, calls, failed) in [
        ("mount", "MNT", 2, 0),
        ("mount", "EXPORT", 0, 0),
        ("nfs", "WRITE", 8, 0),
        ("nfs", "COMMIT", 2, 0),
        ("nfs", "READ", 8, 0),
        ("nfs", "RENAME", 2, 0),
        ("nfs", "LOOKUP", 4, 2),
        ("nfs", "GETATTR", 4, 2),
    ] {
        let row = row(program, procedure);
        assert_eq!((&row["took"]["count"], &row["failed"]), (&calls.into(), &failed.into()), "{row}");
        assert_eq!(
            (calls > 0, row["service"].as_str()),
            (row["took"]["p99_ns"].is_u64(), Some("nfs")),
            "{row}"
        );
    }
    let bytes = |procedure: &str, way: &str| row("nfs", procedure)[way].as_u64().expect("a number");
    let data = (3 * (32 << 10) + 5 + 3 * MIB + 5) as u64;
    for (larger, smaller) in [
        (bytes("WRITE", "bytes_in"), bytes("WRITE", "bytes_out")),
        (bytes("READ", "bytes_out"), bytes("READ", "bytes_in")),
    ] {
        assert!((data..data + 8 * 256).contains(&larger) && smaller < 8 * 256, "{larger} {smaller}");
    }
}

#[test]
fn an_export_says_who_may_do_what() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let [plain, all, root, foreign] = ["plain", "all", "root", "foreign"].map(|name| place.directory(name));
    fs::write(plain.join("file"), "data").unwrap();
    let exports = [
        export(&plain, "ro,insecure"),
        export(&all, "rw,all_squash,anonuid=1234,anongid=1235"),
        export(&root, "rw,no_root_squash"),
        export(&foreign, "rw,client=192.0.2.0/24"),
    ];
    let server = place.serve(&exports, &["--path", "packet"]);
    let mut client = Client::udp(&place.rig, 0);
    let at_plain = client.mount(text(&plain)).expect("mounted");
    assert_eq!(client.create(&at_plain, "new"), Err(nfsstat3::NFS3ERR_ROFS));
    let owner = |path: PathBuf| fs::metadata(path).map(|found| (found.uid(), found.gid())).unwrap();
    for (path, expected) in [(&all, (1234, 1235)), (&root, (0, 0))] {
        let dir = client.mount(text(path)).expect("mounted");
        client.create(&dir, "new").expect("made");
        assert_eq!(owner(path.join("new")), expected);
    }
    const MNT3ERR_ACCES: u32 = 13;
    assert_eq!(client.mount(text(&foreign)), Err(MNT3ERR_ACCES));
    let listed = client.call(mount::PROGRAM, 5, &[]).expect("accepted");
    let has = |path: &Path| listed.windows(text(path).len()).any(|part| part == text(path).as_bytes());
    assert!(has(&plain) && has(&all) && !has(&foreign), "it lists what this client may mount");

    let mut insecure = Client::insecure(&place.rig, 1000);
    let file = insecure.look_up(&at_plain, "file").expect("this export is for all ports");
    assert_eq!(insecure.read(&file, 0, 100), Ok(b"data".to_vec()));
    assert_eq!(insecure.mount(text(&all)), Err(MNT3ERR_ACCES));
    let at_all = client.mount(text(&all)).expect("mounted");
    assert_eq!(insecure.attributes(&at_all).err(), Some(nfsstat3::NFS3ERR_PERM));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn after_a_kill_handles_hold_and_data_that_was_not_durable_is_known_to_be_lost() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let path = place.directory("data");
    let exports = [export(&path, "rw")];
    let options = ["--path", "packet", "--tcp-path", "fast"];
    let server = place.serve(&exports, &options);
    let mut client = Client::tcp(&place.rig, 1000);
    let root = client.mount(text(&path)).expect("mounted");
    let file = client.create(&root, "file").expect("made");
    let written = client.write(&file, 0, b"data", stable_how::UNSTABLE).expect("written");
    client.become_user(1001);
    assert_eq!(client.write(&file, 0, b"other", stable_how::UNSTABLE).err(), Some(nfsstat3::NFS3ERR_ACCES));
    server.kill();

    let server = place.serve(&exports, &options);
    let mut client = Client::tcp(&place.rig, 1000);
    assert_eq!(client.read(&file, 0, 100), Ok(b"data".to_vec()));
    assert_eq!(client.look_up(&root, "file"), Ok(file.clone()));
    let verifier = client.commit(&file).expect("durable");
    assert_ne!(verifier, written.verf, "the client learns that it has to write again");
    fs::remove_file(path.join("file")).unwrap();
    // Another file that gets its number is another one.
    client.create(&root, "next").expect("made");
    assert_eq!(client.read(&file, 0, 100), Err(nfsstat3::NFS3ERR_STALE));
    let secret = fs::metadata(place.folder.path().join("state/nfs-handles")).unwrap();
    assert_eq!(secret.mode() & 0o777, 0o600);
    let sandbox = &server.show("instance")["sandbox"];
    drop(client);
    let held = sandbox["capabilities"].to_string();
    assert!(held.contains("CAP_DAC_READ_SEARCH") && !held.contains("CAP_SYS_PTRACE"), "{sandbox}");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_directory_of_many_files_is_listed_whole() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let path = place.directory("data");
    let mut expected: Vec<String> = (0..1000).map(|number| format!("file-{number:06}")).collect();
    expected.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
    expected.extend([".", ".."].map(str::to_owned));
    let server = place.serve(&[export(&path, "ro")], &["--path", "packet", "--tcp-path", "fast"]);
    for mut client in [Client::udp(&place.rig, 1000), Client::tcp(&place.rig, 1000)] {
        let root = client.mount(text(&path)).expect("mounted");
        let (mut names, handles) = client.list(&root).expect("listed");
        names.sort();
        expected.sort();
        assert!(names == expected, "{} of {} names", names.len(), expected.len());
        assert!(handles >= 1000, "{handles}");
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn garbage_gets_an_error_of_the_protocol_and_is_counted() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let path = place.directory("data");
    let server = place.serve(&[export(&path, "rw")], &["--path", "packet"]);
    let mut client = Client::udp(&place.rig, 1000);
    let root = client.mount(text(&path)).expect("mounted");
    let (getattr, unknown) = (NFS_PROGRAM::NFSPROC3_GETATTR as u32, 22);
    assert_eq!(client.call(nfs3::PROGRAM, getattr, &[0, 0, 0, 8, 1]), Err(Refusal::GarbageArguments));
    assert_eq!(client.call(nfs3::PROGRAM, getattr, &[0xff; 100]), Err(Refusal::GarbageArguments));
    assert_eq!(client.call(nfs3::PROGRAM, unknown, &[]), Err(Refusal::ProcedureUnavailable));
    let mut forged = root.data.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    for (handle, status) in [
        (forged, nfsstat3::NFS3ERR_STALE),
        (vec![7; 64], nfsstat3::NFS3ERR_BADHANDLE),
        (vec![], nfsstat3::NFS3ERR_BADHANDLE),
    ] {
        let handle = nfs_fh3 { data: Opaque::owned(handle) };
        assert_eq!(client.attributes(&handle).err(), Some(status));
        assert_eq!(client.read(&handle, 0, 1), Err(status));
    }
    for (name, status) in [
        ("a/b", nfsstat3::NFS3ERR_ACCES),
        ("", nfsstat3::NFS3ERR_ACCES),
        ("a\0b", nfsstat3::NFS3ERR_ACCES),
        (&"x".repeat(256), nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(client.create(&root, name), Err(status), "{name:?}");
        assert_eq!(client.look_up(&root, name), Err(status), "{name:?}");
    }
    assert_eq!(client.look_up(&root, ".."), Ok(root.clone()), "the root has no parent");
    let refused = server.drops("rpc_arguments") + server.drops("rpc_procedure");
    assert_eq!(refused, 3);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn what_cannot_be_exported_ends_the_start_with_a_sentence() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let path = place.directory("data");
    fs::write(path.join("file"), "").unwrap();
    for (exports, part) in [
        (vec![], "what is exported? Give --export"),
        (vec!["data".to_owned()], "`data` is no export: write an absolute path"),
        (vec![export(&path, "rw,fast")], "`fast` of"),
        (vec![export(&path.join("none"), "ro")], "there is no such directory"),
        (vec![export(&path.join("file"), "ro")], "it is not a directory"),
        (vec!["/proc".to_owned()], "its file system has no handles"),
        (vec![export(&path, "ro"), export(&path, "rw,fsid=2")], "is exported twice"),
        (vec![export(&path, "ro,fsid=7"), export(Path::new("/tmp"), "fsid=7")], "have the number 7 (fsid)"),
    ] {
        let said = place.try_serve(&exports, &[]).err().expect("it cannot be");
        assert!(said.contains(part), "{exports:?}: {said}");
    }
}

#[test]
fn a_reload_changes_exports_and_keeps_handles() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let (path, other) = (place.directory("data"), place.directory("other"));
    let file = place.folder.path().join("nfs.toml");
    let state = place.folder.path().join("state");
    let configure = |exports: &[String]| {
        let state = text(&state);
        let text = format!(
            "[service]\nkind = \"nfs\"\nexports = {exports:?}\n[interface]\nname = \"vs\"\n[nfs]\nstate_directory = {state:?}\n"
        );
        fs::write(&file, text).unwrap();
    };
    configure(&[export(&path, "ro")]);
    let server = place.rig.start(&["--config", text(&file)]);
    let mut client = Client::udp(&place.rig, 1000);
    let root = client.mount(text(&path)).expect("mounted");
    assert_eq!(client.create(&root, "file"), Err(nfsstat3::NFS3ERR_ROFS));
    configure(&[export(&path, "rw")]);
    let reloaded = reload(&place.rig, &server);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    let made = client.create(&root, "file").expect("made");
    // A call that comes again behind the next reload, as its reply was lost, is answered as before.
    configure(&[export(&path, "rw,async")]);
    let reloaded = reload(&place.rig, &server);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    let repeated = client::result::<CREATE3resok, CREATE3resfail>(&client.repeat().expect("accepted"));
    assert_eq!(repeated.map(|made| made.obj.unwrap()), Ok(made.clone()), "and is not carried out again");
    let written = client.write(&made, 0, b"data", stable_how::UNSTABLE).expect("written");
    configure(&[export(&path, "rw"), export(&other, "rw")]);
    let refused = reload(&place.rig, &server);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("the sandbox leaves it the directories"), "{}", refused.stderr);
    assert_eq!(client.commit(&made), Ok(written.verf), "it serves as before");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn nothing_is_called_durable_before_its_sync_and_a_sync_that_failed_changes_the_verifier() {
    if !root_or_skip() {
        return;
    }
    let place = Place::new();
    let path = place.directory("fuse");
    let fuse = Fuse::mount(&path);
    let server = place.serve(&[export(&path, "rw")], &["--path", "packet", "--tcp-path", "fast"]);
    let mut client = Client::tcp(&place.rig, 1000);
    let root = client.mount(text(&path)).expect("mounted");
    let file = client.look_up(&root, "file").expect("there");
    // Once an answer has come, what it says must have been done: the file system lists it before it answers.
    for stable in [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        let written = client.write(&file, 0, &[7; 1000], stable).expect("written");
        let mut expected = vec![Asked::Write { len: 1000 }];
        if stable != stable_how::UNSTABLE {
            expected.extend([Asked::Sync, Asked::Synced { failed: false }]);
        }
        assert_eq!((written.committed, fuse.asked()), (stable, expected));
    }
    let before = client.write(&file, 0, &[8; 100_000], stable_how::UNSTABLE).expect("written").verf;
    fuse.asked();
    assert_eq!(client.commit(&file), Ok(before));
    assert_eq!(fuse.asked(), [Asked::Sync, Asked::Synced { failed: false }]);
    fuse.fail(true);
    assert_eq!(client.commit(&file), Err(nfsstat3::NFS3ERR_IO));
    let failed = client.write(&file, 0, b"data", stable_how::FILE_SYNC);
    assert_eq!(failed.err(), Some(nfsstat3::NFS3ERR_IO));
    fuse.fail(false);
    let after = client.commit(&file).expect("durable");
    assert_ne!(after, before, "what was written before is written again");
    drop(client);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_file_system_that_does_not_answer_stalls_its_own_calls_alone() {
    if !root_or_skip() {
        return;
    }
    /// More than a connection may have waiting for one export.
    const CALLS: usize = 100;
    let place = Place::new();
    let (quick, hung) = (place.directory("quick"), place.directory("hung"));
    let mut fuse = Fuse::mount(&hung);
    let exports = [export(&quick, "rw"), export(&hung, "rw")];
    let options = ["--path", "packet", "--tcp-path", "fast", "--drain-ms", "500"];
    let server = place.serve(&exports, &options);
    let mut client = Client::tcp(&place.rig, 1000);
    let [root, stuck] = [&quick, &hung].map(|path| client.mount(text(path)).expect("mounted"));
    fuse.stop_answering();
    let getattr = client::packed(&GETATTR3args { object: stuck.clone() });
    let calls =
        [(); CALLS].map(|()| client.send(nfs3::PROGRAM, NFS_PROGRAM::NFSPROC3_GETATTR as u32, &getattr));
    // On the same connection, past those that have no room, and for others.
    let attributes = client::packed(&GETATTR3args { object: root.clone() });
    let quick = client.send(nfs3::PROGRAM, NFS_PROGRAM::NFSPROC3_GETATTR as u32, &attributes);
    assert_eq!(client.next_reply().0, quick, "before those are told to be tried again");
    let file = client.create(&root, "file").expect("made");
    client.write(&file, 0, b"data", stable_how::FILE_SYNC).expect("written");
    let mut other = Client::udp(&place.rig, 1000);
    assert_eq!(other.read(&file, 0, 100), Ok(b"data".to_vec()));
    // What has no room at the export that does not answer is to be tried again later.
    let xid = client.send(nfs3::PROGRAM, NFS_PROGRAM::NFSPROC3_GETATTR as u32, &getattr);
    let (of, outcome) = client.next_reply();
    assert!(of == xid || calls.contains(&of), "of a call that has no room");
    let status = client::result::<GETATTR3resok, Void>(&outcome.expect("accepted")).err();
    assert_eq!(status, Some(nfsstat3::NFS3ERR_JUKEBOX));
    drop((client, other));
    let left = server.interrupt();
    assert!(left.is_some(), "it ends, whatever its threads wait for: {left:?}");
}
