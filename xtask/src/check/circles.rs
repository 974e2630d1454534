//! The files of a crate do not import each other in a circle: to understand one of them a reader would need all of them.
//!
//! A path is resolved through re-exports (`pub use`) to the file that defines the item. Names in tests do not count, and
//! neither does what a file uses of its own parent modules.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, Place};
use super::{Finding, Source, Tree};

/// A module's place in its crate: the names on the way to it.
type ModulePath<'a> = Vec<&'a str>;

/// Limit on the re-exports that one path is resolved through, because those may form circles too.
const DEEPEST: usize = 16;

/// The files of one crate, as modules.
struct Crate<'a> {
    modules: BTreeMap<ModulePath<'a>, (&'a Source, &'a Facts)>,
}

/// For each file the files that it uses, with the line of the first use.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// The target of a path.
enum PathTarget<'a> {
    Module(ModulePath<'a>),
    /// An item of this module.
    Item(ModulePath<'a>),
}

pub(super) fn no_files_import_in_a_circle(tree: &Tree) -> Vec<Finding> {
    crates_of(tree).values().flat_map(|of| circles(&of.uses())).collect()
}

/// The crates, by the folder of their manifest.
fn crates_of(tree: &Tree) -> BTreeMap<&str, Crate<'_>> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for (source, facts) in tree.parsed().filter(|(source, _)| !source.test) {
        let Some((root, file)) = source.path.split_once("/src/") else { continue };
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        let path = if matches!(stem, "lib" | "main") { Vec::new() } else { stem.split('/').collect() };
        let of = crates.entry(root).or_insert_with(|| Crate { modules: BTreeMap::new() });
        of.modules.insert(path, (source, facts));
    }
    crates
}

impl<'a> Crate<'a> {
    fn uses(&self) -> Uses<'a> {
        let mut uses = Uses::new();
        for (module, (source, facts)) in &self.modules {
            for (name, at) in facts.names.iter().filter(|(_, at)| !at.test) {
                let Some(target) = self.file_of(module, name, *at) else { continue };
                // A module's use of itself or of its parents does not count.
                if !module.starts_with(&target) {
                    let target = self.modules[&target].0.path.as_str();
                    uses.entry(source.path.as_str()).or_default().entry(target).or_insert(at.line);
                }
            }
        }
        uses
    }

    /// The module that defines `name` as written in `module`; `None` if that is another crate, or a local name.
    fn file_of(&self, module: &ModulePath<'a>, name: &'a str, at: Place) -> Option<ModulePath<'a>> {
        let mut segments = name.trim_end_matches('!').split("::").peekable();
        // In an inline module, the first `super` lead to the module of the file.
        let mut inside = at.inline;
        while inside > 0 && segments.next_if_eq(&"super").is_some() {
            inside -= 1;
            if segments.peek().is_some_and(|next| *next != "super") && inside == 0 {
                return self.follow(module, segments.collect(), 0).map(PathTarget::into_module);
            }
        }
        self.follow(module, segments.collect(), 0).map(PathTarget::into_module)
    }

    fn follow(&self, module: &ModulePath<'a>, path: Vec<&'a str>, depth: usize) -> Option<PathTarget<'a>> {
        let mut at = module.clone();
        let mut segments = path.into_iter().peekable();
        match *segments.peek()? {
            "crate" => {
                at.clear();
                segments.next();
            }
            "self" => drop(segments.next()),
            "super" => {
                while segments.next_if_eq(&"super").is_some() {
                    at.pop()?;
                }
            }
            first => {
                let child = [module.as_slice(), &[first]].concat();
                if !self.modules.contains_key(&child) && self.import(module, first).is_none() {
                    return None;
                }
            }
        }
        for segment in segments {
            let child = [at.as_slice(), &[segment]].concat();
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            let passed_on = self.import(&at, segment).filter(|_| depth < DEEPEST);
            match passed_on.and_then(|path| self.follow(&at, path.split("::").collect(), depth + 1)) {
                Some(PathTarget::Module(module)) => at = module,
                Some(item) => return Some(item),
                None => return Some(PathTarget::Item(at)),
            }
        }
        Some(PathTarget::Module(at))
    }

    /// The path that `module` imports as `name`.
    fn import(&self, module: &ModulePath<'a>, name: &str) -> Option<&'a str> {
        let (_, facts) = self.modules.get(module)?;
        let import = facts.imports.iter().find(|import| import.name == name && !import.at.test)?;
        (import.path != name && import.at.inline == 0).then_some(import.path.as_str())
    }
}

impl<'a> PathTarget<'a> {
    fn into_module(self) -> ModulePath<'a> {
        match self {
            Self::Module(module) | Self::Item(module) => module,
        }
    }
}

/// One finding for each set of files in which each reaches every other.
fn circles(uses: &Uses<'_>) -> Vec<Finding> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (*file, reached(uses, file))).collect();
    let mut told = BTreeSet::new();
    let mut findings = Vec::new();
    for (file, reached) in &reach {
        let with: Vec<&str> = reached
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(file)))
            .copied()
            .collect();
        if !with.contains(file) || !told.insert(with.clone()) {
            continue;
        }
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let short = |path: &str| {
            path.strip_prefix(folder).map_or(path, |rest| rest.trim_start_matches('/')).to_owned()
        };
        let within = |from: &str| {
            let to = uses[from].iter().filter(|(to, _)| with.contains(to));
            to.map(|(to, line)| format!("{}:{line} -> {}", short(from), short(to))).collect::<Vec<_>>()
        };
        let edges: Vec<String> = with.iter().flat_map(|from| within(from)).collect();
        let message = format!(
            "{} files import each other in a circle ({}): move what they share to where it belongs",
            with.len(),
            edges.join(", ")
        );
        findings.push(Finding::error(file, 0, message));
    }
    findings
}

/// The files that `file` uses, directly or through others; itself only if it is in a circle.
fn reached<'a>(uses: &Uses<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![file];
    while let Some(from) = open.pop() {
        for to in uses.get(from).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*to) {
                open.push(to);
            }
        }
    }
    reached
}
