//! Rules about dependencies. A folder is a product, and may use only the folders in its list. A tier is what a crate
//! may do. The crate's manifest names it, and a crate uses only crates of its own tier and of those below.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::facts::Facts;
use super::{Finding, Source, Tree, first_of};

/// A folder of the root, and the other folders that its crates may use.
struct Folder {
    name: &'static str,
    uses: &'static [&'static str],
}

/// The folders, lowest first. `lab`, `test` and `xtask` may use everything; other crates may use them only for tests.
const FOLDERS: &[Folder] = &[
    Folder { name: "core", uses: &[] },
    Folder { name: "stack", uses: &["core"] },
    Folder { name: "ports", uses: &["core", "stack"] },
    Folder { name: "host", uses: &["core", "stack", "ports"] },
    Folder { name: "service", uses: &["core", "stack", "host"] },
    Folder { name: "bridge", uses: &["core", "stack", "ports", "host"] },
    Folder { name: "switch", uses: &["core", "stack", "ports", "host"] },
    Folder { name: "sockets", uses: &["core", "stack", "host"] },
    Folder { name: "bench", uses: &["core", "stack", "host", "service"] },
    Folder { name: "api", uses: &["core", "stack", "host", "service", "sockets", "bench"] },
    Folder {
        name: "cli",
        uses: &["core", "stack", "ports", "host", "service", "bridge", "switch", "sockets", "bench"],
    },
];

/// Folders beside the product.
const BESIDE: &[&str] = &["lab", "test", "xtask"];

/// The tiers, and those that each may use beside itself. `xtask` and what is in `test/` has the tier `test`, or `io` for calls that are unsafe.
const TIERS: &[(&str, &[&str])] = &[
    ("pure", &[]),
    ("memory", &["pure"]),
    ("engine", &["pure", "memory"]),
    ("io", &["pure", "memory"]),
    ("runtime", &["pure", "memory", "engine", "io"]),
    ("c-abi", &["pure", "memory", "engine", "io", "runtime"]),
    ("test", &["pure", "memory", "engine", "io", "runtime", "c-abi"]),
];

/// These crates measure over kernel sockets: they use the load generator's protocol, and are no part of the product's packet path.
/// Pairs of (crate folder, crate folder it may use).
const EXCEPTIONS: &[(&str, &str)] = &[("bench/socket_load", "bench/load"), ("test/plain", "bench/load")];

/// Crates of other projects that only the labs and examples are built with.
const LAB_CRATES: &[&str] = &["nfs3_client"];

/// Third-party crates that access the host, forbidden in the tiers that must not.
const HOST_CRATES: &[&str] = &["aya", "caps", "libc", "mio", "nix", "procfs", "rustix", "socket2", "tokio"];

/// A member of the workspace.
struct Member<'a> {
    /// `tier/name`.
    folder: &'a str,
    manifest: Table,
}

impl Member<'_> {
    /// All crates that it names, for building and for its tests, on any target.
    fn uses(&self) -> Vec<&str> {
        let targets = self.manifest.get("target").and_then(Value::as_table);
        let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        std::iter::once(&self.manifest)
            .chain(tables)
            .flat_map(|table| sections.iter().filter_map(|section| table.get(*section)?.as_table()))
            .flat_map(|section| section.keys().map(String::as_str))
            .collect()
    }

    /// All crates that it is built with, without those for its tests.
    fn built_with(&self) -> Vec<&str> {
        let section = self.manifest.get("dependencies").and_then(Value::as_table);
        section.into_iter().flat_map(|section| section.keys().map(String::as_str)).collect()
    }

    fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }
}

/// The members' manifests, and a finding for each that cannot be read.
fn members(tree: &Tree) -> (Vec<Member<'_>>, Vec<Finding>) {
    let (mut members, mut findings) = (Vec::new(), Vec::new());
    for (path, text) in &tree.texts {
        let Some(folder) = path.strip_suffix("/Cargo.toml") else { continue };
        // Projects of their own, as users have them.
        if folder.starts_with("docs/examples/") {
            continue;
        }
        match text.parse::<Table>() {
            Ok(manifest) => members.push(Member { folder, manifest }),
            Err(error) => findings.push(Finding::error(path, 0, format!("is not TOML: {}", error.message()))),
        }
    }
    (members, findings)
}

/// Its package's name.
fn name_of<'a>(member: &'a Member<'_>) -> Option<&'a str> {
    member.manifest.get("package")?.get("name")?.as_str()
}

