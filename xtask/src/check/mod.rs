//! House rules that a program checks.
//!
//! A rule is a function from the tree to findings; each finding says where, what, and what to do instead. For a rule
//! that cannot hold at once, a list of exceptions (in [`source`] and [`words`]) may only shrink.

mod circles;
mod facts;
mod keys;
mod source;
mod text;
mod tiers;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::facts::Facts;

/// One violation of a rule, at one place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    pub(crate) fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The result of [`run`].
pub(crate) struct Report {
    pub(crate) rules: usize,
    pub(crate) errors: Vec<Finding>,
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule, in the order of the report.
const RULES: &[Rule] = &[
    source::every_file_parses,
    tiers::arrows_point_down,
    tiers::packages_are_named_as_their_folders,
    tiers::named_packages_exist,
    tiers::labs_stay_out_of_the_product,
    tiers::manifests_follow_the_workspace,
    tiers::only_examples_are_looked_for,
    tiers::dependencies_are_used,
    tiers::each_folder_has_a_readme,
    source::unsafe_stays_in_its_tiers,
    source::each_unsafe_says_why_it_is_sound,
    source::unsafe_is_allowed_with_a_reason,
    source::tiers_keep_off_clocks_threads_and_files,
    source::nothing_panics_by_unwrap,
    source::nothing_sleeps_on_a_tick,
    source::nothing_depends_on_the_wall_clock,
    source::children_wait_for_no_lock_of_a_parent,
    source::nothing_is_unfinished_or_silenced,
    source::functions_are_short,
    source::crates_say_what_they_are,
    source::files_say_what_they_are_for,
    circles::no_files_import_in_a_circle,
    text::links_resolve,
    text::no_machine_paths,
    keys::keys_are_written_once,
    words::markdown_lines_are_short,
    words::named_files_exist,
];

/// Checks the tree against every rule.
pub(crate) fn run(tree: &Tree) -> Report {
    let errors = RULES.iter().flat_map(|rule| rule(tree)).collect();
    Report { rules: RULES.len(), errors }
}

/// A Rust file, parsed once.
pub(crate) struct Source {
    path: String,
    facts: Result<Facts, syn::Error>,
    /// Whether the whole file is test code: by its path, or because its `mod` line has `#[cfg(test)]`.
    test: bool,
}

/// The input of the rules: the tracked files, read once. Paths are relative to the root, with `/`.
pub(crate) struct Tree {
    /// Text by path; files that are not UTF-8 (the BPF object, fuzz corpora) are in `paths` only.
    texts: BTreeMap<String, String>,
    paths: BTreeSet<String>,
    sources: Vec<Source>,
    /// The tier of each crate, as its manifest says, by its folder.
    tiers: BTreeMap<String, String>,
}

impl Tree {
    /// Reads every tracked file of the checkout at `root`.
    pub(crate) fn of_checkout(root: &Path) -> Result<Self> {
        // The checkout may belong to another user than the one who checks it (a container, `sudo make lint`).
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .current_dir(root)
            .output()
            .context("starting git: install it, the checks ask it which files are tracked")?;
        if !listing.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let listing = String::from_utf8(listing.stdout).context("a tracked file's name is not UTF-8")?;
        let mut files = Vec::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            let place: PathBuf = root.join(path);
            // A file deleted but not yet committed is still listed.
            if !place.is_file() {
                continue;
            }
            let bytes = std::fs::read(&place).with_context(|| format!("reading {}", place.display()))?;
            files.push((path.to_owned(), String::from_utf8(bytes).ok()));
        }
        Ok(Self::new(files))
    }

    /// Builds a tree from paths and texts (`None`: not text).
    fn new(files: Vec<(String, Option<String>)>) -> Self {
        let paths: BTreeSet<String> = files.iter().map(|(path, _)| path.clone()).collect();
        let texts: BTreeMap<String, String> =
            files.into_iter().filter_map(|(path, text)| text.map(|text| (path, text))).collect();
        let mut sources: Vec<Source> = texts
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| Source {
                path: path.clone(),
                facts: Facts::of(text),
                test: is_test_path(path),
            })
            .collect();
        let by_mod_line: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
        for source in &mut sources {
            source.test |= by_mod_line.iter().any(|module| {
                source
                    .path
                    .strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
        }
        let tiers = texts.iter().filter_map(|(path, text)| tier_in(path, text)).collect();
        Self { texts, paths, sources, tiers }
    }

    /// The tier of the crate that a path belongs to; empty if there is none.
    fn tier_of(&self, path: &str) -> &str {
        let mut folder = path;
        loop {
            if let Some(tier) = self.tiers.get(folder) {
                return tier;
            }
            let Some((above, _)) = folder.rsplit_once('/') else { return "" };
            folder = above;
        }
    }

    /// The number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.paths.len()
    }

    /// The Rust files that could be parsed, each with its facts.
    fn parsed(&self) -> impl Iterator<Item = (&Source, &Facts)> {
        self.sources.iter().filter_map(|source| source.facts.as_ref().ok().map(|facts| (source, facts)))
    }

    /// Whether `path` is a tracked file or a folder that holds one.
    fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    }
}

/// The folder and the tier of a crate, if the file is its manifest and gives one.
fn tier_in(path: &str, text: &str) -> Option<(String, String)> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let manifest = text.parse::<toml::Table>().ok()?;
    let tier = manifest.get("package")?.get("metadata")?.get("twinpath")?.get("tier")?.as_str()?;
    Some((folder.to_owned(), tier.to_owned()))
}

/// The first folder of a path, or the file itself at the root.
fn first_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// Whether the path alone makes a file test code.
fn is_test_path(path: &str) -> bool {
    first_of(path) == "test" || path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// The path stems of the files that `source` declares as test modules (`#[cfg(test)] mod x;`).
fn test_modules(source: &Source) -> Vec<String> {
    let Ok(facts) = &source.facts else { return Vec::new() };
    let stem = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    let (folder, file) = stem.rsplit_once('/').unwrap_or(("", stem));
    let base = if matches!(file, "mod" | "lib" | "main") { folder } else { stem };
    facts.test_modules.iter().map(|module| format!("{base}/{module}")).collect()
}
