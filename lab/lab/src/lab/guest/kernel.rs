//! The guest's kernel, from a directory or from a Debian package, which is downloaded and unpacked but not installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::packages::{self, Places, Source};
use super::tools;
use anyhow::{Context, bail};

/// A kernel image and its modules.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) release: String,
    root: PathBuf,
}

/// Finds the requested kernel: a directory with `boot` and `lib/modules`, a `.deb`, or the name of a package.
pub(super) async fn find(asked: &str, places: &Places<'_>) -> anyhow::Result<Kernel> {
    let path = Path::new(asked);
    if path.is_dir() {
        return Kernel::within(path);
    }
    let directory = places.temporary;
    if asked.ends_with(".deb") {
        let root = directory.join("kernel");
        let package = std::fs::canonicalize(path).with_context(|| format!("cannot find {asked}"))?;
        packages::extract(&package, &root).await?;
        return Kernel::within(&root);
    }
    let root = places.of(&format!("kernel-{}", asked.replace('/', "-")));
    if root.exists() {
        return Kernel::within(&root);
    }
    let (source, package) = Source::of(asked, directory).await?;
    let listed = source.depends(package, directory).await.with_context(|| {
        format!(
            "no kernel {asked}: --guest=KERNEL takes a Debian package that `apt-get update` has made known, one of its \
             backports as PACKAGE/backports, a .deb file, or a directory with boot and lib/modules"
        )
    })?;
    let image = needed_image(&listed).unwrap_or_else(|| package.to_owned());
    source.unpack(&[&image], &root).await?;
    Kernel::within(&root)
}

/// The package with the image, on which a metapackage for the newest kernel depends.
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

    /// The members of `wanted` that this kernel has as modules, with their dependencies, in the order of loading. The
    /// others are assumed to be part of the kernel.
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

/// All modules below a directory by their names, which have underscores where file names may have hyphens.
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

/// The module's name of a file: `virtio-rng.ko.xz` is virtio_rng.
pub(super) fn module_name(file: &str) -> Option<String> {
    let (name, compression) = file.split_once(".ko")?;
    matches!(compression, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// A module's dependencies: `depends=a,b` in its section `.modinfo`, between NULs.
pub(super) fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// Sorts modules so that each comes after its dependencies.
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
