//! The state that survives the process in one network namespace, as pins in a folder of a BPF file system: the
//! maps, and the links of each interface. See `bpf/keep.h`.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use aya::EbpfLoader;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::SchedClassifierLink;
use aya::programs::{SchedClassifier, TcAttachType};
use twinpath_time::Instant;

use crate::SteerError;
use crate::detach;
use crate::keep_lease::{LEASE, LeaseWords};
use crate::offload::Sizes;

/// The maps that the next process takes over.
const MAPS: [&str; 7] = ["offloaded", "offload", "counts", "used", "passing", "ports", LEASE];

/// The pins of an interface's two links begin with these; its index follows.
const LINKS: [&str; 2] = ["in-", "out-"];

/// The folder of one network namespace.
pub(crate) struct Pins {
    folder: PathBuf,
    maps: [PathBuf; MAPS.len()],
    /// If this process continues with the remains of a former one, the end of their lease.
    adopted: Option<Instant>,
    /// The pins stay when this is dropped.
    stay: bool,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SteerError {
    move |error| SteerError::Pin { path: path.to_owned(), error: error.to_string() }
}

impl Pins {
    /// Continues with the remains of a former process in the folder, if its lease has not ended and its maps are
    /// like ours; otherwise removes them.
    pub(crate) fn open(folder: &Path, sizes: Sizes, now: Instant) -> Result<Self, SteerError> {
        let left = LeaseWords::pinned(&folder.join(LEASE));
        let usable = left.filter(|lease| lease.fits(sizes)).and_then(|lease| lease.ends());
        let adopted = usable.filter(|ends| *ends > now);
        let maps = MAPS.map(|name| folder.join(name));
        let is_whole = maps.iter().all(|pin| pin.exists());
        let adopted = adopted.filter(|_| is_whole);
        if adopted.is_none() {
            remove_folder(folder).map_err(failed(folder))?;
            fs::DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(failed(folder))?;
        }
        Ok(Self { folder: folder.to_owned(), maps, adopted, stay: adopted.is_some() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The end of the adopted lease, if this process has not set its own yet.
    pub(crate) const fn adopted(&self) -> Option<Instant> {
        self.adopted
    }

    /// Makes the object load with these maps, and pins those that are not there yet.
    pub(crate) fn apply<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        for (name, path) in MAPS.into_iter().zip(&self.maps) {
            loader.map_pin_path(name, path.as_path());
        }
    }

    fn links_of(&self, ifindex: u32) -> [PathBuf; 2] {
        LINKS.map(|kind| self.folder.join(format!("{kind}{ifindex}")))
    }

    /// The links that a former process has left on an interface, if it is still the same interface.
    pub(crate) fn links(&self, ifindex: u32, interface: &str) -> Option<[SchedClassifierLink; 2]> {
        let [ingress, egress] = self.links_of(ifindex);
        let link = |path: &Path, hook| {
            let link = FdLink::from(PinnedLink::from_pin(path).ok()?);
            let own = link.info().ok()?.program_id();
            let (_, programs) = SchedClassifier::query_tcx(interface, hook).ok()?;
            // The index may belong to another interface by now.
            programs.iter().any(|program| program.id() == own).then_some(())?;
            SchedClassifierLink::try_from(link).ok()
        };
        Some([link(&ingress, TcAttachType::Ingress)?, link(&egress, TcAttachType::Egress)?])
    }

    /// Makes the links of an interface outlive the process.
    pub(crate) fn pin(&self, ifindex: u32, links: [FdLink; 2]) -> Result<[FdLink; 2], SteerError> {
        self.remove(ifindex)?;
        let [ingress, egress] = links;
        let [in_path, out_path] = self.links_of(ifindex);
        let pin = |link: FdLink, path: &Path| {
            let pinned = link.pin(path);
            let pinned = pinned.map_err(|error| failed(path)(io::Error::other(error)))?;
            Ok(FdLink::from(pinned))
        };
        Ok([pin(ingress, &in_path)?, pin(egress, &out_path)?])
    }

    /// From now on, the links of an interface end with their descriptors.
    pub(crate) fn remove(&self, ifindex: u32) -> Result<(), SteerError> {
        self.links_of(ifindex).iter().try_for_each(|path| gone(fs::remove_file(path)).map_err(failed(path)))
    }

    /// The interfaces whose links are pinned.
    pub(crate) fn interfaces(&self) -> Vec<u32> {
        interfaces(&self.folder)
    }

    /// The pins stay when this is dropped, and when the process ends otherwise.
    pub(crate) const fn stay(&mut self) {
        self.stay = true;
    }

    /// The pins are removed when this is dropped.
    pub(crate) const fn go(&mut self) {
        self.stay = false;
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.stay {
            // Pins that cannot be removed have no effect once their lease has ended.
            let _ = remove_folder(&self.folder);
        }
    }
}

fn is_link(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    LINKS.iter().any(|kind| name.starts_with(kind))
}

/// The interfaces whose links are pinned in a folder.
pub(crate) fn interfaces(folder: &Path) -> Vec<u32> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(LINKS[0])?.parse().ok()).collect()
}

/// The programs whose links are pinned in a folder.
pub(crate) fn programs(folder: &Path) -> Vec<u32> {
    let pins = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let program =
        |path: PathBuf| Some(FdLink::from(PinnedLink::from_pin(path).ok()?).info().ok()?.program_id());
    pins.filter(|path| is_link(path)).filter_map(program).collect()
}

/// Removes a folder with all its pins, if it exists. Links are removed before maps, because nothing runs without
/// them.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    let Some(entries) = gone(fs::read_dir(folder).map(Some))? else { return Ok(()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| MAPS.iter().any(|map| path.ends_with(map)));
    for path in &paths {
        if is_link(path) {
            // If the kernel refuses here, it detaches later, because the pin is removed.
            let _ = detach::pinned(path);
        }
        gone(fs::remove_file(path))?;
    }
    gone(fs::remove_dir(folder))
}

/// A missing file is not an error.
fn gone<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        result => result,
    }
}