/// Arrows between folders, and between tiers, point down.
pub(super) fn arrows_point_down(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    let folders: BTreeMap<&str, &str> =
        members.iter().filter_map(|member| Some((name_of(member)?, member.folder))).collect();
    for member in members.iter().filter(|member| !member.folder.is_empty()) {
        let report = |message: String| Finding::error(&member.manifest_path(), 0, message);
        let tier = tree.tier_of(member.folder);
        let Some((tier, below)) = TIERS.iter().find(|(name, _)| *name == tier) else {
            let known: Vec<_> = TIERS.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            findings.push(report(format!("`[package.metadata.twinpath]` has no tier: give one of {known}")));
            continue;
        };
        let place = first_of(member.folder);
        let folder = FOLDERS.iter().find(|folder| folder.name == place);
        if folder.is_none() && !BESIDE.contains(&place) {
            findings
                .push(report("is in no folder of the house: put it in one, or add it to FOLDERS".to_owned()));
            continue;
        }
        let built_with = member.built_with();
        let used = member.uses().into_iter().filter_map(|name| Some((name, *folders.get(name)?)));
        // Tests may use what stands beside the product; the product may not.
        let used = used.filter(|(name, used)| !BESIDE.contains(&first_of(used)) || built_with.contains(name));
        for used in used.map(|(_, used)| used).filter(|used| *used != member.folder) {
            let target = first_of(used);
            if let Some(folder) = folder.filter(|folder| target != place && !folder.uses.contains(&target)) {
                findings.push(report(format!(
                    "uses {used}, but {place}/ may use {}: move what both need into a folder below",
                    listed(folder.uses, "/")
                )));
            }
            let of_used = tree.tier_of(used);
            let is_exception = EXCEPTIONS.contains(&(member.folder, used));
            if of_used != *tier && !below.contains(&of_used) && !is_exception {
                findings.push(report(format!(
                    "uses {used} of the tier {of_used}, but {tier} may use {}: move the shared part down, or join them in runtime",
                    listed(below, "")
                )));
            }
        }
        if matches!(*tier, "pure" | "engine") {
            let reach = built_with.iter().filter(|name| HOST_CRATES.contains(name));
            findings.extend(reach.map(|name| {
                report(format!(
                    "{name} in the tier {tier}: it reaches the host; io does that, take its result"
                ))
            }));
        }
    }
    findings
}

fn listed(names: &[&str], after: &str) -> String {
    if names.is_empty() {
        return "itself only".to_owned();
    }
    names.iter().map(|name| format!("{name}{after}")).collect::<Vec<_>>().join(", ")
}

/// A package is named as its folder; `twinpath` itself is the library, and `lab/lab` is `twinpath-lab`.
pub(super) fn packages_are_named_as_their_folders(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members(tree).0.iter().filter(|member| !member.folder.is_empty()) {
        let last = member.folder.rsplit('/').next().unwrap_or_default().replace('_', "-");
        let name = match (member.folder, first_of(member.folder)) {
            ("api/twinpath" | "xtask", _) => last,
            (_, "test") => format!("twinpath-test-{last}"),
            _ => format!("twinpath-{last}"),
        };
        if name_of(member).is_some_and(|given| given != name) {
            findings.push(Finding::error(
                &member.manifest_path(),
                0,
                format!("its package is to be named {name}"),
            ));
        }
    }
    findings
}

/// A package of ours that a command names (`cargo ... -p NAME`) is one: in documents, scripts and comments.
pub(super) fn named_packages_exist(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    let known: Vec<&str> = members.iter().filter_map(name_of).collect();
    let texts = tree.texts.iter().filter(|(path, _)| {
        let is_read = [".md", ".rs", ".sh", ".py", "Makefile", "/run"].iter().any(|end| path.ends_with(end));
        is_read && !path.starts_with("docs/decisions/") && !path.starts_with("xtask/src/check/")
    });
    for (path, text) in texts {
        for (index, line) in text.lines().enumerate() {
            for rest in line.split("-p twinpath").skip(1) {
                let name = rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').next();
                let name = format!("twinpath{}", name.unwrap_or_default());
                // A name that make puts together.
                if !known.contains(&name.as_str()) && !name.ends_with('-') {
                    findings.push(Finding::error(path, index + 1, format!("there is no package {name}")));
                }
            }
        }
    }
    findings
}

/// The product, and everything it is built from, does not use the crates of the labs.
pub(super) fn labs_stay_out_of_the_product(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    for member in members.iter().filter(|member| !BESIDE.contains(&first_of(member.folder))) {
        for name in member.built_with().into_iter().filter(|name| LAB_CRATES.contains(name)) {
            let message = format!(
                "is built with {name}, which is for lab/ alone: take what the product needs out of it"
            );
            findings.push(Finding::error(&member.manifest_path(), 0, message));
        }
    }
    findings
}

