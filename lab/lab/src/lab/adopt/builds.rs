//! The build of a project on the library, with nothing built before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::foreign;
use crate::lab::model::Sample;
use crate::lab::session::Session;

/// A build takes a minute or two on two CPUs.
const DEADLINE: Duration = Duration::from_secs(900);
const LIBRARY: &str = "api/twinpath";
const MIB: f64 = 1_048_576.0;

/// Builds a project of its own with an empty `main`, outside of the workspace, as a user of the library has one.
pub(super) async fn empty(session: &Session) -> anyhow::Result<Sample> {
    let checkout = checkout()?;
    let project =
        tempfile::tempdir_in(session.run_dir.path()).context("cannot create a folder for a project")?;
    write_project(&checkout, project.path())?;
    // Fetched before the clock runs: what that takes is the network's.
    cargo(project.path(), &["fetch"]).await?;
    let begun = Instant::now();
    let said = cargo(project.path(), &["build", "--offline", "--jobs", "2"]).await?;
    let wall_s = begun.elapsed().as_secs_f64();
    let crates = said.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count();
    let binary = project.path().join("target/debug/adopted");
    let size =
        binary.metadata().with_context(|| format!("there is no {}", binary.display()))?.len() as f64 / MIB;
    let values = [("wall_s", wall_s), ("crates", crates as f64), ("binary_mib", size)].into();
    let notes = vec![format!("{crates} crates; the program has {size:.1} MiB")];
    Ok(Sample { values, notes, ..Sample::default() })
}

/// The checkout that this lab is run in.
fn checkout() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("cannot find the current directory")?;
    let mut above = here.ancestors();
    let found = above.find(|folder| folder.join(LIBRARY).join("Cargo.toml").is_file());
    Ok(found.context("builds are measured in a checkout of twinpath: run the lab there")?.to_owned())
}

fn write_project(checkout: &Path, project: &Path) -> anyhow::Result<()> {
    let manifest = format!(
        "[package]\nname = \"adopted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntwinpath = {{ path = {:?} }}\n\n[workspace]\n",
        checkout.join(LIBRARY)
    );
    std::fs::create_dir(project.join("src"))?;
    std::fs::write(project.join("Cargo.toml"), manifest)?;
    std::fs::write(project.join("src/main.rs"), "fn main() {}\n")?;
    // The versions that are tested here.
    std::fs::copy(checkout.join("Cargo.lock"), project.join("Cargo.lock"))?;
    Ok(())
}

/// Runs cargo to its end; returns what it said of its progress.
async fn cargo(project: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(project).env("CARGO_TERM_COLOR", "never");
    // What is set for this workspace's builds is not what a user of the library has.
    for name in ["CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "CARGO_TERM_QUIET", "RUSTFLAGS", "RUSTC_WRAPPER"] {
        command.env_remove(name);
    }
    let output = tokio::time::timeout(DEADLINE, foreign::output(command)).await;
    let output = output.with_context(|| format!("cargo did not end within {} s", DEADLINE.as_secs()))??;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
