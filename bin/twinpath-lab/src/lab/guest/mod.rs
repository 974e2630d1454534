//! `twinpath-lab NAME --guest`: the same lab inside a small virtual machine, started for it and gone with it.
//!
//! It is part of the lab, not of `xtask`: what the guest runs is this very program, as its first one, and the product
//! beside it, so whoever has these two and qemu can repeat it. Nothing is installed and no network is given to the guest; what it measured comes out
//! through one virtio port. It never measures anything of the host.

mod initramfs;
pub(super) mod inside;
mod kernel;
mod machine;
mod message;
mod tools;
mod watch;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

use self::initramfs::Entry;
use self::kernel::Kernel;
use self::machine::{Accelerator, Machine};
use self::message::Order;
use self::watch::{Collected, End, Limits};
use super::model::Lab;
use super::programs::Programs;
use super::progress::Progress;
use super::{Args, INTERRUPTED, NOT_MEASURED, TERMINATED, html_path, session, write};

/// The Debian package whose kernel is booted unless another is asked for.
pub(super) const KERNEL: &str = "linux-image-cloud-amd64";

/// Rounds of a lab take at most this long, its start and what precedes the rounds included: a limit for what hangs.
const ROUND_MAX: Duration = Duration::from_secs(240);
/// Rounds of a lab that was not told how many to run, at most.
const ROUNDS_MAX: u32 = 30;
/// How much slower a guest may be whose instructions are emulated.
const EMULATED: u32 = 4;

/// How it ended.
enum Ended {
    Collected(Collected),
    Signal(u8),
}

/// Runs `lab` in a guest with the kernel `asked` for; writes its report where it belongs.
pub(super) fn run(lab: &Lab, args: &Args, asked: &str) -> anyhow::Result<ExitCode> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "--guest runs this binary in an x86-64 machine, and it is built for another"
    );
    let directory = session::run_dir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start an event loop")?;
    let progress = Progress::new();
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(Ended::Signal(INTERRUPTED)),
            _ = terminate.recv() => Ok(Ended::Signal(TERMINATED)),
            collected = collect(args, asked, directory.path(), &progress) => collected.map(Ended::Collected),
        }
    });
    drop(runtime);
    progress.finish();
    directory.close().context("cannot remove the guest's files")?;
    match ended {
        Ok(Ended::Collected(collected)) => finish(lab, args, collected),
        Ok(Ended::Signal(code)) => {
            eprintln!("twinpath-lab: stopped; the guest and its files are gone");
            Ok(ExitCode::from(code))
        }
        Err(error) => {
            eprintln!("twinpath-lab: lab {} in a guest: {error:#}", lab.name);
            Ok(ExitCode::from(if args.check { NOT_MEASURED } else { 1 }))
        }
    }
}

/// Boots by KVM where that works, else by emulation, and waits for all the guest has to say.
async fn collect(
    args: &Args,
    asked: &str,
    directory: &Path,
    progress: &Progress,
) -> anyhow::Result<Collected> {
    let qemu = machine::version().await?;
    progress.line(&format!("guest: getting the kernel {asked}"));
    let kernel = kernel::find(asked, directory).await?;
    let contents = Contents::gather(&kernel).await?;
    let mut without_kvm = machine::kvm_obstacle();
    if without_kvm.is_none() {
        match attempt(args, &kernel, &contents, directory, &Accelerator::Kvm, &qemu, progress).await? {
            End::Collected(collected) => return Ok(collected),
            End::NotStarted(reason) => without_kvm = Some(reason),
        }
    }
    let emulated = Accelerator::Emulated { because: without_kvm.unwrap_or_default() };
    match attempt(args, &kernel, &contents, directory, &emulated, &qemu, progress).await? {
        // Its times mean nothing, so no target is missed.
        End::Collected(collected) if args.check => Ok(Collected { code: NOT_MEASURED, ..collected }),
        End::Collected(collected) => Ok(collected),
        End::NotStarted(reason) => bail!("the guest did not start: {reason}"),
    }
}

/// What every guest has inside, whatever runs it.
struct Contents {
    programs: Programs,
    libraries: Vec<PathBuf>,
    /// Name and bytes, in the order of loading.
    modules: Vec<(String, Vec<u8>)>,
}

impl Contents {
    async fn gather(kernel: &Kernel) -> anyhow::Result<Self> {
        let programs = Programs::found()?;
        let mut libraries = tools::libraries(&programs.own).await?;
        libraries.extend(tools::libraries(&programs.product).await?);
        libraries.sort();
        libraries.dedup();
        Ok(Self { programs, libraries, modules: kernel.modules(inside::MODULES).await? })
    }

