//! Debian programs that tests compare with: installed, or unpacked by `make test` and `make conformance`.

use std::path::PathBuf;
use std::process::Command;

/// Where packages are unpacked, in cargo's target directory.
const UNPACKED: [&str; 2] = ["test-peers", "conformance/programs/packages"];

/// The places of programs in a package.
const PLACES: [&str; 2] = ["usr/bin", "usr/sbin"];

/// A program.
pub(crate) struct Program {
    file: PathBuf,
    libraries: Option<PathBuf>,
}

impl Program {
    /// A command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// Finds a program, if it is there.
pub(crate) fn find(name: &str) -> Option<Program> {
    let tests = std::env::current_exe().ok()?;
    let target = tests.ancestors().nth(3)?;
    let unpacked = UNPACKED.map(|place| target.join(place));
    let architecture = std::env::consts::ARCH;
    let unpacked = unpacked.iter().flat_map(|root| {
        let libraries = root.join(format!("usr/lib/{architecture}-linux-gnu"));
        PLACES.map(|place| Program { file: root.join(place).join(name), libraries: Some(libraries.clone()) })
    });
    let installed =
        PLACES.map(|place| Program { file: PathBuf::from("/").join(place).join(name), libraries: None });
    installed.into_iter().chain(unpacked).find(|program| program.file.is_file())
}
