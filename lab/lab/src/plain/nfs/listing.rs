//! `plain nfs-ls`: the command of the KNI report, `ls -last -R`, over a tree mounted by the kernel's own client.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_sys::child::{self, Placement};
use twinpath_sys::mounts;

use super::{ListArgs, MOUNT_PORT, Shape};

/// The result of a listing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListReport {
    /// Lines of output of `ls`, which must be as many as the tree has.
    pub(crate) lines: usize,
    /// From the start of `ls` to its end, without mounting.
    pub(crate) wall_s: f64,
}

/// Mounts in a private namespace, so that nothing is cached from before, and nothing remains.
pub(crate) fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let directory = tempfile::tempdir().context("cannot make a directory to mount on")?;
    mounts::hide(&[])?;
    attach((args.target, MOUNT_PORT), &args.export, "tcp", MountFlags::RDONLY, directory.path())?;
    let listed = listed(directory.path(), &args.shape);
    // Also after a failure, whose reason comes first: the directory cannot be removed while something is mounted on it.
    let detached = unmount(directory.path(), UnmountFlags::empty());
    let report = listed?;
    detached.context("cannot unmount the tree")?;
    print(json!(report))?;
    Ok(ExitCode::SUCCESS)
}

/// Mounts with NFSv3 at given ports, so that neither portmapper nor lock manager is needed (nfs(5)).
pub(super) fn attach(
    (server, mount_port): (SocketAddr, u16),
    export: &Path,
    proto: &str,
    flags: MountFlags,
    directory: &Path,
) -> anyhow::Result<()> {
    let (address, port) = (server.ip(), server.port());
    let options = format!(
        "addr={address},vers=3,proto={proto},port={port},mountaddr={address},mountproto={proto},mountport={mount_port},nolock"
    );
    let source = format!("{address}:{}", export.display());
    let options = CString::new(options)?;
    mount(source.as_str(), directory, "nfs", flags, options.as_c_str()).with_context(|| {
        format!("cannot mount {source} by the kernel's NFS client: does this kernel have nfs and nfsv3?")
    })
}

fn listed(directory: &Path, shape: &Shape) -> anyhow::Result<ListReport> {
    let mut output = tempfile::tempfile().context("cannot make a file for what ls prints")?;
    let mut command = Command::new("ls");
    command.args(["-last", "-R"]).arg(directory).env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(output.try_clone()?);
    child::place(&mut command, Placement::default())?;
    let begun = Instant::now();
    let status = command.status().context("cannot run ls")?;
    let wall_s = begun.elapsed().as_secs_f64();
    ensure!(status.success(), "ls: {status}");
    let lines = lines(&mut output)?;
    let expected = expected(shape);
    ensure!(lines == expected, "ls printed {lines} lines where the tree has it print {expected}");
    Ok(ListReport { lines, wall_s })
}

fn lines(output: &mut File) -> anyhow::Result<usize> {
    output.rewind()?;
    Ok(BufReader::new(output).lines().count())
}

/// One line per name; for each directory, including the root, its name, the total, itself and its parent; and an empty
/// line between two directories.
fn expected(shape: &Shape) -> usize {
    let directories = shape.directories + 1;
    shape.names() + 4 * directories + (directories - 1)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn a_listing_of_the_tree_has_as_many_lines_as_expected() {
        let shape = Shape { files: 200, directories: 9, seed: 3 };
        let directory = tempfile::tempdir().unwrap();
        Tree::new(&shape).unwrap().create(directory.path()).unwrap();
        let report = listed(directory.path(), &shape).unwrap();
        assert_eq!(report.lines, 200 + 9 + 4 * 10 + 9);
        let other = Shape { files: 201, ..shape };
        let error = listed(directory.path(), &other).unwrap_err().to_string();
        assert!(error.contains("printed 258 lines"), "{error}");
    }
}