    /// The guest's first file system, into `path`.
    fn write(&self, order: &Order, path: &Path) -> anyhow::Result<()> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut archive = initramfs::Archive::new(BufWriter::new(file));
        let mut put = |entry: Entry<'_>| {
            archive.add(&entry).with_context(|| format!("cannot write {}", path.display()))
        };
        for directory in inside::DIRECTORIES {
            put(Entry::Directory(directory))?;
        }
        // The kernel opens the one for its first process, and Rust's start the other, before anything is mounted.
        put(Entry::Device { name: "dev/console", major: 5, minor: 1 })?;
        put(Entry::Device { name: "dev/null", major: 1, minor: 3 })?;
        let read =
            |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        put(Entry::Program { name: "init", bytes: &read(&self.programs.own)? })?;
        // Beside the first one, where that looks for it.
        put(Entry::Program { name: "twinpath", bytes: &read(&self.programs.product)? })?;
        for library in &self.libraries {
            let name = library.to_str().context("a library's path is not UTF-8")?.trim_start_matches('/');
            put(Entry::Program { name, bytes: &read(library)? })?;
        }
        for (name, bytes) in &self.modules {
            put(Entry::File { name: &inside::module_path(name)[1..], bytes })?;
        }
        let order = serde_json::to_vec(order)?;
        put(Entry::File { name: &inside::ORDER[1..], bytes: &order })?;
        archive.finish().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// One boot, to the end of the lab inside or to the reason why it did not come that far.
async fn attempt(
    args: &Args,
    kernel: &Kernel,
    contents: &Contents,
    directory: &Path,
    accelerator: &Accelerator,
    qemu: &str,
    progress: &Progress,
) -> anyhow::Result<End> {
    let cpus = session::cpus()?;
    let initramfs = directory.join("initramfs");
    let order = Order {
        modules: contents.modules.iter().map(|(name, _)| name.clone()).collect(),
        lab: lab_args(args, accelerator),
        notes: vec![machine::note(accelerator, qemu, cpus)],
    };
    contents.write(&order, &initramfs)?;
    progress.line(&format!("guest: Linux {}, {}", kernel.release, machine::described(accelerator)));
    let machine = Machine {
        accelerator,
        kernel: &kernel.image,
        initramfs: &initramfs,
        console: &directory.join("console"),
    };
    let limits = Limits { start: machine.start_limit(), end: longest(args, accelerator) };
    watch::run(&machine, cpus, &limits, progress).await
}

/// When a lab that still runs must hang.
fn longest(args: &Args, accelerator: &Accelerator) -> Duration {
    let rounds = args.repeat.map_or(ROUNDS_MAX, u32::from).max(if args.check { ROUNDS_MAX } else { 1 });
    let slower = if matches!(accelerator, Accelerator::Kvm) { 1 } else { EMULATED };
    ROUND_MAX * (rounds + 1) * slower
}

/// The command line of the lab inside. What means nothing need not be measured twice.
fn lab_args(args: &Args, accelerator: &Accelerator) -> Vec<String> {
    let Args { name, json: _, html: _, repeat, files, seed, only, check, guest: _, notes } = args;
    let once = !check && matches!(accelerator, Accelerator::Emulated { .. });
    let repeat = repeat.or(once.then_some(1));
    let mut line = vec![name.clone()];
    let mut option = |name: &str, value: Option<String>| {
        line.extend(value.map(|value| format!("--{name}={value}")));
    };
    option("repeat", repeat.map(|rounds| rounds.to_string()));
    option("files", files.map(|files| files.to_string()));
    option("seed", seed.map(|seed| seed.to_string()));
    option("only", (!only.is_empty()).then(|| only.join(",")));
    notes.iter().for_each(|note| option("note", Some(note.clone())));
    if *check {
        line.push("--check".to_owned());
    }
    line
}

/// Prints and writes what came out, as the lab itself would have.
fn finish(lab: &Lab, args: &Args, collected: Collected) -> anyhow::Result<ExitCode> {
    let Collected { printed, json, html, code } = collected;
    print!("{printed}");
    if let (Some(path), Some(text)) = (&args.json, json) {
        write(path, &text)?;
    }
    if let Some(text) = html {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let path = html_path(args, &format!("{}-guest", lab.name), now)?;
        write(&path, &text)?;
        println!("report: {}", std::fs::canonicalize(&path).unwrap_or(path).display());
    }
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests;
