//! How sockets earn their lease. When a socket has received enough in a short time, the owner of the interface is asked
//! for a lease by a message. A later call takes up the answer. No call waits for it.
//!
//! Until then the kernel has the socket. What a lease needs to know is noted meanwhile: which sets of `epoll(7)` the
//! socket is in, and which threads wait for it.

use std::mem;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use libc::c_int;
use twinpath_leases::WhyKernel;
use twinpath_leases::lending::Connection;
use twinpath_leases::sockets::early::{self, DESCRIPTORS, EarlyWaits};
use twinpath_leases::sockets::{Access, Asking, Lent, LentOn};
use twinpath_sys::clock;
use twinpath_time::Duration;

/// A socket has to receive this many datagrams within [`WINDOW_MS`]: at a lower rate a ring saves little.
pub const ENOUGH: u8 = 64;
/// ms.
pub const WINDOW_MS: u32 = 500;
/// A socket has to live this long: one that is closed earlier would only have cost the owner a lease.
const ALIVE_MS: u32 = 100;

/// For each descriptor, when its window began, ms of the clock. Only for sockets that earn.
static SINCE_MS: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

fn now_ms() -> u32 {
    (clock::now().as_nanos() / 1_000_000) as u32
}

fn since(descriptor: c_int) -> Option<&'static AtomicU32> {
    SINCE_MS.get(usize::try_from(descriptor).ok()?)
}

/// For each descriptor, how often a lease of its socket has not paid. Only for sockets that have had one.
static PAUSES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
/// After a lease that has not paid, the socket earns none for this time. It doubles each further time.
const PAUSE_MS: u32 = 1_000;
/// Maximum number of doublings: up to 32 s.
const DOUBLED_MAX: u8 = 5;

/// A lease of the socket has not paid: its next window begins after a while. Returns whether the descriptor is known here.
pub(crate) fn pause(descriptor: c_int) -> bool {
    let Some((since, pauses)) = since(descriptor).zip(PAUSES.get(descriptor as usize)) else { return false };
    let doubled = pauses.load(Ordering::Relaxed).min(DOUBLED_MAX);
    pauses.store(doubled + 1, Ordering::Relaxed);
    since.store(now_ms().wrapping_add(PAUSE_MS << doubled), Ordering::Relaxed);
    true
}

/// A window begins, of a new socket.
pub(crate) fn begin(descriptor: c_int) {
    let pauses = usize::try_from(descriptor).ok().and_then(|descriptor| PAUSES.get(descriptor));
    pauses.filter(|pauses| pauses.load(Ordering::Relaxed) != 0).inspect(|pauses| {
        pauses.store(0, Ordering::Relaxed);
    });
    since(descriptor).inspect(|since| since.store(now_ms(), Ordering::Relaxed));
}

/// What a socket that has received enough is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earned {
    /// To go on, as it does not live for long enough yet.
    NotYet,
    /// To begin again: it took too long.
    Anew,
    /// To ask for a lease.
    Lease,
}

/// A socket has received [`ENOUGH`].
pub(crate) fn has_received_enough(descriptor: c_int) -> Earned {
    let Some(since) = since(descriptor) else { return Earned::Anew };
    let now = now_ms();
    let passed = now.wrapping_sub(since.load(Ordering::Relaxed));
    // It has yet to begin.
    if passed.cast_signed() < 0 {
        return Earned::Anew;
    }
    match passed {
        0..ALIVE_MS => Earned::NotYet,
        ALIVE_MS..=WINDOW_MS => Earned::Lease,
        _ => {
            since.store(now, Ordering::Relaxed);
            Earned::Anew
        }
    }
}

/// A request for a lease, and the descriptor of its socket; [`CLOSED`], or [`out_of_reach`] before.
#[derive(Debug)]
struct Request {
    descriptor: c_int,
    asking: Asking,
}

static REQUESTS: Mutex<Vec<Request>> = Mutex::new(Vec::new());
/// There is, or was, any. A child of a program without them writes to no page for them.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// When requests are looked at again, ns: an answer takes the owner some ms, or some hundreds of them if it is started first.
static LOOK_AT: AtomicU64 = AtomicU64::new(0);
const LOOK_EVERY_NS: u64 = 4_000_000;

