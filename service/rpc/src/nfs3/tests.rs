use nfs3_types::mount::{self, mountstat3};
use nfs3_types::nfs3::{ftype3, nfsstat3};
use twinpath_time::{Duration, Instant};

use super::*;
use crate::client::{
    Auth, Call, MountError, MountStatus, Reply, ReplyError, handle_arguments, mount_arguments, root_handle,
};
use crate::mount3::Mount3;
use crate::{DuplicateLimits, Server};

struct Caller {
    server: Server,
    auth: Auth,
}

impl Caller {
    fn new(tree: Tree) -> Self {
        let tree = Arc::new(tree);
        let programs: Vec<Box<dyn Program>> =
            vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))];
        let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
        let server = Server::new(programs, limits, 0).expect("a table");
        Self { server, auth: Auth::sys("client", 1, 2, &[]).expect("within limits") }
    }

    fn call(&mut self, program: u32, procedure: u32, args: &[u8]) -> Reply<'_> {
        let mut message = Vec::new();
        Call { xid: 5, program, version: 3, procedure, auth: &self.auth, args }.write(&mut message);
        let peer = "192.0.2.1:900".parse().expect("an address");
        let reply = self.server.datagram(Instant::ZERO, peer, &message).expect("a call");
        let reply = Reply::parse(reply).expect("a reply");
        assert_eq!(reply.xid, 5);
        reply
    }

    fn getattr(&mut self, handle: &[u8]) -> Reply<'_> {
        self.call(PROGRAM, GETATTR, &handle_arguments(handle))
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, MountError> {
        let reply = self.call(mount::PROGRAM, 1, &mount_arguments(path));
        root_handle(reply.outcome.expect("it ran")).map(<[u8]>::to_vec)
    }
}

fn failed(reply: &Reply<'_>) -> nfsstat3 {
    match reply.verify_getattr() {
        Err(ReplyError::GetAttr(status)) => status,
        other => panic!("not a failure of GETATTR: {other:?}"),
    }
}

#[test]
fn a_mounted_handle_has_attributes() {
    let mut caller = Caller::new(Tree::small());
    let root = caller.mount("/").expect("the root");
    let attributes = caller.getattr(&root).verify_getattr().expect("attributes");
    assert_eq!((attributes.type_, attributes.mode, attributes.nlink), (ftype3::NF3DIR, 0o755, 3));
    assert_eq!((attributes.fsid, attributes.fileid), (1, 1));
    let directory = caller.mount("/directory/").expect("a directory");
    let attributes = caller.getattr(&directory).verify_getattr().expect("attributes");
    assert_eq!((attributes.nlink, attributes.fileid, attributes.size), (2, 2, 1));
}

#[test]
fn a_file_has_its_size() {
    let tree = Tree::small();
    let file = tree.path("/README").expect("it is there");
    let (handle, size) = (tree.handle(file), tree.contents(file).expect("a file").len());
    let attributes = Caller::new(tree).getattr(&handle).verify_getattr().expect("attributes");
    assert_eq!((attributes.type_, attributes.size), (ftype3::NF3REG, size as u64));
}

#[test]
fn mount_errors_are_reported() {
    let mut caller = Caller::new(Tree::small());
    let failed = |status| Err(MountError::Status(MountStatus(status)));
    assert_eq!(caller.mount("/README"), failed(mountstat3::MNT3ERR_NOTDIR));
    assert_eq!(caller.mount("/nowhere"), failed(mountstat3::MNT3ERR_NOENT));
    assert_eq!(caller.mount("directory"), failed(mountstat3::MNT3ERR_NOENT));
    assert_eq!(caller.mount("/directory/.."), failed(mountstat3::MNT3ERR_NOENT));
    let not_utf8 = [0, 0, 0, 2, 0xff, 0xff, 0, 0];
    let reply = caller.call(mount::PROGRAM, 1, &not_utf8);
    let status = MountError::Status(MountStatus(mountstat3::MNT3ERR_NOENT));
    assert_eq!(root_handle(reply.outcome.expect("it ran")), Err(status));
}

