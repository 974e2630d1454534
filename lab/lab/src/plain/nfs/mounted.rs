//! `plain nfs-mounted`: what programs do with files of a tree that the kernel's own client has mounted, each result compared
//! with what it must be.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_sys::mounts;

use super::MountedArgs;
use super::listing::attach;

/// The longest that the file becomes, and the longest piece of it that is read or written at once, bytes.
const FILE_MAX: u64 = 1 << 20;
const PIECE_MAX: u64 = 70_000;
/// Operations between two looks at the clock.
const STRETCH: u32 = 50;

/// Mounts, walks, works, and compares again after mounting anew.
pub(crate) fn work(args: &MountedArgs) -> anyhow::Result<ExitCode> {
    let directory = tempfile::tempdir().context("cannot make a directory to mount on")?;
    mounts::hide(&[])?;
    let root = directory.path();
    let mut random = Rng::with_seed(args.shape.seed);
    let mounted = |work: &mut dyn FnMut() -> anyhow::Result<()>| {
        let server = (args.target, args.mount_port);
        attach(server, &args.export, &args.proto, MountFlags::empty(), root)?;
        let done = work();
        // Also after a failure, whose reason comes first: the directory cannot be removed while something is mounted on it.
        let detached = rustix::mount::unmount(root, UnmountFlags::empty());
        done?;
        detached.context("cannot unmount the tree")
    };
    let own = root.join(format!("worked-{}-{}", args.proto, args.shape.seed));
    let (mut image, mut operations, mut names) = (Vec::new(), 0, 0);
    mounted(&mut || {
        names = walk(root)?;
        ensure!(names == args.shape.names(), "{names} names were found of {}", args.shape.names());
        fs::create_dir(&own).context("mkdir")?;
        name_and_rename(&own)?;
        let until = Instant::now() + Duration::from_secs(args.seconds);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(own.join("data"))?;
        while Instant::now() < until {
            for _ in 0..STRETCH {
                operate(&file, &mut image, &mut random).with_context(|| format!("operation {operations}"))?;
                operations += 1;
            }
        }
        file.sync_all().context("fsync")
    })?;
    mounted(&mut || {
        let found = fs::read(own.join("data"))?;
        ensure!(found == image, "after mounting again, the file has other bytes than before");
        fs::remove_dir_all(&own).context("rm -r")
    })?;
    print(json!({ "right": 1.0, "names": names, "operations": operations }))?;
    Ok(ExitCode::SUCCESS)
}

/// The number of names below a directory, with the attributes of each.
fn walk(directory: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += 1;
        if entry.metadata()?.is_dir() {
            count += walk(&entry.path())?;
        }
    }
    Ok(count)
}

/// Makes, links, renames and removes what has names.
fn name_and_rename(own: &Path) -> anyhow::Result<()> {
    let at = |name: &str| own.join(name);
    fs::write(at("a"), b"some bytes")?;
    fs::set_permissions(at("a"), Permissions::from_mode(0o640))?;
    fs::hard_link(at("a"), at("b")).context("link")?;
    let (a, b) = (fs::metadata(at("a"))?, fs::metadata(at("b"))?);
    ensure!((a.ino(), a.nlink(), a.mode() & 0o777) == (b.ino(), 2, 0o640), "a hard link is another file");
    symlink("b", at("l")).context("symlink")?;
    ensure!(fs::read(at("l"))? == b"some bytes", "a symbolic link leads elsewhere");
    fs::create_dir(at("d"))?;
    fs::rename(at("a"), at("d/c")).context("rename")?;
    ensure!(!at("a").exists() && fs::read(at("d/c"))? == b"some bytes", "a rename left something behind");
    let removed = fs::remove_dir(at("d"));
    ensure!(
        removed.is_err_and(|error| error.kind() == std::io::ErrorKind::DirectoryNotEmpty),
        "rmdir of a directory with a file in it succeeded"
    );
    fs::remove_file(at("d/c"))?;
    fs::remove_dir(at("d"))?;
    fs::remove_file(at("l"))?;
    fs::remove_file(at("b"))?;
    ensure!(fs::read_dir(own)?.next().is_none(), "what was removed is still there");
    Ok(())
}

/// One operation on the file and on its image in memory, as fsx has them.
fn operate(file: &File, image: &mut Vec<u8>, random: &mut Rng) -> anyhow::Result<()> {
    let len = random.u64(1..PIECE_MAX);
    let offset = random.u64(0..FILE_MAX - len);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match random.u32(0..100) {
        0..45 => {
            let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len as usize).collect();
            file.write_all_at(&data, offset).context("write")?;
            image.resize(image.len().max(to), 0);
            image[from..to].copy_from_slice(&data);
        }
        45..85 => {
            let mut data = vec![0; len as usize];
            let mut read = 0;
            while read < data.len() {
                match file.read_at(&mut data[read..], offset + read as u64).context("read")? {
                    0 => break,
                    more => read += more,
                }
            }
            let expected = &image[from.min(image.len())..to.min(image.len())];
            ensure!(&data[..read] == expected, "{len} bytes at {offset} are others than were written");
        }
        85..92 => {
            file.set_len(offset).context("truncate")?;
            image.resize(from, 0);
        }
        92..96 => {
            // What the client has kept is read anew.
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).context("fadvise")?;
        }
        _ => file.sync_data().context("fdatasync")?,
    }
    ensure!(file.metadata()?.len() == image.len() as u64, "the file has another length");
    Ok(())
}
