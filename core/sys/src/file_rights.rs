//! Acting on files with another user's rights (setfsuid(2), credentials(7)), per thread.
//!
//! The wrappers of the C library change all threads: these are the system calls. With a user other than root, the
//! kernel takes from the thread what goes past the rights of files: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
//! CAP_FOWNER, CAP_FSETID, CAP_MKNOD (`cap_task_fix_setuid` of security/commoncap.c). It does that on a change from
//! root to another user alone, so a thread acts as root between two users.
//!
//! Each change makes new credentials in the kernel, which costs more than the operation that they are for. So a thread
//! remembers what it has, and changes only what differs. As root it keeps the further groups of the user before: they
//! give root nothing that it has not.
#![allow(unsafe_code, reason = "these system calls have no safe wrapper per thread")]

use std::cell::RefCell;
use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// No user or group: setting it changes nothing, and returns the present one.
const NO_ID: u32 = u32::MAX;

/// Maximum number of further groups.
const GROUPS_MAX: usize = 32;

/// What a thread acts as.
struct Present {
    uid: u32,
    gid: u32,
    groups: [Gid; GROUPS_MAX],
    groups_len: usize,
}

thread_local! {
    /// `None`: nothing was set by this thread, or setting it failed.
    static PRESENT: RefCell<Option<Present>> = const { RefCell::new(None) };
}

/// The calling thread acts with another user's rights for as long as this lives.
#[derive(Debug)]
pub struct Acting {
    /// It is of its thread.
    thread: PhantomData<*const ()>,
}

fn set_user(uid: u32) -> u32 {
    // SAFETY: it takes a number, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) as u32 }
}

fn set_group(gid: u32) -> u32 {
    // SAFETY: it takes a number, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) as u32 }
}

/// Sets what differs from what the thread has. Without `groups` its further groups stay. The calls for users and groups
/// report no failure: what is set afterwards tells.
fn set(uid: u32, gid: u32, groups: Option<&[Gid]>) -> Result<(), Errno> {
    PRESENT.with_borrow_mut(|present| {
        let former = present.take();
        let (mut kept, mut kept_len) = ([Gid::ROOT; GROUPS_MAX], 0);
        if let Some(former) = &former {
            (kept, kept_len) = (former.groups, former.groups_len);
        }
        if let Some(groups) = groups
            && (former.is_none() || kept[..kept_len] != *groups)
        {
            kept.get_mut(..groups.len()).ok_or(Errno::INVAL)?.copy_from_slice(groups);
            kept_len = groups.len();
            rustix::thread::set_thread_groups(groups)?;
        }
        let has_group = former.as_ref().is_some_and(|former| former.gid == gid);
        let has_user = former.as_ref().is_some_and(|former| former.uid == uid);
        if !has_group {
            set_group(gid);
        }
        if !has_user {
            set_user(uid);
        }
        let is_set = (has_group || set_group(NO_ID) == gid) && (has_user || set_user(NO_ID) == uid);
        if !is_set {
            return Err(Errno::PERM);
        }
        *present = Some(Present { uid, gid, groups: kept, groups_len: kept_len });
        Ok(())
    })
}

/// The thread acts as root, with the further groups that it has; with none if they are not known.
fn set_root() -> Result<(), Errno> {
    let is_known = PRESENT.with_borrow(Option::is_some);
    set(Uid::ROOT.as_raw(), Gid::ROOT.as_raw(), if is_known { None } else { Some(&[]) })
}

/// Acts as this user, in this group and these further groups. The thread needs CAP_SETUID and CAP_SETGID.
///
/// # Errors
/// EPERM: it may not. EINVAL: 2^32 - 1 is no user or group, or there are more than 32 groups. The thread acts as root
/// then.
pub fn act_as(uid: u32, gid: u32, groups: &[u32]) -> Result<Acting, Errno> {
    if uid == NO_ID || gid == NO_ID || groups.contains(&NO_ID) {
        return Err(Errno::INVAL);
    }
    let acting = Acting { thread: PhantomData };
    set_root()?;
    let mut ids = [Gid::ROOT; GROUPS_MAX];
    let ids = ids.get_mut(..groups.len()).ok_or(Errno::INVAL)?;
    ids.iter_mut().zip(groups).for_each(|(id, group)| *id = Gid::from_raw(*group));
    set(uid, gid, Some(ids))?;
    Ok(acting)
}

impl Drop for Acting {
    /// The thread acts as root again, with what its permitted capabilities allow.
    fn drop(&mut self) {
        if set_root().is_err() {
            // The next call would run with this user's rights.
            std::process::abort();
        }
    }
}

