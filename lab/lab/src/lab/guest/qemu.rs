//! Finds a qemu: this machine's, or a newer one from its distribution's backports, unpacked beside the guest's files
//! but not installed.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::process::Command;

use super::packages::{Places, Source};
use super::tools;

pub(super) const PROGRAM: &str = "qemu-system-x86_64";
pub(super) const PACKAGE: &str = "qemu-system-x86";

/// Version 7.2 loses CPU flags when it counts instructions: Linux 6.12 crashes in it within a minute.
pub(super) const COUNTS_FROM: u32 = 8;
/// Directories with data files of a machine, besides those of the program's own package.
const DATA: [&str; 2] = ["/usr/share/seabios", "/usr/share/qemu"];

/// A qemu that can be run.
#[derive(Debug)]
pub(super) struct Qemu {
    pub(super) program: PathBuf,
    /// Directories of its data files; none for the default ones.
    pub(super) data: Vec<PathBuf>,
    pub(super) version: String,
}

impl Qemu {
    /// The installed one.
    pub(super) async fn installed() -> anyhow::Result<Self> {
        Self::try_out(PROGRAM.into(), Vec::new()).await
    }

    /// This one if its major version is at least `oldest`, otherwise the one of the backports, unpacked where fetched
    /// files are kept.
    pub(super) async fn at_least(self, oldest: u32, places: &Places<'_>) -> anyhow::Result<Self> {
        if major(&self.version) >= oldest {
            return Ok(self);
        }
        let wanted = || format!("qemu here is {}, and {oldest} or later is needed", self.version);
        let root = places.of("qemu");
        if !root.exists() {
            let package = format!("{PACKAGE}/backports");
            let (source, package) = Source::of(&package, places.temporary).await.with_context(wanted)?;
            source.unpack(&[package, "qemu-system-data"], &root).await.with_context(wanted)?;
        }
        let data = [root.join("usr/share/qemu")].into_iter().chain(DATA.map(PathBuf::from)).collect();
        // It uses this machine's libraries; asking for its version shows whether that works.
        Self::try_out(root.join("usr/bin").join(PROGRAM), data).await.with_context(wanted)
    }

    async fn try_out(program: PathBuf, data: Vec<PathBuf>) -> anyhow::Result<Self> {
        let mut command = Command::new(&program);
        command.arg("--version");
        let said = tools::run(command, PACKAGE, Path::new("/")).await?;
        Ok(Self { program, data, version: version_of(&said) })
    }
}

/// `QEMU emulator version 7.2.22 (Debian ...)`.
pub(super) fn version_of(said: &str) -> String {
    said.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("?").to_owned()
}

/// The major version; 0 if it cannot be parsed.
pub(super) fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
