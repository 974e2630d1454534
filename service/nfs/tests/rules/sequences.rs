//! Seeded sequences of calls, compared with a naive list of paths; and damaged calls.

use std::collections::BTreeMap;

use twinpath_nfs::Call;
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

use crate::rig::{P, Rig, at};

/// What there should be: a directory, or a file with its bytes, by path.
type Expected = BTreeMap<String, Option<Vec<u8>>>;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Run {
    rig: Rig,
    expected: Expected,
    random: fastrand::Rng,
}

impl Run {
    fn path(&mut self) -> String {
        let depth = self.random.usize(1..4);
        (0..depth).map(|_| format!("/{}", NAMES[self.random.usize(..NAMES.len())])).collect()
    }

    fn handle(&mut self, path: &str) -> Option<nfs_fh3> {
        let mut handle = self.rig.root();
        for name in path.split('/').skip(1).filter(|name| !name.is_empty()) {
            handle = self.rig.look_up(&handle, name).ok()?;
        }
        Some(handle)
    }

    fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.expected.get(path), Some(None))
    }

    fn is_empty(&self, path: &str) -> bool {
        !self.expected.keys().any(|other| other.starts_with(&format!("{path}/")))
    }

    fn step(&mut self) {
        let path = self.path();
        let (parent, name) = path
            .rsplit_once('/')
            .map(|(parent, name)| (parent.to_owned(), name.to_owned()))
            .expect("a slash");
        let parent_handle = self.handle(&parent);
        assert_eq!(
            parent_handle.is_some(),
            self.is_directory(&parent) || self.expected.contains_key(&parent)
        );
        let Some(dir) = parent_handle.filter(|_| self.is_directory(&parent)) else { return };
        let there = self.expected.get(&path).cloned();
        match self.random.u32(..7) {
            0 => {
                let made = self.rig.make_directory(&dir, &name).is_ok();
                assert_eq!(made, there.is_none(), "MKDIR {path}");
                self.expected.entry(path).or_insert(None);
            }
            1 => {
                let made = self.rig.create_as(&dir, &name, createhow3::GUARDED(sattr3::default())).is_ok();
                assert_eq!(made, there.is_none(), "CREATE {path}");
                self.expected.entry(path).or_insert_with(|| Some(Vec::new()));
            }
            2 => self.write(&path, there),
            3 => {
                let removed = self.rig.remove(&dir, &name).is_ok();
                assert_eq!(removed, matches!(there, Some(Some(_))), "REMOVE {path}");
                if removed {
                    self.expected.remove(&path);
                }
            }
            4 => {
                let removed = self.rig.remove_directory(&dir, &name).is_ok();
                assert_eq!(removed, there == Some(None) && self.is_empty(&path), "RMDIR {path}");
                if removed {
                    self.expected.remove(&path);
                }
            }
            5 => self.rename(&path, &dir, &name),
            _ => self.rig.restart(),
        }
    }

    fn write(&mut self, path: &str, there: Option<Option<Vec<u8>>>) {
        let Some(file) = self.handle(path) else {
            assert_eq!(there, None, "{path}");
            return;
        };
        let data: Vec<u8> = (0..self.random.usize(1..200)).map(|_| self.random.u8(..)).collect();
        let offset = self.random.usize(..300);
        let written = self.rig.write(&file, offset as u64, stable_how::UNSTABLE, &data).is_ok();
        assert_eq!(written, matches!(there, Some(Some(_))), "WRITE {path}");
        if let Some(Some(bytes)) = self.expected.get_mut(path) {
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[offset..offset + data.len()].copy_from_slice(&data);
        }
    }

    fn rename(&mut self, path: &str, dir: &nfs_fh3, name: &str) {
        let to = self.path();
        let (to_parent, to_name) = to.rsplit_once('/').expect("a slash");
        if !self.is_directory(to_parent) {
            return;
        }
        let Some(to_dir) = self.handle(to_parent) else { panic!("{to_parent} is missing") };
        let renamed = self.rig.rename(at(dir, name), at(&to_dir, to_name)).is_ok();
        let is_possible = match (self.expected.get(path), self.expected.get(&to)) {
            (None, _) => false,
            _ if path == to => true,
            (Some(_), _) if to.starts_with(&format!("{path}/")) => false,
            (Some(None), Some(None)) => self.is_empty(&to),
            (Some(Some(_)), Some(Some(_))) | (Some(_), None) => true,
            _ => false,
        };
        assert_eq!(renamed, is_possible, "RENAME {path} {to}");
        if renamed && path != to {
            self.expected.remove(&to);
            let inside = format!("{path}/");
            let is_moved = |other: &String| other == path || other.starts_with(&inside);
            let moved: Vec<String> = self.expected.keys().filter(|other| is_moved(other)).cloned().collect();
            for old in moved {
                let what = self.expected.remove(&old).expect("just seen");
                self.expected.insert(format!("{to}{}", &old[path.len()..]), what);
            }
        }
    }

    /// What is there, as READDIRPLUS and READ show it.
    fn walk(&mut self, path: &str, dir: &nfs_fh3, found: &mut Expected) {
        let listed = self.rig.list(dir, 0, [0; 8], 4096).unwrap();
        assert!(listed.reply.eof);
        for entry in listed.reply.entries.0.iter() {
            let name = String::from_utf8(entry.name.as_ref().to_vec()).expect("ours");
            if name == "." || name == ".." {
                continue;
            }
            let (path, handle) = (format!("{path}/{name}"), entry.name_handle.clone().unwrap());
            match entry.name_attributes.clone().unwrap().type_ {
                ftype3::NF3DIR => {
                    found.insert(path.clone(), None);
                    self.walk(&path, &handle, found);
                }
                _ => drop(found.insert(path, Some(self.rig.read(&handle, 0, 4096).expect("ours").0))),
            }
        }
    }
}