#[test]
fn the_other_procedures_of_mount_keep_no_state() {
    let mut caller = Caller::new(Tree::small());
    assert_eq!(caller.call(mount::PROGRAM, 2, &[]).outcome, Ok(&[0; 4][..]), "DUMP: nobody");
    assert_eq!(caller.call(mount::PROGRAM, 3, &mount_arguments("/")).verify_null(), Ok(()));
    assert_eq!(caller.call(mount::PROGRAM, 4, &[]).verify_null(), Ok(()));
    let exports = [0, 0, 0, 1, 0, 0, 0, 1, b'/', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(caller.call(mount::PROGRAM, 5, &[]).outcome, Ok(&exports[..]));
    assert_eq!(caller.call(mount::PROGRAM, 6, &[]).outcome, Err(Refusal::ProcedureUnavailable));
    let reply = caller.call(mount::PROGRAM, 3, &[]);
    assert_eq!(reply.outcome, Err(Refusal::GarbageArguments));
    for (procedure, args) in
        [(1, &[&mount_arguments("/")[..], &[0; 8]].concat()[..]), (2, &[0; 4]), (5, &[0; 400])]
    {
        let reply = caller.call(mount::PROGRAM, procedure, args);
        assert!(reply.outcome.is_ok(), "procedure {procedure}: what follows is ignored");
    }
    let long = "/".repeat(1025);
    let args = handle_arguments(long.as_bytes());
    assert_eq!(caller.call(mount::PROGRAM, 1, &args).outcome, Err(Refusal::GarbageArguments));
}

#[test]
fn a_foreign_handle_is_bad() {
    let tree = Tree::small();
    let good = tree.handle(ROOT);
    let mut caller = Caller::new(tree);
    for len in 0..good.len() {
        assert_eq!(failed(&caller.getattr(&good[..len])), nfsstat3::NFS3ERR_BADHANDLE, "{len} bytes");
    }
    let longer = [good.as_slice(), &[0; 48]].concat();
    assert_eq!(failed(&caller.getattr(&longer)), nfsstat3::NFS3ERR_BADHANDLE);
    for at in 0..4 {
        let mut marked = good;
        marked[at] ^= 1;
        assert_eq!(failed(&caller.getattr(&marked)), nfsstat3::NFS3ERR_BADHANDLE);
    }
}

#[test]
fn a_handle_of_a_removed_node_is_stale() {
    let good = Tree::small().handle(ROOT);
    let mut caller = Caller::new(Tree::small());
    // Offsets of file system, generation and node.
    for at in [7, 11, 15] {
        let mut other = good;
        other[at] ^= 0x40;
        assert_eq!(failed(&caller.getattr(&other)), nfsstat3::NFS3ERR_STALE, "byte {at}");
    }
    let mut rebuilt = Caller::new(TreeBuilder::new(1, 2).build());
    assert_eq!(failed(&rebuilt.getattr(&good)), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn arguments_of_getattr_are_one_handle() {
    let handle = Tree::small().handle(ROOT);
    let args = handle_arguments(&handle);
    let mut caller = Caller::new(Tree::small());
    let longer = caller.call(PROGRAM, GETATTR, &[&args[..], &[0; 4]].concat()).outcome.map(<[u8]>::to_vec);
    assert_eq!(longer, caller.call(PROGRAM, GETATTR, &args).outcome.map(<[u8]>::to_vec));
    let lies = [handle_arguments(&[0; 65]), u32::MAX.to_be_bytes().to_vec()];
    let cut = (0..args.len()).map(|len| args[..len].to_vec());
    for args in lies.into_iter().chain(cut) {
        let reply = caller.call(PROGRAM, GETATTR, &args);
        assert_eq!(reply.outcome, Err(Refusal::GarbageArguments), "{args:x?}");
    }
    for procedure in (2..22).chain([22, u32::MAX]) {
        assert_eq!(caller.call(PROGRAM, procedure, &args).outcome, Err(Refusal::ProcedureUnavailable));
    }
}

#[test]
fn names_are_unique_and_only_directories_have_children() {
    let mut builder = TreeBuilder::new(1, 1);
    let file = builder.file(ROOT, "file", b"").expect("a name");
    let name = |name: &str| Err(TreeError::Name(name.to_owned()));
    for bad in ["", ".", "..", "a/b", "a\0"] {
        assert_eq!(builder.file(ROOT, bad, b""), name(bad));
    }
    assert_eq!(builder.directory(ROOT, &"n".repeat(256)), name(&"n".repeat(256)));
    assert!(builder.directory(ROOT, &"n".repeat(255)).is_ok());
    assert_eq!(builder.directory(ROOT, "file"), Err(TreeError::Taken("file".to_owned())));
    assert_eq!(builder.file(file, "in", b""), Err(TreeError::NotADirectory("in".to_owned())));
}

#[test]
fn a_tree_is_found_by_path_and_by_name() {
    let mut builder = TreeBuilder::new(7, 1);
    let directory = builder.directory(ROOT, "a").expect("a name");
    let inner = builder.directory(directory, "b").expect("a name");
    let file = builder.file(inner, "c", b"text").expect("a name");
    let tree = builder.build();
    for (path, node) in
        [("/", Some(ROOT)), ("/a", Some(directory)), ("//a//b/", Some(inner)), ("/a/b/c", Some(file))]
    {
        assert_eq!(tree.path(path), node, "{path}");
    }
    assert_eq!([tree.path("/b"), tree.path("/a/b/c/d"), tree.path("a"), tree.path("")], [None; 4]);
    assert_eq!((tree.look_up(directory, "b"), tree.look_up(directory, "c")), (Some(inner), None));
    assert_eq!((tree.look_up(file, "c"), tree.contents(directory)), (None, None));
    assert_eq!(tree.contents(file), Some(&b"text"[..]));
    assert_eq!([ROOT, directory, inner, file].map(|node| tree.is_directory(node)), [true, true, true, false]);
    let handle = tree.handle(file);
    let mut caller = Caller::new(tree);
    let attributes = caller.getattr(&handle).verify_getattr().expect("attributes");
    assert_eq!((attributes.fsid, attributes.fileid, attributes.nlink), (7, 4, 1));
    assert_eq!((attributes.mode, attributes.size, attributes.used), (0o644, 4, 4));
    assert_eq!((attributes.uid, attributes.gid, attributes.mtime.seconds), (0, 0, 1_767_225_600));
}
