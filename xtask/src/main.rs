//! `xtask`: tasks for developers: house checks, the BPF objects, instruction counts, the test summary, the
//! list of what a release is made of.
//!
//! Run as `cargo run -p xtask -- COMMAND`; `make lint` and `make test` call it. It never uses the network or changes
//! the host's settings.

mod bpf;
mod check;
mod instructions;
mod layouts;
mod sbom;
mod summary;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// What the variables begin with that describe a package.
const OF_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

#[derive(Parser)]
#[command(name = "xtask", about = "House checks, the BPF object and the test summary")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Hold the tree to the house rules; each finding names what to do instead.
    Check,
    /// Build the BPF object from its C source.
    Bpf {
        /// Change nothing: fail if the committed object is not what the source gives.
        #[arg(long)]
        check: bool,
    },
    /// Count the instructions that a call of RPC takes, under valgrind.
    Instructions {
        /// Fail if a case takes more than what is committed.
        #[arg(long)]
        check: bool,
        /// Commit what is counted: write it to test/sim/instructions.toml.
        #[arg(long, conflicts_with = "check")]
        write: bool,
        /// Build that program beside this package: crates that both use are then built once, not with two sets of features.
        #[arg(long, value_name = "PACKAGE")]
        beside: Vec<String>,
    },
    /// Print the list of the crates that are linked into a release (CycloneDX, JSON).
    Sbom {
        /// For which target, such as `x86_64-unknown-linux-gnu`.
        #[arg(long)]
        target: String,
    },
    /// Run the tests and say at the end how many ran and why any was skipped.
    TestSummary {
        /// Arguments for `cargo test` in place of the whole product and the models, e.g. `-p twinpath-wire`. `--workspace`
        /// alone: the product, the labs and the models.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        cargo_args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Task::Check => run_checks(),
        Task::Bpf { check } => bpf::build(check).map(|()| ExitCode::SUCCESS),
        Task::Instructions { check, write, beside } => {
            instructions::run(&root(), check, write, &beside).map(|()| ExitCode::SUCCESS)
        }
        Task::Sbom { target } => sbom::run(&root(), &target).map(|list| {
            let _ = std::io::Write::write_all(&mut std::io::stdout(), list.as_bytes());
            ExitCode::SUCCESS
        }),
        Task::TestSummary { cargo_args } => summary::run(&root(), &cargo_args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Cargo, as it was called from a shell. `cargo run` names this package to what it runs. Some build scripts read that: they, and all
/// that uses their crates, would be built again whenever cargo was called from here and from a shell by turns.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_package = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        OF_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
    });
    of_package.for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

fn run_checks() -> Result<ExitCode> {
    let tree = check::Tree::of_checkout(&root()).context("reading the tracked files")?;
    let mut report = check::run(&tree);
    let different = layouts::write(&root(), true)?;
    let finding = |path| {
        check::Finding::error(path, 0, format!("it is not what the sources say; {}", bpf::LAYOUTS_ADVICE))
    };
    report.errors.extend(different.into_iter().map(finding));
    report.rules += 1;
    for finding in &report.errors {
        println!("error: {finding}");
    }
    println!(
        "house checks: {} rules over {} files, {} broken",
        report.rules,
        tree.file_count(),
        report.errors.len()
    );
    Ok(if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_of_this_package() {
        // As it runs a test, it tells that of its package.
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let cargo = cargo();
        let mut removed = cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name);
        assert!(removed.any(|name| name == "CARGO_PKG_NAME"), "{cargo:?}");
    }
}
