//! The secret that signs file handles, kept across restarts.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use twinpath_nfs::HandleSecret;
use twinpath_sys::TrustedDir;
use twinpath_sys::trusted_dir::TrustError;

/// The file's name in the state directory.
const NAME: &str = "nfs-handles";
/// Length of the secret, bytes.
const LEN: usize = 16;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The directory or the file is not trusted, or cannot be opened.
    #[error("the secret that signs file handles: {0}; --state-directory names another place")]
    Trust(#[from] TrustError),
    /// It cannot be read or written.
    #[error("the secret that signs file handles, {}: {error}; --state-directory names another place", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It has another length.
    #[error(
        "{} has {len} bytes, and not the {LEN} of the secret that signs file handles: remove it, and clients mount again",
        path.display()
    )]
    Len {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: usize,
    },
}

/// The secret in a state directory. If there is none, one is made: the directory with mode 0755, the file with mode
/// 0600. It appears whole or not at all, and is on the disk before the first handle is signed.
///
/// # Errors
/// [`SecretError`].
pub fn handle_secret(directory: &Path) -> Result<HandleSecret, SecretError> {
    let path = directory.join(NAME);
    let failed = |error| SecretError::Io { path: path.clone(), error };
    let state = TrustedDir::make(directory)?;
    if state.stat(NAME)?.is_none() {
        let new = format!("{NAME}.{}", std::process::id());
        let mut secret = [0; LEN];
        File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut secret)).map_err(failed)?;
        let mut file = state.file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&secret).and_then(|()| file.sync_all()).map_err(failed)?;
        // Another instance may have made one meanwhile: the first one stays.
        match rustix::fs::linkat(state.fd(), &new, state.fd(), NAME, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        state.remove(&new).and_then(|()| state.sync()).map_err(failed)?;
    }
    let mut bytes = Vec::new();
    state.file(NAME, OFlags::RDONLY)?.read_to_end(&mut bytes).map_err(failed)?;
    match bytes.as_slice().try_into() {
        Ok(secret) => Ok(HandleSecret::new(secret)),
        Err(_) => Err(SecretError::Len { path, len: bytes.len() }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use twinpath_nfs::{FileId, FileKey};

    use super::*;

    #[test]
    fn the_secret_stays_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("state");
        let id = FileId { export: 1, key: FileKey::new(1, b"key").expect("short") };
        let handle = handle_secret(&directory).expect("made").handle(&id);
        let again = handle_secret(&directory).expect("read");
        assert_eq!(again.open(handle.bytes()), Ok(id));
        let path = directory.join(NAME);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1, "nothing is left of its making");

        fs::write(&path, "short").expect("written");
        let error = handle_secret(&directory).expect_err("too short").to_string();
        assert!(error.contains("has 5 bytes"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).expect("set");
        let error = handle_secret(&directory).expect_err("others write to it").to_string();
        assert!(error.contains("can be written by others"), "{error}");
        fs::remove_file(&path).expect("there");
        assert!(handle_secret(&directory).expect("made").open(handle.bytes()).is_err(), "another secret");
    }
}
