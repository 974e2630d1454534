//! Rules about dependencies: folders are tiers, and each tier may use only certain others.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::facts::Facts;
use super::{Finding, Source, Tree, tier_of};

/// A tier, and the crates it may use.
struct Tier {
    folder: &'static str,
    /// Tiers that its crates may use beside their own.
    below: &'static [&'static str],
    /// Its crates by folder name, lowest first: a crate uses only crates listed before it.
    order: &'static [&'static str],
}

/// The tiers. `test/` and `xtask/` may use everything; other crates may use them only for tests.
const TIERS: &[Tier] = &[
    Tier {
        folder: "pure",
        below: &[],
        order: &["time", "inspect", "wire", "steer", "reflex", "filter", "idle", "openflow"],
    },
    Tier { folder: "mem", below: &["pure"], order: &["frame", "rings"] },
    Tier {
        folder: "engine",
        below: &["pure", "mem"],
        order: &["service", "stream", "stack", "rpc", "load", "switch", "pipeline", "openflow"],
    },
    Tier {
        folder: "io",
        below: &["pure", "mem"],
        order: &[
            "sys",
            "netlink",
            "steer_bpf",
            "port",
            "port_xdp",
            "port_packet",
            "port_vnet",
            "port_carrier",
            "port_shm",
            "port_vxlan",
            "socket_load",
            "plain",
            "file_ring",
        ],
    },
    Tier {
        folder: "runtime",
        below: &["pure", "mem", "engine", "io"],
        order: &[
            "thread",
            "worker",
            "handlers",
            "kernel_tcp",
            "serve",
            "bridge",
            "switch",
            "measure",
            "costs",
            "holders",
            "tune",
            "capture",
            "rpcbind",
            "report",
            "values",
            "rules",
            "config",
            "command",
            "sandbox",
            "controllers",
            "machine",
            "metrics",
            "mirror",
            "path",
            "services",
            "plan",
            "host",
            "attach",
            "lending",
            "offload",
            "fallback",
            "hold",
            "stuck",
            "serving",
            "clients",
            "exception_port",
            "openflow",
            "memory_port",
            "homes",
            "switching",
            "control",
            "owner",
            "socket",
        ],
    },
    Tier {
        folder: "api",
        below: &["pure", "mem", "engine", "io", "runtime"],
        order: &["twinpath", "calls", "capi", "preload"],
    },
    Tier {
        folder: "bin",
        below: &["pure", "mem", "engine", "io", "runtime"],
        order: &["twinpath", "twinpath-lab"],
    },
];

/// These two crates measure over kernel sockets: they use the load generator's protocol, and are no part of the
/// product's packet path. Pairs of (crate folder, crate folder it may use).
const EXCEPTIONS: &[(&str, &str)] = &[("bench/socket_load", "bench/load"), ("lab/plain", "bench/load")];

/// Crates that only the labs and examples need. Of the programs, only the labs' own is built with them; tests and examples
/// may use them.
const LAB_CRATES: &[&str] = &["twinpath-plain", "twinpath-file-ring", "nfs3_client"];
const LAB_PROGRAM: &str = "lab/lab";

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

/// A crate uses only crates listed before it in its own tier, and the tiers below.
pub(super) fn crates_use_only_tiers_below(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    let package =
        |member: &Member<'_>| Some(member.manifest.get("package")?.get("name")?.as_str()?.to_owned());
    let folders: BTreeMap<String, &str> =
        members.iter().filter_map(|member| Some((package(member)?, member.folder))).collect();
    for member in &members {
        let report = |message: String| Finding::error(&member.manifest_path(), 0, message);
        let Some(tier) = TIERS.iter().find(|tier| tier.folder == tier_of(member.folder)) else {
            if !matches!(tier_of(member.folder), "test" | "xtask") {
                findings.push(report(
                    "is in no tier: put it in one, or add its folder to TIERS in xtask".to_owned(),
                ));
            }
            continue;
        };
        let built_with = member.built_with();
        let used = member.uses().into_iter().filter_map(|name| Some((name, *folders.get(name)?)));
        // Tests may use test/; the product may not.
        let used = used.filter(|(name, used)| tier_of(used) != "test" || built_with.contains(name));
        let used = used.map(|(_, used)| used);
        findings.extend(used.filter_map(|used| judge(member.folder, tier, used)).map(report));
        if matches!(tier.folder, "pure" | "engine") {
            let reach = built_with.iter().filter(|name| HOST_CRATES.contains(name));
            findings.extend(reach.map(|name| {
                report(format!(
                    "{name} in {}/: it reaches the host; io/ does that, take its result",
                    tier.folder
                ))
            }));
        }
    }
    findings
}

/// The product, and everything it is built from, does not use the crates of the labs.
pub(super) fn labs_stay_out_of_the_product(tree: &Tree) -> Vec<Finding> {
    let (members, mut findings) = members(tree);
    let others = members.iter().filter(|member| {
        member.folder != LAB_PROGRAM && TIERS.iter().any(|tier| tier.folder == tier_of(member.folder))
    });
    for member in others {
        for name in member.built_with().into_iter().filter(|name| LAB_CRATES.contains(name)) {
            let message = format!(
                "is built with {name}, which is for {LAB_PROGRAM} alone: take what the product needs out of it"
            );
            findings.push(Finding::error(&member.manifest_path(), 0, message));
        }
    }
    findings
}

/// Why a crate in `folder`, of `tier`, may not use the one in `used`.
fn judge(folder: &str, tier: &Tier, used: &str) -> Option<String> {
    let name = |folder: &str| folder.split('/').nth(1).unwrap_or_default().to_owned();
    let rank = |folder: &str| tier.order.iter().position(|listed| *listed == name(folder));
    if used == folder || EXCEPTIONS.contains(&(folder, used)) {
        return None;
    }
    let Some(own_rank) = rank(folder) else {
        return Some(format!("is not in the order of {}/: add it to TIERS in xtask", tier.folder));
    };
    if tier_of(used) == tier.folder {
        let lower = rank(used).is_some_and(|used_rank| used_rank < own_rank);
        let message = || {
            format!(
                "uses {used}, which comes after it in {}/: move what both need into a lower one",
                tier.folder
            )
        };
        return (!lower).then(message);
    }
    (!tier.below.contains(&tier_of(used))).then(|| {
        let below =
            if tier.below.is_empty() { "itself only".to_owned() } else { tier.below.join("/, ") + "/" };
        format!(
            "uses {used}, but {}/ may use {below}: move the shared part down, or let runtime/ join them",
            tier.folder
        )
    })
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
                    // Everything in test/ is for tests.
                    Some(Use::ByTests) if section == "dependencies" && tier_of(member.folder) != "test" => {
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

/// Each tier has a README that says what it may use.
pub(super) fn each_tier_has_a_readme(tree: &Tree) -> Vec<Finding> {
    let folders = TIERS.iter().map(|tier| tier.folder).chain(["test"]).filter(|folder| tree.exists(folder));
    let missing = folders.map(|folder| format!("{folder}/README.md")).filter(|path| !tree.exists(path));
    missing
        .map(|path| Finding::error(&path, 0, "is missing: say what the tier holds and what it may use"))
        .collect()
}
