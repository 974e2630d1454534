//! Finds the file of the library that `twinpath run` loads into unmodified programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The file names of the library and of the one that it loads; they are beside this program or where `make install` puts them.
const LIBRARY: &str = "libtwinpath_preloader.so";
const LOADED: &str = "libtwinpath_preload.so";
const INSTALLED: &str = "../lib/twinpath";

/// The preload library, installed or beside this program.
pub(crate) fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join(INSTALLED).join(LIBRARY)];
    let is_there = |place: &&PathBuf| place.is_file() && place.with_file_name(LOADED).is_file();
    match places.iter().find(is_there) {
        Some(place) => Ok(place.canonicalize()?),
        None => bail!(
            "there is no {LIBRARY} with {LOADED} in {} and none in {INSTALLED} beside it: `make install` puts them there",
            folder.display()
        ),
    }
}
