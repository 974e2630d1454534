//! Private mounts that hide directories of the host.

#![allow(unsafe_code, reason = "unshare(2) of the calling thread")]

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, fsconfig_create, fsmount,
    fsopen, mount, mount_change,
};
use rustix::thread::UnshareFlags;

/// What can fail while hiding the host's directories.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused a new mount namespace.
    #[error("cannot create a mount namespace ({0}): this needs CAP_SYS_ADMIN, so run as root or with sudo")]
    Unshare(Errno),
    /// The mounts could not be made private.
    #[error("cannot make the mounts private ({0}): nothing was mounted")]
    Private(Errno),
    /// The path contains a zero byte.
    #[error("{}: a path with a zero byte cannot be mounted on", .0.display())]
    Path(PathBuf),
    /// A private /sys could not be mounted.
    #[error("cannot make a /sys of our own ({0}): this needs CAP_SYS_ADMIN, so run as root or with sudo")]
    Sysfs(Errno),
    /// An empty file system could not be mounted.
    #[error("cannot mount an empty tmpfs on {} ({error}): does the directory exist?", path.display())]
    Tmpfs {
        /// The mount point.
        path: PathBuf,
        /// What mount(2) returned.
        error: Errno,
    },
}

/// Gives the calling thread, and what it starts from now on, an empty private tmpfs on each of `directories`. The
/// host sees nothing of it, and it ends with the last process inside.
///
/// # Errors
/// [`MountError`]; the thread may then be in a private mount namespace with some of the mounts made.
pub fn hide(directories: &[&Path]) -> Result<(), MountError> {
    // SAFETY: only the mounts of this thread are unshared (and with them its working directory, as always with
    // CLONE_NEWNS). What makes `unshare` unsafe is CLONE_FILES, and that flag is not set.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(MountError::Unshare)?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(MountError::Private)?;
    for path in directories {
        let target =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| MountError::Path(path.to_path_buf()))?;
        mount("tmpfs", &target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
            .map_err(|error| MountError::Tmpfs { path: path.to_path_buf(), error })?;
    }
    Ok(())
}

/// A /sys that shows the devices of the calling thread's network namespace, whatever is mounted at /sys. It is
/// mounted nowhere: it is reached only through its descriptor, below `/proc/self/fd/N`, and ends with it.
///
/// # Errors
/// [`MountError::Sysfs`] without CAP_SYS_ADMIN.
pub fn own_sysfs() -> Result<OwnedFd, MountError> {
    let made = || {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    made().map_err(MountError::Sysfs)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn hidden_directories_stay_visible_to_other_threads() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("twinpath-mounts-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("ours"), "kept").unwrap();
        let inside = std::thread::scope(|scope| {
            let hidden = scope.spawn(|| {
                hide(&[&directory]).unwrap();
                std::fs::write(directory.join("theirs"), "gone").unwrap();
                directory.join("ours").exists()
            });
            hidden.join().unwrap()
        });
        assert!(!inside);
        assert_eq!(std::fs::read_to_string(directory.join("ours")).unwrap(), "kept");
        assert!(!directory.join("theirs").exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_sysfs_of_our_own_shows_the_namespace_that_we_are_in() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let names = crate::Namespace::new().unwrap().run(|| {
            let sys = own_sysfs().unwrap();
            let devices = format!("/proc/self/fd/{}/class/net", sys.as_raw_fd());
            std::fs::read_dir(devices).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        });
        // Some kernels create ifb devices in every namespace.
        let names: Vec<_> =
            names.unwrap().into_iter().filter(|name| !name.to_string_lossy().starts_with("ifb")).collect();
        assert_eq!(names, ["lo"]);
    }

    #[test]
    fn a_missing_directory_is_named() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let missing = Path::new("/no-such-directory-of-twinpath");
        let result = std::thread::spawn(move || hide(&[missing])).join().unwrap();
        assert!(matches!(result, Err(MountError::Tmpfs { path, error: Errno::NOENT }) if path == missing));
    }
}
