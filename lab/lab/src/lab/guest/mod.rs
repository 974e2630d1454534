//! Runs a lab inside a small virtual machine that is started for it: `twinpath-lab NAME --guest`.
//!
//! It is part of the lab, not of `xtask`: the guest runs this program as init, with the product beside it, so that
//! anyone with these two and qemu can repeat it. Nothing is installed, and the guest has no network; its results come
//! out through one virtio port. It measures nothing of the host.

mod initramfs;
pub(super) mod inside;
mod kernel;
mod machine;
mod message;
mod nic;
mod packages;
mod qemu;
mod tools;
mod watch;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};

use self::initramfs::Entry;
use self::kernel::Kernel;
use self::machine::{Accelerator, Machine};
use self::message::Order;
use self::nic::FUNCTION_DRIVER;
pub(super) use self::nic::Nic;
use self::packages::Places;
use self::qemu::Qemu;
use self::watch::{Collected, End, WaitLimits};
use super::model::RatioSpec;
use super::programs::Programs;
use super::progress::Progress;
use super::session::Lab;
use super::session::Selection;
use super::{Args, NOT_MEASURED, html_path, session, until_told, write};
use crate::foreign;

/// The Debian package whose kernel is booted unless another is asked for, and what there is where it has no backport.
pub(super) const KERNEL: &str = "linux-image-cloud-amd64/backports";
const OLDER_KERNEL: &str = "linux-image-cloud-amd64";

/// Rounds of a lab take at most this long, its start and what precedes the rounds included: a limit for what hangs.
const ROUND_MAX: Duration = Duration::from_secs(240);
/// Rounds of a lab that was not told how many to run, at most.
const ROUNDS_MAX: u32 = 30;
/// How much slower a guest may be whose instructions are emulated.
const EMULATED: u32 = 4;

/// The directory for programs in the guest.
const PROGRAMS: &str = "/usr/bin";

/// The result of a boot.
enum Ended {
    Collected(Collected),
    /// The guest had started, and did not complete.
    Broken(anyhow::Error),
}

/// Runs `lab` in a guest with the kernel `asked` for; writes its report to the requested place.
pub(super) fn run(lab: &Lab, args: &Args, selection: &Selection, asked: &str) -> anyhow::Result<ExitCode> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "--guest runs this binary in an x86-64 machine, and it is built for another"
    );
    let directory = session::run_dir()?;
    let asked = LabRequest { lab, args, selection, kernel: asked };
    let progress = Progress::new();
    let ended = until_told(collect(&asked, directory.path(), &progress));
    progress.finish();
    directory.close().context("cannot remove the guest's files")?;
    match ended {
        Ok(Ok(Ended::Collected(collected))) => finish(lab, args, collected),
        Ok(Err(code)) => {
            eprintln!("twinpath-lab: stopped; the guest and its files are gone");
            Ok(ExitCode::from(code))
        }
        Ok(Ok(Ended::Broken(error))) => {
            eprintln!("twinpath-lab: lab {} in a guest: {error:#}", lab.name);
            // A guest that fails the requirements that apply there counts as a miss, not as unavailable.
            let missed = asked.counted() || !args.check;
            Ok(ExitCode::from(if missed { 1 } else { NOT_MEASURED }))
        }
        Err(error) => {
            eprintln!("twinpath-lab: lab {} in a guest: {error:#}", lab.name);
            Ok(ExitCode::from(if args.check { NOT_MEASURED } else { 1 }))
        }
    }
}

/// The request for a guest.
#[derive(Clone, Copy)]
struct LabRequest<'a> {
    lab: &'a Lab,
    args: &'a Args,
    selection: &'a Selection,
    kernel: &'a str,
}

impl LabRequest<'_> {
    /// Whether all selected requirements apply under counted instructions as well.
    fn counted(&self) -> bool {
        let all = self.selection.rows.iter().all(|row| self.lab.is_in_guest(row));
        self.lab.table.rows.iter().any(|row| row.in_guest) && (self.args.only.is_empty() || all)
    }

    /// The ids to measure: the requested ones, or all, or all that apply under counted instructions.
    fn only(&self, accelerator: &Accelerator) -> Vec<String> {
        if !self.args.only.is_empty() || !accelerator.counts() {
            return self.args.only.clone();
        }
        let holds = |ratio: &&RatioSpec| ratio.formula.rows().iter().all(|row| self.lab.is_in_guest(row));
        self.lab.table.ratios.iter().filter(holds).map(|ratio| ratio.id.to_owned()).collect()
    }
}

