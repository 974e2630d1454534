//! The descriptors of this library, which the program knows nothing of: programs that close every descriptor from some number on must
//! not close them.
#![allow(unsafe_code, reason = "a socket is asked for its kind by pointers")]

use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

/// More than the leases of a process have.
const MOST: usize = 256;

static OWN: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// Whether the descriptor is this library's.
pub(crate) fn is_own(descriptor: c_int) -> bool {
    descriptor >= 0 && OWN.iter().any(|own| own.load(Ordering::Relaxed) == descriptor)
}

/// The program has taken the number for itself: what the library had there is gone.
pub(crate) fn is_taken(descriptor: c_int) {
    for own in &OWN {
        let _ = own.compare_exchange(descriptor, -1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// In a child: what it has of the parent's may be closed.
pub(crate) fn forget() {
    OWN.iter().for_each(|own| own.store(-1, Ordering::Relaxed));
}

/// The descriptors that were open before a lease was given.
pub(crate) struct Before(Vec<c_int>);

impl Before {
    pub(crate) fn now() -> Self {
        Self(open())
    }

    /// Remembers those that were opened since then. Another thread may have opened some meanwhile, so their kind is looked at.
    pub(crate) fn remember_what_is_new(&self) {
        for new in open().into_iter().filter(|new| !self.0.contains(new) && is_of_ours(*new)) {
            let free =
                |own: &&AtomicI32| own.compare_exchange(-1, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if OWN.iter().find(free).is_none() {
                return;
            }
        }
    }
}

fn open() -> Vec<c_int> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    folder.filter_map(number).collect()
}

/// Maps, programs and links of BPF, and packet sockets.
fn is_of_ours(descriptor: c_int) -> bool {
    let named = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    let is_bpf = named.is_ok_and(|named| named.to_string_lossy().starts_with("anon_inode:bpf"));
    is_bpf || domain(descriptor) == Some(libc::AF_PACKET)
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
