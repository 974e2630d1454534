//! The descriptors of this library, which the program knows nothing of: programs that close every descriptor from some number on must
//! not close them.
#![allow(unsafe_code, reason = "descriptors are asked for their kind by pointers")]

use std::cell::Cell;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use twinpath_calls::table::DESCRIPTORS;

/// More than the leases of a process have.
const MOST: usize = 256;

/// A descriptor in the upper half, and the lower half of its inode in the other, by which it is known again.
static OWN: [AtomicU64; MOST] = [const { AtomicU64::new(FREE) }; MOST];
const FREE: u64 = u64::MAX;
/// The program has taken the number for itself: what the library had there is gone, but the library does not know it.
const TAKEN: u64 = 1 << 63;

/// A bit for each number that the library has had a descriptor at.
static EVER_OWN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

/// Sockets of the kinds that this library has, too, which the program has made itself.
static OF_PROGRAM: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, calls of this thread are the library's, and not the program's.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Self {
        INSIDE.set(true);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// A descriptor is about to be closed. Returns whether that must not be done: it is the library's and the program closes it, or the
/// other way around.
pub(crate) fn refuses(descriptor: c_int) -> bool {
    if is_inside() {
        let was_taken = leave(descriptor, |own| own & TAKEN != 0);
        leave(descriptor, |_| true);
        return was_taken;
    }
    set_of_program(descriptor, false);
    is_own(descriptor)
}

/// Whether the descriptor is this library's.
fn is_own(descriptor: c_int) -> bool {
    let Some(own) = find(descriptor).map(|own| own.load(Ordering::Relaxed)).find(|own| own & TAKEN == 0)
    else {
        return false;
    };
    if inode(descriptor) == Some(own as u32) {
        return true;
    }
    // It was closed by a call that is not hooked, and the number has another meaning now.
    leave(descriptor, |other| other == own);
    false
}

fn find(descriptor: c_int) -> impl Iterator<Item = &'static AtomicU64> {
    let is_it = move |own: &&AtomicU64| {
        let own = own.load(Ordering::Relaxed);
        own != FREE && (own & !TAKEN) >> 32 == descriptor as u64
    };
    OWN.iter().filter(is_it)
}

