//! Runs the programs that prepare a guest. They end with this process, and their error output becomes the error.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::process::Command;
use twinpath_sys::child::{self, Placement};

/// Runs `command` in `directory` and returns its output. `package`: the package that contains it.
pub(super) async fn run(command: Command, package: &str, directory: &Path) -> anyhow::Result<String> {
    let bytes = output(command, package, directory).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn output(mut command: Command, package: &str, directory: &Path) -> anyhow::Result<Vec<u8>> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    child::place(command.as_std_mut(), Placement::default())?;
    let output = command.output().await.with_context(|| missing(&name, package))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        bail!("{name}: {} ({})", output.status, lines.join("; "));
    }
    Ok(output.stdout)
}

pub(super) fn missing(program: &str, package: &str) -> String {
    format!("cannot run {program}: is the Debian package {package} installed?")
}

/// The shared libraries of a program, including its loader, by the paths that the loader uses.
pub(super) async fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = Command::new(program);
    // The loader prints them instead of starting the program, as for ldd.
    command.env("LD_TRACE_LOADED_OBJECTS", "1");
    let listed = run(command, "twinpath", Path::new("/")).await?;
    Ok(library_paths(&listed))
}

/// Parses `libc.so.6 => /lib/libc.so.6 (0x7f..)` or `/lib64/ld-linux.so.2 (0x7f..)`; the kernel's own library has no
/// path.
pub(super) fn library_paths(listed: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (named, _) = line.rsplit_once(" (0x")?;
        let path = named.rsplit_once("=> ").map_or(named, |(_, path)| path).trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    listed.lines().filter_map(path).collect()
}

/// A file's content, decompressed.
pub(super) async fn decompressed(path: &Path) -> anyhow::Result<Vec<u8>> {
    let (program, package) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return std::fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut command = Command::new(program);
    command.arg("-dc").arg(path);
    output(command, package, Path::new("/")).await
}