/// Gives the calling thread a file mode creation mask and a working directory of its own, and clears the mask: files
/// get the modes that are asked for.
///
/// # Errors
/// As unshare(2).
pub fn own_mask() -> Result<(), Errno> {
    // SAFETY: what makes it unsafe is CLONE_FILES, and that flag is not set.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS)? };
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use rustix::thread::CapabilitySet;
    use twinpath_test_rig::root_or_skip;

    use super::*;
    use crate::capabilities::effective;
    use crate::file_handle;

    const PAST_RIGHTS: CapabilitySet =
        CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

    /// In a thread of its own, as the rights are the thread's.
    fn as_root(test: impl FnOnce() + Send + 'static) {
        if root_or_skip() {
            std::thread::spawn(test).join().expect("the thread ends");
        }
    }

    #[test]
    fn a_user_has_its_own_rights_and_no_more() {
        as_root(|| {
            let dir = tempfile::tempdir().expect("a folder");
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("set");
            let secret = dir.path().join("secret");
            fs::write(&secret, "data").expect("written");
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("set");
            rustix::fs::chown(&secret, None, Some(Gid::from_raw(77))).expect("set");
            {
                let _acting = act_as(1000, 1000, &[5, 6]).expect("root may");
                assert!(!effective().intersects(PAST_RIGHTS), "{:?}", effective());
                assert!(File::open(&secret).is_err());
                fs::write(dir.path().join("mine"), "").expect("everybody may");
            }
            assert!(effective().contains(PAST_RIGHTS), "as before");
            let mine = fs::metadata(dir.path().join("mine")).expect("there");
            assert_eq!((mine.uid(), mine.gid()), (1000, 1000));
            for _ in 0..2 {
                let _acting = act_as(1000, 1000, &[5, 77]).expect("root may");
                File::open(&secret).expect("its group may");
            }
            for (uid, gid, groups) in [(1000, 1000, &[][..]), (1001, 1000, &[]), (1000, 1000, &[5, 6])] {
                let _acting = act_as(uid, gid, groups).expect("root may");
                assert!(File::open(&secret).is_err(), "the groups of the user before are gone");
            }
            let _acting = act_as(1000, 77, &[5, 6]).expect("root may");
            File::open(&secret).expect("its group may");
        });
    }

    #[test]
    fn what_the_thread_has_is_what_the_kernel_has() {
        as_root(|| {
            let callers: [(u32, u32, &[u32]); 6] = [
                (0, 0, &[]),
                (0, 1, &[2, 3]),
                (1, 0, &[2, 3]),
                (1, 1, &[3]),
                (2, 1, &[]),
                (2, 2, &[2, 3, 4]),
            ];
            let pairs = callers.iter().flat_map(|former| callers.iter().flat_map(move |next| [former, next]));
            for &(uid, gid, groups) in pairs {
                let acting = act_as(uid, gid, groups).expect("root may");
                let status = fs::read_to_string("/proc/thread-self/status").expect("there");
                let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).expect("there");
                let numbers = |name| line(name).split_whitespace().map(|id| id.parse().expect("a number"));
                assert_eq!(numbers("Groups:").collect::<Vec<u32>>(), groups);
                assert_eq!((numbers("Uid:").nth(3), numbers("Gid:").nth(3)), (Some(uid), Some(gid)));
                drop(acting);
                assert_eq!((set_user(NO_ID), set_group(NO_ID)), (0, 0));
                assert!(effective().contains(PAST_RIGHTS), "as before");
            }
        });
    }

    #[test]
    fn a_user_opens_no_handle() {
        as_root(|| {
            let dir = tempfile::tempdir().expect("a folder");
            let mount = File::open(dir.path()).expect("there");
            let handle = file_handle::FileHandle::of(mount.as_fd()).expect("a handle");
            let open =
                || file_handle::open(mount.as_fd(), handle.kind(), handle.bytes(), libc::O_PATH).map(drop);
            let acting = act_as(1000, 1000, &[]).expect("root may");
            assert_eq!(open(), Err(Errno::PERM));
            drop(acting);
            assert_eq!(open(), Ok(()));
        });
    }

    #[test]
    fn what_is_no_user_is_refused_and_not_taken_for_the_former_one() {
        as_root(|| {
            for (uid, gid, groups) in [(u32::MAX, 1, [2]), (1, u32::MAX, [2]), (1, 2, [u32::MAX])] {
                assert_eq!(act_as(uid, gid, &groups).err(), Some(Errno::INVAL));
            }
            assert_eq!(act_as(1, 1, &[1; 33]).err(), Some(Errno::INVAL));
            assert_eq!((set_user(NO_ID), set_group(NO_ID)), (0, 0));
        });
    }

    #[test]
    fn a_mask_of_its_own_lets_modes_be() {
        as_root(|| {
            own_mask().expect("root may");
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("open");
            fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path).expect("made");
            assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o666);
        });
    }
}
