//! Finds the file of the library that `twinpath run` loads into unmodified programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The library's file name; it is beside this program or where `make install` puts it.
const LIBRARY: &str = "libtwinpath_preload.so";
const INSTALLED: &str = "../lib/twinpath";

/// The preload library, installed or beside this program.
pub(crate) fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join(INSTALLED).join(LIBRARY)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.canonicalize()?),
        None => bail!(
            "there is no {LIBRARY} in {} and none in {INSTALLED} beside it: `make install` puts it there",
            folder.display()
        ),
    }
}