/// Returns whether there was one.
fn leave(descriptor: c_int, is_it: impl Fn(u64) -> bool) -> bool {
    let left = find(descriptor).filter(|own| {
        let before = own.load(Ordering::Relaxed);
        is_it(before) && own.compare_exchange(before, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    left.count() > 0
}

/// The program has taken the number for itself: what the library had there is gone.
pub(crate) fn is_taken(descriptor: c_int) {
    find(descriptor).for_each(|own| {
        own.fetch_or(TAKEN, Ordering::AcqRel);
    });
}

/// Whether the library has sockets of that kind, too.
#[inline]
pub(crate) const fn has_such(domain: c_int) -> bool {
    matches!(domain, libc::AF_PACKET | libc::AF_NETLINK)
}

/// Whether anything is, or was, known of a descriptor with that number.
#[inline]
pub(crate) fn may_be_known(descriptor: c_int) -> bool {
    word_of(&EVER_OWN, descriptor).is_none_or(|(own, bit)| own.load(Ordering::Relaxed) & bit != 0)
        || is_of_program(descriptor)
}

/// The program has made a socket.
pub(crate) fn made_by_program(descriptor: c_int, domain: c_int) {
    set_of_program(descriptor, has_such(domain));
}

#[inline]
fn word_of(words: &'static [AtomicU64], descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    words.get(number / 64).map(|word| (word, 1 << (number % 64)))
}

fn set_of_program(descriptor: c_int, is: bool) {
    let Some((word, bit)) = word_of(&OF_PROGRAM, descriptor) else { return };
    if is {
        word.fetch_or(bit, Ordering::Relaxed);
    } else if word.load(Ordering::Relaxed) & bit != 0 {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

#[inline]
fn is_of_program(descriptor: c_int) -> bool {
    word_of(&OF_PROGRAM, descriptor).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// In a child: what it has of the parent's may be closed.
pub(crate) fn forget() {
    OWN.iter().for_each(|own| own.store(FREE, Ordering::Relaxed));
}

/// The descriptors that were open before a lease was given.
pub(crate) struct Before(Vec<c_int>);

impl Before {
    pub(crate) fn now() -> Self {
        // Not the library's own: it may close them meanwhile, and open others with the same numbers.
        Self(open().into_iter().filter(|descriptor| !is_own(*descriptor)).collect())
    }

    /// Remembers those that were opened since then. Another thread may have opened some meanwhile, so their kind is looked at.
    pub(crate) fn remember_what_is_new(&self) {
        for new in open().into_iter().filter(|new| !self.0.contains(new) && !is_of_program(*new)) {
            if is_of_own_kind(new) {
                remember(new);
            }
        }
    }
}

/// The descriptor is this library's.
pub(crate) fn remember(descriptor: c_int) {
    let Some(inode) = inode(descriptor) else { return };
    let value = (descriptor as u64) << 32 | u64::from(inode);
    if find(descriptor).any(|own| own.load(Ordering::Relaxed) == value) {
        return;
    }
    if let Some((word, bit)) = word_of(&EVER_OWN, descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    let free =
        |own: &&AtomicU64| own.compare_exchange(FREE, value, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // If there is no room for it, the program may close it.
    let _ = OWN.iter().find(free);
}

fn open() -> Vec<c_int> {
    // SAFETY: it takes numbers only.
    let is_open = |descriptor: &c_int| unsafe { libc::fcntl(*descriptor, libc::F_GETFD) } >= 0;
    // If no descriptor is left to read the folder by, each number is asked for.
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return (0..DESCRIPTORS as c_int).filter(is_open).collect();
    };
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut open: Vec<c_int> = folder.filter_map(number).collect();
    // The folder was one of them, and is closed by now: what gets its number next is new.
    open.retain(is_open);
    open
}

fn status_of(descriptor: c_int) -> Option<libc::stat> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for it.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it, and zeros are valid as well.
    Some(unsafe { status.assume_init() })
}

/// The lower half of a descriptor's inode. It does not allocate.
fn inode(descriptor: c_int) -> Option<u32> {
    status_of(descriptor).map(|status| status.st_ino as u32)
}

/// Whether a descriptor may be this library's: maps, programs, links and types of BPF, packet sockets, sockets of netlink, and the name that
/// ends with the process.
fn is_of_own_kind(descriptor: c_int) -> bool {
    let Some(status) = status_of(descriptor) else { return false };
    if status.st_mode & libc::S_IFMT == libc::S_IFSOCK {
        match domain(descriptor) {
            Some(libc::AF_PACKET | libc::AF_NETLINK) => true,
            Some(libc::AF_UNIX) => is_name_of_process(descriptor),
            _ => false,
        }
    } else {
        is_bpf(descriptor)
    }
}

fn is_bpf(descriptor: c_int) -> bool {
    let (mut path, mut named) = ([0u8; 32], [0u8; 32]);
    // The last byte stays zero.
    if write!(&mut path[..31], "/proc/self/fd/{descriptor}").is_err() {
        return false;
    }
    // SAFETY: the path ends with a zero, and there is room for as much.
    let len = unsafe { libc::readlink(path.as_ptr().cast(), named.as_mut_ptr().cast(), named.len()) };
    len > 0 && (named.starts_with(b"anon_inode:bpf") || named.starts_with(b"anon_inode:btf"))
}

fn is_name_of_process(descriptor: c_int) -> bool {
    // SAFETY: zeros are an address of no family.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: there is room for the address.
    let got = unsafe { libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut len) };
    let name = b"\0twinpath-";
    got == 0 && address.sun_path.iter().zip(name).all(|(has, wanted)| *has as u8 == *wanted)
}

fn domain(descriptor: c_int) -> Option<c_int> {
    let mut domain: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: there is room for the value.
    let got = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut len,
        )
    };
    (got == 0).then_some(domain)
}