/// Boots with KVM if that works, otherwise with emulation, and collects all messages of the guest.
async fn collect(asked: &LabRequest<'_>, directory: &Path, progress: &Progress) -> anyhow::Result<Ended> {
    // Programs that unpack and run what is kept there work in other directories.
    let kept = std::path::absolute(asked.args.keep.as_deref().unwrap_or(directory))?;
    let places = Places { temporary: directory, kept: &kept };
    std::fs::create_dir_all(&kept)
        .with_context(|| format!("cannot make the directory {}", kept.display()))?;
    let qemu = Qemu::installed().await?;
    let kernel = kernel(asked.kernel, &places, progress).await?;
    let contents = Contents::collect(&kernel, asked).await?;
    let qemu = qemu.at_least(asked.args.nic.map_or(0, Nic::oldest_qemu), &places).await?;
    let mut without_kvm = machine::kvm_obstacle();
    if without_kvm.is_none() {
        match attempt(asked, &kernel, &contents, directory, &Accelerator::Kvm, &qemu, progress).await? {
            End::Collected(collected) => return Ok(Ended::Collected(collected)),
            End::Broken(error) => return Ok(Ended::Broken(error)),
            End::NotStarted(reason) => without_kvm = Some(reason),
        }
    }
    let counted = asked.counted();
    let qemu = if counted { qemu.at_least(qemu::COUNTS_FROM, &places).await? } else { qemu };
    let emulated = Accelerator::Emulated { because: without_kvm.unwrap_or_default(), counted };
    match attempt(asked, &kernel, &contents, directory, &emulated, &qemu, progress).await? {
        // Its times are not meaningful, so no target is missed.
        End::Collected(collected) if asked.args.check && !asked.counted() => {
            Ok(Ended::Collected(Collected { code: NOT_MEASURED, ..collected }))
        }
        End::Collected(collected) => Ok(Ended::Collected(collected)),
        End::Broken(error) => Ok(Ended::Broken(error)),
        End::NotStarted(reason) => bail!("the guest did not start: {reason}"),
    }
}

/// The requested kernel; without a request and without a backport, the distribution's own.
async fn kernel(asked: &str, places: &Places<'_>, progress: &Progress) -> anyhow::Result<Kernel> {
    progress.line(&format!("guest: getting the kernel {asked}"));
    match kernel::find(asked, places).await {
        Err(error) if asked == KERNEL => {
            progress.line(&format!("guest: {OLDER_KERNEL} instead: {error:#}"));
            kernel::find(OLDER_KERNEL, places).await
        }
        found => found,
    }
}

/// The files of every guest.
struct Contents {
    programs: Programs,
    /// Programs, libraries and other files for the lab: their paths in the guest, and on the host, where those of
    /// libraries are the same.
    files: BTreeMap<PathBuf, PathBuf>,
    links: &'static [(&'static str, &'static str)],
    /// Name and bytes, in the order of loading.
    modules: Vec<(String, Vec<u8>)>,
}

impl Contents {
    async fn collect(kernel: &Kernel, asked: &LabRequest<'_>) -> anyhow::Result<Self> {
        let lab = asked.lab.in_guest;
        let programs = Programs::found()?;
        let same = |path: PathBuf| (path.clone(), path);
        let mut files: BTreeMap<_, _> =
            tools::libraries(&programs.own).await?.into_iter().map(same).collect();
        files.extend(tools::libraries(&programs.product).await?.into_iter().map(same));
        for (name, program) in lab.programs.iter().filter_map(|name| Some((name, foreign::installed(name)?)))
        {
            files.extend(tools::libraries(&program).await?.into_iter().map(same));
            files.insert(Path::new(PROGRAMS).join(name), program);
        }
        files.extend(lab.files.iter().map(PathBuf::from).filter(|path| path.exists()).map(same));
        let modules: Vec<_> = inside::MODULES.iter().chain(lab.modules).copied().collect();
        let drivers = asked.args.nic.map_or(&[][..], Nic::drivers);
        let modules: Vec<_> = modules.into_iter().chain(drivers.iter().copied()).collect();
        Ok(Self { programs, files, links: lab.links, modules: kernel.modules(&modules).await? })
    }