/// Lints and versions come from the workspace, so one edit changes them everywhere.
pub(super) fn manifests_follow_the_workspace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &members(tree).0 {
        let lints =
            member.manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
        if lints != Some(true) {
            let message = "does not take the workspace's lints: add `[lints]` with `workspace = true`";
            findings.push(Finding::error(&member.manifest_path(), 0, message));
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(section) = member.manifest.get(section).and_then(Value::as_table) else { continue };
            for (name, value) in section {
                if value.get("workspace").and_then(Value::as_bool) != Some(true) {
                    let message = format!(
                        "{name} has a version of its own: name it in the root Cargo.toml and write `{name}.workspace = true`"
                    );
                    findings.push(Finding::error(&member.manifest_path(), 0, message));
                }
            }
        }
    }
    findings
}

/// Where a crate's docs have no example, rustdoc need not be started to find none; where they have one, it runs.
pub(super) fn only_examples_are_looked_for(tree: &Tree) -> Vec<Finding> {
    let is_fence = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        text.is_some_and(|text| text.trim_start().starts_with("```"))
    };
    let mut findings = Vec::new();
    for member in &members(tree).0 {
        let sources = format!("{}/src/", member.folder);
        if !tree.paths.contains(&format!("{sources}lib.rs")) {
            continue;
        }
        let has_example = tree.texts.iter().any(|(path, text)| {
            path.starts_with(&sources) && path.ends_with(".rs") && text.lines().any(is_fence)
        });
        let key = member.manifest.get("lib").and_then(|lib| lib.get("doctest"));
        let message = match (has_example, key.and_then(Value::as_bool).unwrap_or(true)) {
            (true, false) => "the docs have an example that no test runs: remove `doctest = false`",
            (false, true) => "the docs have no example: add `doctest = false` to `[lib]`",
            _ => continue,
        };
        findings.push(Finding::error(&member.manifest_path(), 0, message));
    }
    findings
}

/// Every dependency costs build time: each is named in the code, and one that only tests use is a dev-dependency.
pub(super) fn dependencies_are_used(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    for member in &members {
        let folder = format!("{}/", member.folder);
        let is_for_tests = first_of(member.folder) == "test" || tree.tier_of(member.folder) == "test";
        // Only the crate's own files: its folder may contain another crate.
        let inner = |path: &str| {
            members.iter().any(|other| {
                other.folder.len() > member.folder.len() && path.starts_with(&format!("{}/", other.folder))
            })
        };
        let sources: Vec<_> = tree
            .parsed()
            .filter(|(source, _)| source.path.starts_with(&folder) && !inner(&source.path))
            .collect();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(section_table) = member.manifest.get(section).and_then(Value::as_table) else {
                continue;
            };
            for name in section_table.keys() {
                let uses = sources.iter().flat_map(|(source, facts)| uses_of(name, source, facts));
                let message = match uses.max() {
                    None => format!("{name} is not used: remove it"),
                    Some(Use::ByTests) if section == "dependencies" && !is_for_tests => {
                        format!("{name} is used by tests only: move it to [dev-dependencies]")
                    }
                    Some(_) => continue,
                };
                findings.push(Finding::error(&member.manifest_path(), 0, message));
            }
        }
    }
    findings.extend(unnamed_in_members(tree, &members));
    findings
}

/// Versions in the root manifest that no member uses.
fn unnamed_in_members(tree: &Tree, members: &[Member<'_>]) -> Vec<Finding> {
    let root = tree.texts.get("Cargo.toml").and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    let Some(kept) = root.get("workspace").and_then(|it| it.get("dependencies")).and_then(Value::as_table)
    else {
        return Vec::new();
    };
    let used: Vec<_> = members.iter().flat_map(Member::uses).collect();
    let unused = kept.keys().filter(|name| !used.contains(&name.as_str()));
    unused
        .map(|name| Finding::error("Cargo.toml", 0, format!("{name} is used by no crate: remove it")))
        .collect()
}

/// How code uses a dependency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    ByTests,
    ByProduct,
}

/// Each place in a file where a crate is named: in a path, or in an attribute.
fn uses_of(dependency: &str, source: &Source, facts: &Facts) -> Vec<Use> {
    let ident = dependency.replace('-', "_");
    let told = |test: bool| if test || source.test { Use::ByTests } else { Use::ByProduct };
    let names = facts
        .names
        .iter()
        .filter(|(name, _)| name.trim_start_matches("::").split("::").next() == Some(&ident));
    let attributes = facts.attributes.iter().filter(|(text, _)| text.contains(&format!("{ident}::")));
    names.chain(attributes).map(|(_, place)| told(place.test)).collect()
}

/// Each folder has a page that says what it is.
pub(super) fn each_folder_has_a_readme(tree: &Tree) -> Vec<Finding> {
    let folders = FOLDERS.iter().map(|folder| folder.name).chain(BESIDE.iter().copied());
    let missing = folders.filter(|folder| tree.exists(folder)).map(|folder| format!("{folder}/README.md"));
    missing
        .filter(|path| !tree.exists(path))
        .map(|path| {
            Finding::error(&path, 0, "is missing: say what the folder holds, what it may use, where to start")
        })
        .collect()
}