fn with_requests<R>(work: impl FnOnce(&mut Vec<Request>) -> R) -> Option<R> {
    match REQUESTS.try_lock() {
        Ok(mut requests) => Some(work(&mut requests)),
        Err(TryLockError::Poisoned(poisoned)) => Some(work(&mut poisoned.into_inner())),
        // Another thread is there: the next call looks.
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Asks for a lease of the socket. Allocates, and waits for nothing. Returns the descriptor of the connection to the owner.
///
/// # Errors
/// Why there is none.
pub(crate) fn ask(descriptor: c_int, interface: &str, access: &Access) -> Result<Option<c_int>, WhyKernel> {
    with_requests(|requests| {
        // That of a socket which had the number before, if it could not be said that it is closed.
        close_all(requests, descriptor);
        forget_closed(requests);
        let asking = Asking::begin(interface, access)?;
        let connection = asking.connection();
        IS_REQUESTED.store(true, Ordering::Relaxed);
        requests.push(Request { descriptor, asking });
        Ok(connection)
    })
    .ok_or(WhyKernel::Busy)?
}

/// Whether it is time to check for an answer to a request.
pub(crate) fn looks_now() -> bool {
    let now = clock::now().as_nanos();
    let is_due = LOOK_AT.load(Ordering::Relaxed) <= now;
    if is_due {
        LOOK_AT.store(now + LOOK_EVERY_NS, Ordering::Relaxed);
    }
    is_due
}

/// Goes on with the request for a socket: what the owner has given, if it has answered.
///
/// # Errors
/// Why it has no lease. The request is over then.
pub(crate) fn go_on(descriptor: c_int, socket: &UdpSocket) -> Result<Option<(LentOn, Lent)>, WhyKernel> {
    let went_on = with_requests(|requests| {
        let Some(at) = requests.iter().position(|request| request.descriptor == descriptor) else {
            return Err(WhyKernel::NotRequested);
        };
        let outcome = requests[at].asking.go_on(socket);
        if !matches!(outcome, Ok(None)) {
            IS_SILENT.store(false, Ordering::Relaxed);
            requests.swap_remove(at);
        }
        outcome
    });
    went_on.unwrap_or(Ok(None))
}

/// An owner was waited for in vain, and none has answered since. The connection to it may be over: it is not kept there.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// An owner was waited for in vain: until one answers, no further socket is to wait.
pub(crate) fn set_silent() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Whether an owner was waited for in vain, and none has answered since.
pub(crate) fn is_silent() -> bool {
    IS_SILENT.load(Ordering::Relaxed)
}

/// The owner that was asked for a lease for the socket, to wait for its answer; `None` while another thread is there.
pub(crate) fn owner_of(descriptor: c_int) -> Option<Arc<Connection>> {
    let owner = with_requests(|requests| {
        let request = requests.iter().find(|request| request.descriptor == descriptor);
        request.and_then(|request| request.asking.owner())
    });
    owner.flatten()
}

/// How long a socket that is closed waits for an owner that holds it. It usually takes an owner some 50 us to let it go, and longer if it
/// is busy with a lease for another program.
const LETS_GO: Duration = Duration::from_millis(200);

/// Whether the owner may hold the socket that it is asked for a lease for.
enum Held {
    No,
    /// Its answer may say that it does not any more.
    By(Option<Arc<Connection>>),
}

fn is_held(descriptor: c_int) -> Held {
    let asked = with_requests(|requests| {
        let request = requests.iter().find(|request| request.descriptor == descriptor);
        request.map_or(Held::No, |Request { asking, .. }| match asking.may_hold() {
            Some(false) => Held::No,
            Some(true) => Held::By(asking.owner()),
            None => Held::By(None),
        })
    });
    asked.unwrap_or(Held::By(None))
}

/// The socket is about to be closed. In the kernel its port is then free, and its share of a group's datagrams another one's.
/// An owner that was shown the socket has it until it has looked at it: that is waited for.
fn let_go(descriptor: c_int) {
    let until = clock::now() + LETS_GO;
    while let Held::By(owner) = is_held(descriptor)
        && clock::now() < until
    {
        match owner {
            Some(owner) if owner.wait_for_answer().is_err() => return,
            Some(_) => {}
            None => std::thread::yield_now(),
        }
    }
}

/// What a request has in place of a descriptor whose socket is about to be closed. No call has such a number, so none goes on with the request.
const fn out_of_reach(descriptor: c_int) -> c_int {
    CLOSED - 1 - descriptor
}

/// In place of a descriptor: the socket was closed.
const CLOSED: c_int = -1;

/// Gives the requests for a socket another descriptor. Returns whether that could be done.
fn rename(from: c_int, to: c_int) -> bool {
    let renamed = with_requests(|requests| {
        for request in requests.iter_mut().filter(|request| request.descriptor == from) {
            request.descriptor = to;
        }
    });
    renamed.is_some()
}

/// The socket of a request is closed, or stays with the kernel. `may_wait`: no handler of a signal has called, which may have
/// interrupted what is waited for.
pub(crate) fn abandon(descriptor: c_int, may_wait: bool) {
    if !may_wait {
        // The last request of a connection frees it. A handler may have interrupted the allocator: the next request does it then, or
        // the end of the process.
        rename(descriptor, CLOSED);
        return;
    }
    let until = clock::now() + LETS_GO;
    let closing = out_of_reach(descriptor);
    // Another thread that receives from the socket could show it to the owner otherwise, after the owner was waited for.
    let mut is_closing = rename(descriptor, closing);
    while !is_closing && clock::now() < until {
        std::thread::yield_now();
        is_closing = rename(descriptor, closing);
    }
    let_go(if is_closing { closing } else { descriptor });
    let close = |requests: &mut Vec<Request>| {
        close_all(requests, descriptor);
        forget_closed(requests);
    };
    while with_requests(close).is_none() && clock::now() < until {
        std::thread::yield_now();
    }
}

/// The socket of these requests is closed, also of one that is out of reach.
fn close_all(requests: &mut [Request], descriptor: c_int) {
    let of = [descriptor, out_of_reach(descriptor)];
    for request in requests.iter_mut().filter(|request| of.contains(&request.descriptor)) {
        request.descriptor = CLOSED;
    }
}

fn forget_closed(requests: &mut Vec<Request>) {
    requests.retain(|request| request.descriptor != CLOSED || !request.asking.abandon());
}

/// In a child: the requests are its parent's.
pub(crate) fn forget() {
    if IS_REQUESTED.load(Ordering::Relaxed) {
        with_requests(|requests| mem::take(requests).into_iter().for_each(mem::forget));
    }
    entries().for_each(|(_, entry)| entry.sleepers.store(0, Ordering::Relaxed));
}

/// Memberships of sockets without a lease in sets of `epoll(7)` that can be noted.
const MEMBERSHIPS: usize = 128;

/// That a socket without a lease is in a set.
struct Entry {
    /// -1: free.
    descriptor: AtomicI32,
    set: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// Threads that wait for the set, and count for the socket. The entry is not used for another one meanwhile.
    sleepers: AtomicU32,
}

static ENTRIES: [Entry; MEMBERSHIPS] = [const {
    Entry {
        descriptor: AtomicI32::new(-1),
        set: AtomicI32::new(-1),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
        sleepers: AtomicU32::new(0),
    }
}; MEMBERSHIPS];
/// Entries that have been used lie below it.
static USED: AtomicU32 = AtomicU32::new(0);

/// Whether there may be any.
#[inline]
pub(crate) fn has_members() -> bool {
    USED.load(Ordering::Relaxed) > 0
}

fn entries() -> impl Iterator<Item = (usize, &'static Entry)> {
    ENTRIES.iter().enumerate().take(USED.load(Ordering::Acquire) as usize)
}

/// A membership, as the program has described it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub(crate) set: c_int,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// The socket is in the set from now on, or not any more (`None`). Returns whether it could be noted.
pub(crate) fn is_in(descriptor: c_int, set: c_int, membership: Option<Membership>) -> bool {
    for (_, entry) in entries() {
        if entry.descriptor.load(Ordering::Relaxed) == descriptor && entry.set.load(Ordering::Relaxed) == set
        {
            entry.set.store(-1, Ordering::Relaxed);
            entry.descriptor.store(-1, Ordering::Release);
        }
    }
    let Some(Membership { set, events, data }) = membership else { return true };
    let take = |entry: &Entry| {
        entry.sleepers.load(Ordering::Acquire) == 0
            && entry.descriptor.compare_exchange(-1, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some((number, entry)) = ENTRIES.iter().enumerate().find(|(_, entry)| take(entry)) else {
        return false;
    };
    entry.events.store(events, Ordering::Relaxed);
    entry.data.store(data, Ordering::Relaxed);
    entry.set.store(set, Ordering::Release);
    USED.fetch_max(number as u32 + 1, Ordering::AcqRel);
    true
}

/// The sets that the socket is in.
pub(crate) fn memberships(descriptor: c_int) -> impl Iterator<Item = Membership> {
    let of = move |entry: &&Entry| entry.descriptor.load(Ordering::Acquire) == descriptor;
    entries().map(|(_, entry)| entry).filter(of).map(|entry| Membership {
        set: entry.set.load(Ordering::Acquire),
        events: entry.events.load(Ordering::Relaxed),
        data: entry.data.load(Ordering::Relaxed),
    })
}

/// Whether threads wait for a set with the socket that were not counted for it, as the set has too many sockets without a lease.
pub(crate) fn is_waited_for_uncounted(descriptor: c_int) -> bool {
    let of = |entry: &&Entry| entry.descriptor.load(Ordering::Relaxed) == descriptor;
    let all = entries().map(|(_, entry)| entry).filter(of);
    all.map(|entry| entry.sleepers.load(Ordering::Relaxed)).sum::<u32>() > early::waiting(descriptor)
}

/// Nothing more is to be known of the socket here.
pub(crate) fn forget_memberships(descriptor: c_int) {
    for (_, entry) in entries() {
        if entry.descriptor.load(Ordering::Relaxed) == descriptor {
            entry.set.store(-1, Ordering::Relaxed);
            entry.descriptor.store(-1, Ordering::Release);
        }
    }
}

/// The set was closed, or is `next` from now on.
pub(crate) fn set_closed(set: c_int, next: Option<c_int>) {
    for (_, entry) in entries().filter(|(_, entry)| entry.set.load(Ordering::Relaxed) == set) {
        match next {
            Some(next) => entry.set.store(next, Ordering::Release),
            None => {
                entry.set.store(-1, Ordering::Relaxed);
                entry.descriptor.store(-1, Ordering::Release);
            }
        }
    }
}

/// Descriptors of sockets without a lease in the set.
pub(crate) fn members(set: c_int) -> impl Iterator<Item = c_int> {
    entries()
        .filter(move |(_, entry)| set >= 0 && entry.set.load(Ordering::Acquire) == set)
        .map(|(_, entry)| entry.descriptor.load(Ordering::Relaxed))
}

/// A thread waits for a set, until this is dropped: it counts for each socket there that has no lease yet.
#[derive(Debug)]
pub struct SetWait {
    /// A bit for each entry.
    entries: u128,
    /// Those that are not counted here get no lease meanwhile ([`is_waited_for_uncounted`]).
    sockets: EarlyWaits,
}

const _: () = assert!(MEMBERSHIPS <= u128::BITS as usize);

impl SetWait {
    /// From now on; `None` if no such socket is in the set.
    pub(crate) fn begin(set: c_int) -> Option<Self> {
        let mut waits = Self { entries: 0, sockets: EarlyWaits::new() };
        for (number, entry) in entries() {
            let descriptor = entry.descriptor.load(Ordering::Relaxed);
            if descriptor < 0 || entry.set.load(Ordering::Acquire) != set {
                continue;
            }
            waits.entries |= 1 << number;
            entry.sleepers.fetch_add(1, Ordering::AcqRel);
            waits.sockets.add(descriptor);
        }
        (waits.entries != 0).then_some(waits)
    }
}

impl Drop for SetWait {
    fn drop(&mut self) {
        for (_, entry) in entries().filter(|(number, _)| self.entries & 1 << number != 0) {
            let one_less = |sleepers: u32| sleepers.checked_sub(1);
            let _ = entry.sleepers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::path::Path;

    use super::*;

    /// An owner that says nothing.
    #[allow(unsafe_code, reason = "a kind of socket that the standard library has not")]
    fn owner(path: &Path) -> OwnedFd {
        let name = path.as_os_str().as_encoded_bytes();
        // SAFETY: zeros are a valid value of it.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        address.sun_path.iter_mut().zip(name).for_each(|(to, byte)| *to = byte.cast_signed() as libc::c_char);
        // SAFETY: it takes numbers, and an address with its length.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            let owner = OwnedFd::from_raw_fd(fd);
            let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            assert_eq!(libc::bind(owner.as_raw_fd(), (&raw const address).cast(), len), 0);
            assert_eq!(libc::listen(owner.as_raw_fd(), 4), 0);
            owner
        }
    }

    #[test]
    fn no_thread_goes_on_with_a_request_whose_socket_another_one_closes() {
        let path = std::env::temp_dir().join(format!("twinpath-owner-{}", std::process::id()));
        let (_owner, access) = (owner(&path), Access::Owner(path.clone()));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let descriptor = socket.as_raw_fd();
        let asks = || ask(descriptor, "lo", &access).expect("an owner that can be asked");
        let goes_on = || go_on(descriptor, &socket);
        asks();
        assert!(matches!(goes_on(), Ok(None)));
        // So it is from when the thread that closes the socket has seen the request until it is closed.
        assert!(rename(descriptor, out_of_reach(descriptor)));
        assert!(matches!(goes_on(), Err(WhyKernel::NotRequested)));
        // The number is another socket's by then, and the former request is over.
        asks();
        assert!(matches!(goes_on(), Ok(None)));
        abandon(descriptor, true);
        assert!(matches!(goes_on(), Err(WhyKernel::NotRequested)));
        assert_eq!(with_requests(|requests| requests.len()), Some(0));
        let _ = std::fs::remove_file(path);
    }
}