    /// Writes the guest's first file system to `path`.
    fn write(&self, order: &Order, path: &Path) -> anyhow::Result<()> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut archive = initramfs::Archive::new(BufWriter::new(file));
        let mut put = |entry: Entry<'_>| {
            archive.add(&entry).with_context(|| format!("cannot write {}", path.display()))
        };
        for directory in inside::DIRECTORIES {
            put(Entry::Directory(directory))?;
        }
        // The kernel opens the first one for init, and Rust's runtime the other, before anything is mounted.
        put(Entry::Device { name: "dev/console", major: 5, minor: 1 })?;
        put(Entry::Device { name: "dev/null", major: 1, minor: 3 })?;
        let read =
            |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        put(Entry::Program { name: "init", bytes: &read(&self.programs.own)? })?;
        // Beside the first one, where the lab looks for it.
        put(Entry::Program { name: "twinpath", bytes: &read(&self.programs.product)? })?;
        for (inside, here) in &self.files {
            let name = inside.to_str().context("a path that is not UTF-8")?.trim_start_matches('/');
            put(Entry::Program { name, bytes: &read(here)? })?;
        }
        for (name, to) in self.links {
            put(Entry::Link { name: name.trim_start_matches('/'), to })?;
        }
        for (name, bytes) in &self.modules {
            put(Entry::File { name: &inside::module_path(name)[1..], bytes })?;
        }
        let order = serde_json::to_vec(order)?;
        put(Entry::File { name: &inside::ORDER[1..], bytes: &order })?;
        archive.finish().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// One boot, up to the end of the lab or the reason for a failure.
async fn attempt(
    asked: &LabRequest<'_>,
    kernel: &Kernel,
    contents: &Contents,
    directory: &Path,
    accelerator: &Accelerator,
    qemu: &Qemu,
    progress: &Progress,
) -> anyhow::Result<End> {
    let cpus = session::cpus()?;
    let initramfs = directory.join("initramfs");
    let modules = contents.modules.iter().map(|(name, _)| name.clone());
    let (function_modules, modules) = modules.partition(|name| name == FUNCTION_DRIVER);
    let order = Order {
        modules,
        function_modules,
        divided: asked.args.nic.map_or(&[][..], Nic::divided).iter().map(ToString::to_string).collect(),
        lab: lab_args(asked, accelerator),
        notes: vec![machine::note(accelerator, &qemu.version, cpus)],
    };
    contents.write(&order, &initramfs)?;
    progress.line(&format!("guest: Linux {}, {}", kernel.release, machine::described(accelerator)));
    let machine = Machine {
        accelerator,
        qemu,
        nic: asked.args.nic,
        kernel: &kernel.image,
        initramfs: &initramfs,
        console: &directory.join("console"),
    };
    let limits = WaitLimits { start: machine.start_limit(), end: longest(asked.args, accelerator) };
    watch::run(&machine, cpus, &limits, progress).await
}

/// The time after which a lab that still runs must have hung.
fn longest(args: &Args, accelerator: &Accelerator) -> Duration {
    let rounds = args.repeat.map_or(ROUNDS_MAX, u32::from).max(if args.check { ROUNDS_MAX } else { 1 });
    let slower = if matches!(accelerator, Accelerator::Kvm) { 1 } else { EMULATED };
    ROUND_MAX * (rounds + 1) * slower
}

/// The command line of the lab inside. Times without meaning are measured only once.
fn lab_args(asked: &LabRequest<'_>, accelerator: &Accelerator) -> Vec<String> {
    let Args {
        name,
        json: _,
        html: _,
        ledger: _,
        commit: _,
        repeat,
        files,
        seed,
        only: _,
        summary: _,
        check,
        guest: _,
        inside: _,
        between: _,
        keep: _,
        nic,
        notes,
    } = asked.args;
    let only = asked.only(accelerator);
    let once = !check && matches!(accelerator, Accelerator::Emulated { counted: false, .. });
    let repeat = repeat.or(once.then_some(1));
    let mut line = vec![name.clone(), "--inside".to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        line.extend(value.map(|value| format!("--{name}={value}")));
    };
    option("repeat", repeat.map(|rounds| rounds.to_string()));
    option("files", files.map(|files| files.to_string()));
    option("between", nic.map(|nic| nic.interfaces().join(",")));
    option("seed", seed.map(|seed| seed.to_string()));
    option("only", (!only.is_empty()).then(|| only.join(",")));
    notes.iter().for_each(|note| option("note", Some(note.clone())));
    if *check {
        line.push("--check".to_owned());
    }
    line
}

/// Prints and writes the results, as the lab itself would have.
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
