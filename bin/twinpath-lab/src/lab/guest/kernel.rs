//! The guest's kernel: from a Debian package, which is fetched and unpacked but never installed, or from a directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tokio::process::Command;

use super::tools;

/// A kernel image and its modules.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) release: String,
    root: PathBuf,
}

/// Finds what was asked for: a directory with `boot` and `lib/modules`, a `.deb`, or the name of a package.
pub(super) async fn find(asked: &str, directory: &Path) -> anyhow::Result<Kernel> {
    let path = Path::new(asked);
    if path.is_dir() {
        return Kernel::within(path);
    }
    let package = if asked.ends_with(".deb") {
        std::fs::canonicalize(path).with_context(|| format!("cannot find {asked}"))?
    } else {
        download(asked, directory).await?
    };
    let root = directory.join("kernel");
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").args([&package, &root]);
    tools::run(unpack, "dpkg", directory).await?;
    Kernel::within(&root)
}

/// Fetches the package with the kernel itself, as apt on this machine would, into `directory`.
async fn download(package: &str, directory: &Path) -> anyhow::Result<PathBuf> {
    let mut depends = Command::new("apt-cache");
    depends.args(["depends", "--important", package]);
    let listed = tools::run(depends, "apt", directory).await.with_context(|| {
        format!(
            "no kernel {package}: --guest=KERNEL takes a Debian package that `apt-get update` has made known, a .deb file, or a \
             directory with boot and lib/modules"
        )
    })?;
    let package = needed_image(&listed).unwrap_or_else(|| package.to_owned());
    let mut fetch = Command::new("apt-get");
    // As the user that apt would become it could not write here.
    fetch.args(["-q", "-o", "APT::Sandbox::User=root", "download", &package]);
    tools::run(fetch, "apt", directory)
        .await
        .context("cannot fetch the kernel: are the package lists fresh (apt-get update)?")?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let mut found = std::fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    found.find(is_package).with_context(|| format!("apt-get download {package} left no .deb"))
}

/// The image that a package which only stands for the newest one depends on.
pub(super) fn needed_image(depends: &str) -> Option<String> {
    let needed = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    needed.map(str::trim).find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

impl Kernel {
    fn within(root: &Path) -> anyhow::Result<Self> {
        let boot = root.join("boot");
        let entries = std::fs::read_dir(&boot).with_context(|| format!("no kernel in {}", root.display()))?;
        let named = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            Some((entry.path(), name.strip_prefix("vmlinuz-")?.to_owned()))
        };
        let mut images: Vec<_> = entries.flatten().filter_map(named).collect();
        let (Some((image, release)), true) = (images.pop(), images.is_empty()) else {
            bail!(
                "{} should hold exactly one vmlinuz-RELEASE: unpack one kernel package there",
                boot.display()
            );
        };
        Ok(Self { image, release, root: root.to_owned() })
    }

    /// Those of `wanted` that this kernel has as modules, and what they need, in the order of loading. The others are taken to be
    /// part of the kernel.
    pub(super) async fn modules(&self, wanted: &[&str]) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let mut files = BTreeMap::new();
        list(&self.root.join("lib/modules").join(&self.release).join("kernel"), &mut files);
        let mut known: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut unread: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        while let Some(name) = unread.pop() {
            let Some(path) = files.get(&name).filter(|_| !known.contains_key(&name)) else { continue };
            let bytes = tools::decompressed(path).await?;
            unread.extend(needs(&bytes));
            known.insert(name, bytes);
        }
        let order = loading_order(wanted, &known);
        Ok(order.into_iter().filter_map(|name| known.remove_entry(&name)).collect())
    }
}

/// All modules below a directory by their names, which have underscores where files may have hyphens.
fn list(directory: &Path, files: &mut BTreeMap<String, PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, files);
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str()).and_then(module_name) {
            files.insert(name, path);
        }
    }
}

/// `virtio-rng.ko.xz` is the module virtio_rng.
pub(super) fn module_name(file: &str) -> Option<String> {
    let (name, compression) = file.split_once(".ko")?;
    matches!(compression, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// What a module says that it needs: `depends=a,b` in its section `.modinfo`, between NULs.
pub(super) fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// Each module after all that it needs.
pub(super) fn loading_order(wanted: &[&str], known: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    fn visit(name: &str, known: &BTreeMap<String, Vec<u8>>, seen: &mut Vec<String>, order: &mut Vec<String>) {
        let Some(bytes) = known.get(name).filter(|_| !seen.iter().any(|known| known == name)) else { return };
        seen.push(name.to_owned());
        needs(bytes).iter().for_each(|needed| visit(needed, known, seen, order));
        order.push(name.to_owned());
    }
    let (mut seen, mut order) = (Vec::new(), Vec::new());
    wanted.iter().for_each(|name| visit(name, known, &mut seen, &mut order));
    order
}