#[test]
fn sequences_leave_what_a_list_of_paths_has() {
    for seed in 0..40 {
        let mut run =
            Run { rig: Rig::new(), expected: Expected::new(), random: fastrand::Rng::with_seed(seed) };
        for _ in 0..150 {
            run.step();
        }
        let (root, mut found) = (run.rig.root(), Expected::new());
        run.walk("", &root, &mut found);
        assert_eq!(found, run.expected, "seed {seed}");
    }
}

/// Results are decoded by the library as those of their procedure.
fn decode(procedure: P, results: &[u8]) {
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

/// What the arguments of each procedure are made of: a handle, a name, attributes, a guard, a long number, a verifier, a
/// word; and what only WRITE, CREATE and MKNOD have.
const FORMS: [&str; 22] = [
    "", "h", "hag", "hn", "hw", "h", "hlw", "hld", "hnc", "hna", "hnan", "hnk", "hn", "hn", "hnhn", "hhn",
    "hlvw", "hlvww", "h", "h", "h", "hlw",
];

fn word(random: &mut fastrand::Rng) -> u32 {
    match random.u32(..8) {
        0..4 => random.u32(..5),
        4..6 => random.u32(..5000),
        6 => u32::MAX,
        _ => random.u32(..),
    }
}

fn attributes(random: &mut fastrand::Rng, args: &mut Vec<u8>) {
    // Mode, user, group; then the length, of two words.
    for words in [1, 1, 1, 2] {
        let is_set = random.bool();
        args.extend(u32::from(is_set).to_be_bytes());
        let values = if is_set { words } else { 0 };
        (0..values)
            .for_each(|at| args.extend(if words == 2 && at == 0 { 0 } else { word(random) }.to_be_bytes()));
    }
    for _ in 0..2 {
        let how = random.u32(..3);
        args.extend(how.to_be_bytes());
        (0..if how == 2 { 2 } else { 0 }).for_each(|_| args.extend(word(random).to_be_bytes()));
    }
}

/// Arguments of a form. Their values have no meaning together.
fn arguments(random: &mut fastrand::Rng, form: &str, handles: &[nfs_fh3]) -> Vec<u8> {
    let mut args = Vec::new();
    for part in form.chars() {
        match part {
            'h' => drop(handles[random.usize(..handles.len())].pack(&mut args)),
            'n' => drop(Opaque::borrowed(NAMES[random.usize(..NAMES.len())].as_bytes()).pack(&mut args)),
            'a' => attributes(random, &mut args),
            'g' => args.extend(0_u32.to_be_bytes()),
            'l' => {
                [random.u32(..50) / 49, word(random)].iter().for_each(|word| args.extend(word.to_be_bytes()))
            }
            'v' => args.extend([0; 8]),
            'd' => {
                let data = vec![7; random.usize(..300)];
                [data.len() as u32, random.u32(..3)].iter().for_each(|word| args.extend(word.to_be_bytes()));
                drop(Opaque::borrowed(&data).pack(&mut args));
            }
            'c' => {
                let how = random.u32(..3);
                args.extend(how.to_be_bytes());
                if how == 2 { args.extend([random.u8(..3); 8]) } else { attributes(random, &mut args) }
            }
            'k' => {
                let kind = random.u32(..9);
                args.extend(kind.to_be_bytes());
                attributes(random, &mut args);
                args.extend([0; 8]);
            }
            _ => args.extend(word(random).to_be_bytes()),
        }
    }
    // A few are damaged.
    if random.u32(..4) == 0 && !args.is_empty() {
        let at = random.usize(..args.len());
        args[at] = random.u8(..);
    }
    args
}

#[test]
fn calls_without_a_meaning_get_results_of_their_procedure() {
    let mut rig = Rig::with_root();
    let root = rig.root();
    let mut random = fastrand::Rng::with_seed(7);
    let mut answered = [0; 22];
    for _ in 0..20_000 {
        let mut handles = vec![root.clone()];
        let files: Vec<u64> = rig.files.nodes.keys().copied().take(30).collect();
        handles.extend(files.into_iter().map(|file| rig.handle(1, file)));
        let procedure = random.u32(..22);
        let args = arguments(&mut random, FORMS[procedure as usize], &handles);
        let Ok(call) = Call::read(procedure, &args) else { continue };
        let results = rig.raw(&call).expect("nothing waits");
        assert!(results.len() <= 4 + 4096 + 88 + 16, "{} bytes", results.len());
        decode(P::try_from(procedure).expect("one of 22"), &results);
        answered[procedure as usize] += 1;
        rig.files.log.clear();
    }
    assert!(answered.iter().all(|count| *count > 200), "each procedure was reached: {answered:?}");
}
