//! Programs of other projects: those whose packages `make lab` has unpacked beside the labs, else those installed here.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Directories of programs that a user's PATH may lack.
const ALSO_IN: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/sbin"];
/// The places of libraries in a package.
const LIBRARIES_IN: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// The path of an installed program, in PATH or in directories that a user's PATH may lack.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(ALSO_IN.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

/// Packages that `make lab` unpacks and does not install.
pub(crate) struct Packages {
    /// Where they are unpacked, beside the directory of this program.
    pub(crate) unpacked: &'static str,
    /// The places of programs in a package.
    pub(crate) programs_in: &'static [&'static str],
    /// The commands that fetch them.
    pub(crate) fetched_by: &'static str,
}

/// A program of a package.
pub(crate) struct Found {
    pub(crate) file: PathBuf,
    /// The directories of the libraries that it needs, if it is not installed; the first one is that of its package.
    pub(crate) libraries: Option<[PathBuf; 2]>,
}

impl Packages {
    /// The roots to look in, each with whether packages are unpacked there.
    fn roots(&self) -> impl Iterator<Item = (PathBuf, bool)> {
        let own = std::env::current_exe().ok();
        let unpacked = own.and_then(|own| Some(own.parent()?.parent()?.join(self.unpacked)));
        unpacked.map(|unpacked| (unpacked, true)).into_iter().chain([(PathBuf::from("/"), false)])
    }

    fn missing(&self, what: &str) -> String {
        format!("{what} was not found: run {}, which fetches its package", self.fetched_by)
    }

    /// A file of a package, by its path in there.
    pub(crate) fn file(&self, path: &str) -> anyhow::Result<PathBuf> {
        let file = self.roots().map(|(root, _)| root.join(path)).find(|file| file.exists());
        file.with_context(|| self.missing(&format!("/{path}")))
    }

    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Found> {
        let in_root = |(root, is_unpacked): (PathBuf, bool)| {
            let files = self.programs_in.iter().map(|place| root.join(place).join(name));
            let file = files.into_iter().find(|file| file.is_file())?;
            let libraries = is_unpacked.then(|| LIBRARIES_IN.map(|place| root.join(Path::new(place))));
            Some(Found { file, libraries })
        };
        self.roots().find_map(in_root).with_context(|| self.missing(name))
    }
}

impl Found {
    /// What the loader's variable for libraries has to be, if it has to be set.
    pub(crate) fn library_path(&self) -> Option<std::ffi::OsString> {
        self.libraries.as_ref().and_then(|libraries| std::env::join_paths(libraries).ok())
    }
}
