//! `plain nfs-server`: runs nfs-ganesha over a generated tree, in the namespace and on the CPU of its caller.

use std::ffi::OsStr;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::process::Child;
use twinpath_clients::measure::print;
use twinpath_sys::mounts;

use super::tree::Tree;
use super::{MOUNT_PORT, NFS_PORT, ServerArgs, portmapper, walk};
use crate::foreign;

/// The packages that are needed, by their names in Debian.
const PACKAGES: &str = "nfs-ganesha nfs-ganesha-vfs";
const PROGRAM: &str = "ganesha.nfsd";
/// It starts within a second or two on an idle machine, and has taken more than 9 s on a busy one. The lab waits 40 s for any server.
const READY_DEADLINE: Duration = Duration::from_secs(35);
/// The interval of checks whether it serves.
const READY_LOOK: Duration = Duration::from_millis(25);

/// The path of ganesha.
pub(crate) fn find_ganesha() -> anyhow::Result<PathBuf> {
    foreign::installed(PROGRAM).with_context(|| {
        format!("{PROGRAM} was not found: install it (on Debian: apt-get install {PACKAGES}), or run `make lab LAB=kni` or `make lab LAB=rpc`, which do")
    })
}

/// Serves until a signal comes.
pub(crate) fn serve(args: &ServerArgs) -> anyhow::Result<ExitCode> {
    let program = find_ganesha()?;
    let tree = Tree::new(&args.shape)?;
    let directory = std::fs::canonicalize(&args.directory)
        .with_context(|| format!("no directory {}", args.directory.display()))?;
    let export = directory.join("tree");
    // Before the event loop, so that processes started later see the same mounts.
    create_hidden(&tree, &export, &[Path::new("/run"), Path::new("/var/lib/nfs")])?;
    let access = if args.writable { "RW" } else { "RO" };
    crate::plain::on_event_loop(run_ganesha(&program, &directory, &export, access))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates a tree on a tmpfs that only this process sees, and empties these directories for it, too.
pub(super) fn create_hidden(tree: &Tree, export: &Path, emptied: &[&Path]) -> anyhow::Result<()> {
    std::fs::create_dir(export).with_context(|| format!("cannot create {}", export.display()))?;
    let hidden: Vec<_> = emptied.iter().copied().chain([export]).filter(|path| path.is_dir()).collect();
    mounts::hide(&hidden)?;
    tree.create(export)
}

async fn run_ganesha(program: &Path, directory: &Path, export: &Path, access: &str) -> anyhow::Result<()> {
    let mut told = crate::plain::EndSignals::new()?;
    let (config, log) = (directory.join("ganesha.conf"), directory.join("ganesha.log"));
    std::fs::write(&config, configuration(export, access)?)
        .with_context(|| format!("cannot write {}", config.display()))?;
    let mut ganesha = start(program, directory, &config, &log)?;
    let serving = async {
        let root = wait_until_it_serves(export).await?;
        let root: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
        let pid = ganesha.id().context("ganesha ended as soon as it served")?;
        print(json!({
            "ready": true, "pid": std::process::id(), "ganesha_pid": pid, "export": export, "root": root
        }))?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    let ended = tokio::select! {
        () = told.come() => Ok(()),
        failed = serving => failed,
        never = portmapper::answer() => match never? {},
    };
    // An error such as ESRCH: it ended by itself, and its log says why.
    let _ = ganesha.start_kill();
    let status = ganesha.wait().await.context("cannot wait for ganesha")?;
    let said = || foreign::last_lines(&std::fs::read_to_string(&log).unwrap_or_default());
    ended.with_context(|| format!("{PROGRAM} ({status}): {}", said()))
}

fn start(program: &Path, directory: &Path, config: &Path, log: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    let pid_file = directory.join("ganesha.pid");
    let options = [("-f", config), ("-L", log), ("-p", &pid_file)];
    command.arg("-F").args(options.iter().flat_map(|(option, path)| [OsStr::new(*option), path.as_os_str()]));
    command.current_dir(directory);
    foreign::spawn(command, &directory.join("ganesha.out"))
}

/// NFSv3 over TCP only; without lock manager, quota and grace period.
fn configuration(export: &Path, access: &str) -> anyhow::Result<String> {
    let path = std::str::from_utf8(export.as_os_str().as_bytes()).context("a path that is not UTF-8")?;
    ensure!(!path.contains(['"', '\\', '\n']), "ganesha's configuration cannot hold the path {path}");
    let mut text = String::new();
    writeln!(
        text,
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Enable_NLM = false; \
         Enable_RQUOTA = false; Enable_UDP = false; }}"
    )?;
    writeln!(text, "NFS_KRB5 {{ Active_krb5 = false; }}")?;
    // Without getpwnam(3) it would need the id mapper's configuration and plug-ins, which only NFSv4 uses.
    writeln!(text, "NFSv4 {{ Graceless = true; UseGetpwnam = true; }}")?;
    writeln!(
        text,
        "EXPORT {{ Export_Id = 1; Path = \"{path}\"; Pseudo = /tree; Protocols = 3; Transports = TCP; Access_Type = {access}; \
         Squash = No_Root_Squash; SecType = none, sys; FSAL {{ Name = VFS; }} }}"
    )?;
    Ok(text)
}

/// Makes a client's first calls over loopback until they succeed; returns the root's handle.
async fn wait_until_it_serves(export: &Path) -> anyhow::Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT));
    let look = async {
        let mut looks = tokio::time::interval(READY_LOOK);
        loop {
            looks.tick().await;
            if let Ok(root) = walk::first_calls(address, export) {
                return root;
            }
        }
    };
    let late = || format!("it did not serve within {} s", READY_DEADLINE.as_secs());
    tokio::time::timeout(READY_DEADLINE, look).await.with_context(late)
}
