//! The same seeded calls to the server over the naive file system of `service/nfs/tests/rules/model.rs`, and over files
//! of this host: the kernel has to answer as the model does.

#[path = "../../nfs/tests/rules/model.rs"]
mod model;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use twinpath_nfs::{
    Call, Caller, Context, CreateAt, Export, Exports, FileId, Files, HandleSecret, Name, Server, Sizes,
    Squash, WriteVerifier,
};
use twinpath_nfs_files::{Directory, HostExports, HostFiles, QuickFiles};
use twinpath_rpc::nfs3_types::nfs3::{
    GETATTR3res, Nfs3Option, Nfs3Result, READDIR3res, createhow3, createverf3, ftype3, mknoddata3, sattr3,
    stable_how,
};
use twinpath_rpc::nfs3_types::xdr_codec::Unpack;
use twinpath_rpc::xdr::Reader;
use twinpath_sys::file_rights::own_mask;
use twinpath_test_rig::root_or_skip;

use model::Memory;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Users: root, which is not squashed, and two others of one group.
const USERS: [u32; 3] = [0, 1000, 1001];

/// A call; files are numbers in a list of handles, of which each side has its own.
#[derive(Clone, Copy, Debug)]
enum Step {
    Getattr(usize),
    SetMode(usize, u32),
    SetSize(usize, u64),
    SetOwner(usize, u32),
    LookUp(usize, &'static str),
    Access(usize),
    Readlink(usize),
    Read(usize, u64),
    Write(usize, u64, u8),
    Create(usize, &'static str, u8, u32),
    MakeDirectory(usize, &'static str, u32),
    MakeLink(usize, &'static str),
    MakePipe(usize, &'static str),
    Remove(usize, &'static str),
    RemoveDirectory(usize, &'static str),
    Rename(usize, &'static str, usize, &'static str),
    Link(usize, usize, &'static str),
    List(usize),
}

impl Step {
    /// A call; `dirs` are the files that were made as directories.
    fn random(random: &mut fastrand::Rng, files: usize, dirs: &[usize]) -> Self {
        let any = random.usize(..files);
        // Now and then what should be a directory is none.
        let mut dir = || if random.u32(..10) == 0 { any } else { dirs[random.usize(..dirs.len())] };
        let (dir, to) = (dir(), dir());
        let (name, other) = (NAMES[random.usize(..4)], NAMES[random.usize(..4)]);
        let mode = [0o777, 0o777, 0o755, 0o700, 0o644, 0o070, 0o001][random.usize(..7)];
        match random.u32(..24) {
            0 => Self::Getattr(any),
            1 => Self::SetMode(any, mode),
            2 => Self::SetSize(any, random.u64(..3000)),
            3 => Self::SetOwner(any, USERS[random.usize(..3)]),
            4 => Self::LookUp(dir, [name, ".", ".."][random.usize(..3)]),
            5 => Self::Access(any),
            6 => Self::Readlink(any),
            7 | 8 => Self::Read(any, random.u64(..3000)),
            9 | 10 => Self::Write(any, random.u64(..2000), random.u8(..)),
            11 | 12 => Self::Create(dir, name, random.u8(..3), mode),
            13 | 14 => Self::MakeDirectory(dir, name, mode),
            15 => Self::MakeLink(dir, name),
            16 => Self::MakePipe(dir, name),
            17 => Self::Remove(dir, name),
            18 | 19 => Self::RemoveDirectory(dir, name),
            20 | 21 => Self::Rename(dir, name, to, other),
            22 => Self::Link(any, dir, name),
            _ => Self::List(dir),
        }
    }

    fn call<'a>(&self, handles: &'a [Vec<u8>], data: &'a [u8]) -> Call<'a> {
        let file = |at: usize| handles[at].as_slice();
        let at = |dir: usize, name: &'static str| Name { dir: file(dir), name: name.as_bytes() };
        let with_mode = |mode| sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
        let set = |object, new| Call::Setattr { object: file(object), new, guard: None };
        match *self {
            Self::Getattr(object) => Call::Getattr { object: file(object) },
            Self::SetMode(object, mode) => set(object, with_mode(mode)),
            Self::SetSize(object, size) => {
                set(object, sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() })
            }
            Self::SetOwner(object, uid) => {
                set(object, sattr3 { uid: Nfs3Option::Some(uid), ..sattr3::default() })
            }
            Self::LookUp(dir, name) => Call::Lookup(at(dir, name)),
            Self::Access(object) => Call::Access { object: file(object), access: 0x3f },
            Self::Readlink(symlink) => Call::Readlink { symlink: file(symlink) },
            Self::Read(from, offset) => Call::Read { file: file(from), offset, count: 1000 },
            Self::Write(to, offset, len) => {
                let data = &data[..usize::from(len)];
                Call::Write { file: file(to), offset, stable: stable_how::UNSTABLE, data }
            }
            Self::Create(dir, name, how, mode) => {
                let how = match how {
                    0 => createhow3::UNCHECKED(with_mode(mode)),
                    1 => createhow3::GUARDED(with_mode(mode)),
                    _ => createhow3::EXCLUSIVE(createverf3([mode as u8; 8])),
                };
                Call::Create(CreateAt { at: at(dir, name), how })
            }
            Self::MakeDirectory(dir, name, mode) => {
                Call::Mkdir { at: at(dir, name), attributes: with_mode(mode) }
            }
            Self::MakeLink(dir, name) => {
                Call::Symlink { at: at(dir, name), attributes: sattr3::default(), target: b"../a" }
            }
            Self::MakePipe(dir, name) => {
                Call::Mknod { at: at(dir, name), what: mknoddata3::NF3FIFO(with_mode(0o666)) }
            }
            Self::Remove(dir, name) => Call::Remove(at(dir, name)),
            Self::RemoveDirectory(dir, name) => Call::Rmdir(at(dir, name)),
            Self::Rename(from, name, to, other) => Call::Rename { from: at(from, name), to: at(to, other) },
            Self::Link(file_at, dir, name) => Call::Link { file: file(file_at), link: at(dir, name) },
            Self::List(dir) => Call::Readdir { dir: file(dir), cookie: 0, verifier: [0; 8], count: 8000 },
        }
    }

    /// What both sides have to say: the status, and what the step is about.
    fn meaning(&self, results: &[u8]) -> String {
        let status = u32::from_be_bytes(*results.first_chunk().expect("a status"));
        if status != 0 {
            // Which of two reasons against a RENAME or LINK is told is the kernel's order of checks.
            let is_either = matches!(self, Self::Rename(..) | Self::Link(..));
            return if is_either { "refused".to_owned() } else { format!("status {status}") };
        }
        let mut rest = results;
        match self {
            Self::Getattr(_) => {
                let (got, _) = GETATTR3res::unpack(&mut rest).expect("attributes");
                let a = got.unwrap().obj_attributes;
                let is_directory = matches!(a.type_, ftype3::NF3DIR);
                let sized = if is_directory { (0, 0) } else { (a.size, a.nlink) };
                format!("{} {:o} {} {} {sized:?}", a.type_, a.mode, a.uid, a.gid)
            }
            Self::List(_) => {
                let (got, _) = READDIR3res::unpack(&mut rest).expect("a list");
                let Nfs3Result::Ok(listed) = got else { panic!("its status says so") };
                let mut names: Vec<_> =
                    listed.reply.entries.0.iter().map(|entry| entry.name.0.to_vec()).collect();
                names.sort();
                format!("{names:?} {}", listed.reply.eof)
            }
            Self::Access(_) => format!("{:?}", &results[results.len() - 4..]),
            // Behind the status and attributes.
            Self::Read(..) | Self::Readlink(_) => format!("{:?}", &results[4 + 88..]),
            // The count.
            Self::Write(..) => format!("{:?}", &results[results.len() - 16..results.len() - 8]),
            _ => "done".to_owned(),
        }
    }

    /// The handle in the results of a success.
    fn handle(&self, results: &[u8]) -> Option<Vec<u8>> {
        let mut reader = Reader::new(results);
        let is_done = reader.u32() == Ok(0);
        match self {
            Self::LookUp(..) if is_done => {}
            Self::Create(..) | Self::MakeDirectory(..) | Self::MakeLink(..) | Self::MakePipe(..)
                if is_done =>
            {
                assert_eq!(reader.u32(), Ok(1), "what was made has a handle");
            }
            _ => return None,
        }
        Some(reader.opaque(64).expect("a handle").to_vec())
    }
}

fn context(uid: u32) -> Context {
    let sizes = Sizes { read_max: 4096, write_max: 4096, directory_max: 8000 };
    let peer = SocketAddr::from(([192, 0, 2, 1], 700));
    Context { peer, claimed: Some(Caller::new(uid, 100)), sizes }
}

struct Side<F> {
    server: Server,
    files: F,
    handles: Vec<Vec<u8>>,
}

impl<F: Files> Side<F> {
    fn new(mut files: F) -> Self {
        let export =
            Export { is_read_only: false, squash: Squash::None, ..Export::new(1, b"/export".to_vec()) };
        let secret = HandleSecret::new([5; 16]);
        let root = files.root(1).expect("there");
        let key = files.key(&root).expect("there");
        let handle = secret.handle(&FileId { export: 1, key });
        let exports = Exports::new(vec![export]).expect("one");
        let server = Server { exports, secret, verifier: Arc::new(WriteVerifier::new(1)) };
        Self { server, files, handles: vec![handle.bytes().to_vec()] }
    }

    /// The answer of a worker, if it need not wait.
    fn at_once(&self, files: &mut QuickFiles, uid: u32, step: Step, data: &[u8]) -> Option<Vec<u8>> {
        let (context, mut results) = (context(uid), Vec::new());
        let done = self.server.call(files, &context, &step.call(&self.handles, data), &mut results);
        done.ok().map(|()| results)
    }

    fn step(&mut self, uid: u32, step: Step, data: &[u8]) -> Vec<u8> {
        let (context, mut results) = (context(uid), Vec::new());
        let done = self.server.call(&mut self.files, &context, &step.call(&self.handles, data), &mut results);
        done.expect("it may wait");
        results
    }
}

/// Runs the calls of a seed, and counts those that succeed by their kind.
fn run(seed: u64, done: &mut BTreeMap<String, u32>) {
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("export");
    fs::create_dir(&export).expect("made");
    for path in [folder.path(), &export] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("set");
    }
    let directory = Arc::new(Directory::open(&export).expect("a directory"));
    let verifier = Arc::new(WriteVerifier::new(1));
    let exported = Arc::new(HostExports::new(vec![(1, directory)], None, &verifier).expect("exported"));
    let mut quick = QuickFiles::new(&exported);
    let mut host = Side::new(HostFiles::new(exported));
    let mut memory = Side::new(Memory::new());
    let mut random = fastrand::Rng::with_seed(seed);
    let data: Vec<u8> = (0..=255).collect();
    let mut dirs = vec![0];
    for count in 0..400 {
        let step = Step::random(&mut random, host.handles.len(), &dirs);
        let uid = USERS[random.usize(..3)];
        // `fs.protected_hardlinks` decides who else may.
        if uid != 0 && matches!(step, Step::Link(..)) {
            continue;
        }
        let at_once = quick.as_mut().and_then(|quick| host.at_once(quick, uid, step, &data));
        let (kernel, naive) = (host.step(uid, step, &data), memory.step(uid, step, &data));
        let place = format!("seed {seed}, step {count}: {step:?} by {uid}");
        assert_eq!(step.meaning(&kernel), step.meaning(&naive), "{place}: the kernel's, the model's");
        if let Some(at_once) = at_once {
            assert_eq!(step.meaning(&at_once), step.meaning(&kernel), "{place}: a worker's, a thread's");
            *done.entry("AtOnce".to_owned()).or_default() += 1;
        }
        if kernel[..4] == [0; 4] {
            let kind = format!("{step:?}").split('(').next().unwrap_or_default().to_owned();
            *done.entry(kind).or_default() += 1;
        }
        if let (Some(kernel), Some(naive)) = (step.handle(&kernel), step.handle(&naive)) {
            let place_of =
                |handles: &[Vec<u8>], handle: &Vec<u8>| handles.iter().position(|other| other == handle);
            let known = place_of(&host.handles, &kernel);
            assert_eq!(known, place_of(&memory.handles, &naive), "{place}: the same file");
            if known.is_none() {
                if matches!(step, Step::MakeDirectory(..)) {
                    dirs.push(host.handles.len());
                }
                host.handles.push(kernel);
                memory.handles.push(naive);
            }
        }
    }
}

#[test]
fn the_kernel_answers_as_the_model_does() {
    if root_or_skip() {
        let runs = || {
            own_mask().expect("root may");
            let mut done = BTreeMap::new();
            (0..10).for_each(|seed| run(seed, &mut done));
            // A worker answers on some file systems only.
            let at_once = done.remove("AtOnce");
            assert!(
                done.len() == 18 && done.values().all(|count| *count > 3),
                "each kind succeeds: {done:?}"
            );
            println!("{at_once:?} at once");
            println!("{done:?}");
        };
        std::thread::spawn(runs).join().expect("both answer alike");
    }
}
