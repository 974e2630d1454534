//! The programs of other switches: those that `make lab` has unpacked beside the labs, else those installed here.

use std::path::PathBuf;

use crate::foreign::Packages;

const PACKAGES: Packages = Packages {
    unpacked: "lab-peers",
    programs_in: &["usr/sbin", "usr/bin", "usr/lib/openvswitch-switch", "sbin"],
    fetched_by: "`make lab LAB=switch`",
};
/// The path of a file of a package, by its path in there.
pub(super) fn file(path: &str) -> anyhow::Result<PathBuf> {
    PACKAGES.file(path)
}

/// A command that runs a program in the caller's namespace and on its CPUs, and dies with it.
pub(super) fn command(program: &str) -> anyhow::Result<std::process::Command> {
    let found = PACKAGES.program(program)?;
    let mut command = std::process::Command::new("stdbuf");
    // Line by line, also into a file: a program that says that it is ready has to be heard.
    command.arg("-oL").arg(&found.file);
    if let Some([libraries, _]) = &found.libraries {
        // libxdp looks for the program that it attaches in a directory of the system otherwise.
        command.env("LIBXDP_OBJECT_PATH", libraries.join("bpf"));
    }
    if let Some(libraries) = found.library_path() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    Ok(command)
}
