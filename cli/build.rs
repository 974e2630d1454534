//! Puts the commit into the version of release builds: `twinpath --version` says which it was built from.

use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rerun-if-env-changed=TWINPATH_COMMIT");
    // A debug build does not link again for every commit.
    let commit = if std::env::var("PROFILE").as_deref() == Ok("release") { commit() } else { None };
    let version = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=TWINPATH_VERSION={version}");
}

/// The commit: from the environment, if a packager sets it, otherwise from git; `None` outside of a
/// checkout.
fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("TWINPATH_COMMIT") {
        return (!commit.is_empty()).then_some(commit);
    }
    // These files change when another commit is checked out, or made.
    for file in ["HEAD", "logs/HEAD"] {
        println!(
            "cargo:rerun-if-changed={}",
            git(&["rev-parse", "--path-format=absolute", "--git-path", file])?
        );
    }
    let changed =
        if git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() { "" } else { ", changed" };
    Some(git(&["rev-parse", "--short=12", "HEAD"])? + changed)
}

/// The output of git, without the line's end.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
