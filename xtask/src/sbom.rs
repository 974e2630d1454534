//! The list of what is linked into a release, as CycloneDX 1.5 (ECMA-424) in JSON: every crate with its version, licence,
//! checksum, and the crates that it uses.
//!
//! It has no time and no random number in it, so the same commit gives the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The packages that a release is built from.
const RELEASED: [&str; 3] = ["twinpath-cli", "twinpath-preload", "twinpath-capi"];

/// Name and version.
type Id = (String, String);

/// A crate as `cargo tree` describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Crate {
    license: String,
    uses: BTreeSet<Id>,
}

/// The list for a target such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
/// A command that could not be run, or output of it that is not as expected.
pub(crate) fn run(root: &Path, target: &str) -> Result<String> {
    let mut crates = BTreeMap::new();
    for package in RELEASED {
        let args =
            ["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth", "--no-dedupe"];
        let tree =
            cargo(root, &[&args[..], &["-p", package, "--target", target, "-f", " {p}|{l}"]].concat())?;
        read_tree(&tree, &mut crates)?;
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let list = document(&crates, &checksums(&lock)?, env!("CARGO_PKG_VERSION"), target);
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

fn cargo(root: &Path, args: &[&str]) -> Result<String> {
    let output = crate::cargo().current_dir(root).args(args).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", args[0], String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Adds the crates of a tree, a line each: its depth, a space, name, version and where it is from, `|`, its licence.
fn read_tree(tree: &str, crates: &mut BTreeMap<Id, Crate>) -> Result<()> {
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let parse = || {
            let (depth, rest) = line.split_once(' ')?;
            let (package, license) = rest.split_once('|')?;
            let mut words = package.split(' ');
            let id = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
            Some((depth.parse::<usize>().ok()?, id, license))
        };
        let (depth, id, license) = parse().with_context(|| format!("not a line of `cargo tree`: {line}"))?;
        // Crates of before 2015 wrote a slash for what SPDX calls OR.
        let license = license.replace('/', " OR ");
        crates.entry(id.clone()).or_default().license = license;
        above.truncate(depth);
        if let Some(user) = above.last() {
            crates.entry(user.clone()).or_default().uses.insert(id.clone());
        }
        above.push(id);
    }
    Ok(())
}

/// The SHA-256 of each crate that comes from a registry.
fn checksums(lock: &str) -> Result<BTreeMap<Id, String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let found = packages
        .iter()
        .filter_map(|it| Some(((text(it, "name")?, text(it, "version")?), text(it, "checksum")?)));
    Ok(found.collect())
}

fn document(
    crates: &BTreeMap<Id, Crate>,
    checksums: &BTreeMap<Id, String>,
    version: &str,
    target: &str,
) -> Value {
    let reference = |(name, version): &Id| format!("{name}@{version}");
    // A package URL has no plus sign.
    let url = |id: &Id| format!("pkg:cargo/{}", reference(id).replace('+', "%2B"));
    let components: Vec<_> = crates
        .iter()
        .map(|(id, it)| {
            let hash = |sum: &String| json!([{ "alg": "SHA-256", "content": sum }]);
            let mut component = json!({
                "type": "library", "bom-ref": reference(id), "name": id.0, "version": id.1, "purl": url(id),
                "licenses": [{ "expression": it.license }],
            });
            if let Some(hashes) = checksums.get(id).map(hash) {
                component["hashes"] = hashes;
            }
            component
        })
        .collect();
    let edges: Vec<_> = crates
        .iter()
        .map(|(id, it)| json!({ "ref": reference(id), "dependsOn": it.uses.iter().map(reference).collect::<Vec<_>>() }))
        .collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "component": { "type": "application", "bom-ref": "twinpath", "name": "twinpath", "version": version },
            "properties": [{ "name": "twinpath:target", "value": target }],
        },
        "components": components,
        "dependencies": edges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_crate_has_its_licence_and_those_that_it_uses() {
        let tree = "0 a v0.1.0 (/x/a)|Apache-2.0 OR MIT\n1 b v1.2.3|MIT/Apache-2.0\n2 c v3.0.0|MIT\n1 c v3.0.0|MIT\n";
        let mut crates = BTreeMap::new();
        read_tree(tree, &mut crates).expect("a tree");
        assert_eq!(
            crates.keys().cloned().collect::<Vec<_>>(),
            [id("a", "0.1.0"), id("b", "1.2.3"), id("c", "3.0.0")]
        );
        assert_eq!(crates[&id("a", "0.1.0")].uses, [id("b", "1.2.3"), id("c", "3.0.0")].into());
        let b = Crate { license: "MIT OR Apache-2.0".to_owned(), uses: [id("c", "3.0.0")].into() };
        assert_eq!(crates[&id("b", "1.2.3")], b);
        assert!(read_tree("what is this", &mut crates).is_err());
    }

    #[test]
    fn all_but_ours_have_a_checksum() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let list: Value =
            serde_json::from_str(&run(root, "x86_64-unknown-linux-gnu").expect("a list")).expect("JSON");
        let components = list["components"].as_array().expect("components");
        assert!(components.len() > 100, "{}", components.len());
        for it in components {
            let ours = it["name"].as_str().is_some_and(|name| name.starts_with("twinpath"));
            assert_eq!(it["hashes"].is_null(), ours, "{it}");
            assert_ne!(it["licenses"][0]["expression"], "", "{it}");
        }
    }
}
