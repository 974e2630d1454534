//! The lock, the clock and the waiting: one world, packetdrill's main thread, and its thread for calls that block.
//!
//! Time is virtual. It passes only while the main thread sleeps or waits for a packet, and then it jumps from one
//! deadline to the next. A call that blocks waits, on packetdrill's second thread, for a change of the world; after each
//! change the main thread waits until that call has looked at it, so that a run is the same each time.

use core::net::SocketAddr;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use libc::pollfd;

use crate::commands;
use crate::errno::Answer;
use crate::world::epoll::Interest;
use crate::world::{Step, World};

/// How long the main thread waits for the other one, in real time. It is never reached unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// No script waits longer for a packet, in virtual time, µs: the longest is a keepalive after two hours.
const WAIT_MAX_US: u64 = 4 * 3600 * 1_000_000;
/// The socket for commands that a script runs, such as `sysctl`: the runner gives its path in this variable.
pub const COMMANDS_VARIABLE: &str = "TWINPATH_PACKETDRILL_COMMANDS";

/// What packetdrill's `userdata` points to.
#[derive(Debug)]
pub(crate) struct Adapter {
    shared: Arc<Shared>,
    /// The thread that runs the script.
    main: ThreadId,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The world has changed: a call that blocks looks again.
    changed: Condvar,
    /// The call that blocks has looked, or has ended.
    looked: Condvar,
}

#[derive(Debug)]
struct State {
    world: World,
    /// Changes so far that were announced to the call that blocks.
    changes: u64,
    blocked: Option<Blocked>,
    /// The thread whose call has ended and that has not yet read the time for its record.
    unrecorded: Option<ThreadId>,
    /// That thread, and its place below `/proc`, once it has: packetdrill still takes note of what the call gave.
    finishing: Option<(ThreadId, PathBuf)>,
}

/// A call that blocks.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    /// The changes that it has looked at.
    seen: u64,
    /// When it ends by itself, µs.
    until_us: Option<u64>,
}

impl Adapter {
    /// Starts a world at time 0. `flags` is what `--so_flags` says.
    pub(crate) fn start(flags: &str) -> Self {
        let state =
            State { world: World::new(flags), changes: 0, blocked: None, unrecorded: None, finishing: None };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), looked: Condvar::new() });
        if let Some(path) = std::env::var_os(COMMANDS_VARIABLE) {
            let for_commands = Arc::clone(&shared);
            match UnixListener::bind(&path) {
                Ok(listener) => {
                    thread::spawn(move || {
                        commands::serve(&listener, |words| for_commands.lock().world.command(words));
                    });
                }
                Err(error) => eprintln!("no socket for commands at {}: {error}", path.display()),
            }
        }
        Self { shared, main: thread::current().id() }
    }

    /// Runs a call: as often as the world changes, until it is done.
    fn call<T>(&self, mut attempt: impl FnMut(&mut World) -> Step<T>) -> T {
        let mut state = self.shared.lock();
        let mut has_waited = false;
        loop {
            let step = attempt(&mut state.world);
            state.world.settle();
            match step {
                Step::Done(answer) => {
                    if has_waited {
                        state.blocked = None;
                        state.unrecorded = Some(thread::current().id());
                        self.shared.looked.notify_all();
                    } else if self.is_main() {
                        drop(self.shared.announce(state));
                    }
                    return answer;
                }
                Step::Wait(until_us) if self.is_main() => state = self.wait_as_main(state, until_us),
                Step::Wait(until_us) => {
                    has_waited = true;
                    state = self.shared.wait_for_change(state, until_us);
                }
            }
        }
    }

    /// Runs a call that never blocks.
    fn now<T>(&self, call: impl FnOnce(&mut World) -> T) -> T {
        let mut call = Some(call);
        self.call(|world| call.take().map_or(Step::Wait(None), |call| Step::Done(call(world))))
    }

    fn is_main(&self) -> bool {
        thread::current().id() == self.main
    }

    /// A script may run a call on the main thread that blocks: time passes until it does not.
    fn wait_as_main<'a>(&self, state: MutexGuard<'a, State>, until_us: Option<u64>) -> MutexGuard<'a, State> {
        let next = state.next_us().into_iter().chain(until_us).min();
        let Some(next) = next else {
            eprintln!("a call blocks, and nothing is due that could end it");
            std::process::exit(1);
        };
        self.shared.pass_to(state, next)
    }

    /// Lets `pause_us` of virtual time pass.
    pub(crate) fn pass(&self, pause_us: u64) {
        let state = self.shared.lock();
        let target = state.world.now_us() + pause_us;
        let finishing = self.shared.pass_to(state, target).finishing.take();
        // The thread itself may pause, before its next call: all was noted then.
        if let Some((thread, place)) = finishing
            && thread != thread::current().id()
        {
            await_sleep(&place);
        }
    }

    /// The time. A thread whose call has ended reads it for its record.
    pub(crate) fn now_us(&self) -> u64 {
        let mut state = self.shared.lock();
        if state.unrecorded == Some(thread::current().id()) {
            state.unrecorded = None;
            let place = fs::read_link("/proc/thread-self").ok();
            state.finishing = place.map(|place| (thread::current().id(), place));
            self.shared.looked.notify_all();
        }
        state.world.now_us()
    }

    /// A packet from the network.
    pub(crate) fn packet(&self, packet: &[u8]) {
        self.now(|world| world.packet(packet));
    }

    /// The next packet to the network, with the time at which it was sent, µs. Time passes until there is one. Without
    /// any to come, packetdrill cannot be told so: the process ends.
    pub(crate) fn next_packet(&self) -> (Vec<u8>, u64) {
        let mut state = self.shared.lock();
        let limit_us = state.world.now_us() + WAIT_MAX_US;
        loop {
            if let Some(packet) = state.world.take_packet() {
                return packet;
            }
            match state.next_us().filter(|next| *next <= limit_us) {
                Some(next) => state = self.shared.pass_to(state, next),
                None => {
                    eprintln!(
                        "no packet is sent: the script expects one after {:.6} s",
                        state.world.now_us() as f64 / 1e6
                    );
                    std::process::exit(1);
                }
            }
        }
    }
}

/// The calls.
impl Adapter {
    pub(crate) fn socket(&self, family: i32, kind: i32, protocol: i32) -> Answer<i32> {
        self.now(|world| world.socket(family, kind, protocol))
    }

    pub(crate) fn bind(&self, fd: i32, local: SocketAddr) -> Answer<i32> {
        self.now(|world| world.bind(fd, local))
    }

    pub(crate) fn listen(&self, fd: i32, backlog: i32) -> Answer<i32> {
        self.now(|world| world.listen(fd, backlog))
    }

    pub(crate) fn accept(&self, fd: i32) -> Answer<(i32, SocketAddr)> {
        self.call(|world| world.accept(fd))
    }

    pub(crate) fn connect(&self, fd: i32, to: &[u8]) -> Answer<i32> {
        let mut began = false;
        self.call(|world| world.connect(fd, to, &mut began))
    }

    pub(crate) fn receive(&self, fd: i32, into: &mut [&mut [u8]], flags: i32) -> Answer<usize> {
        let mut done = 0;
        self.call(|world| world.receive(fd, into, flags, &mut done))
    }

    /// A receive into address 0: with `MSG_TRUNC` the bytes are dropped, as many as there are.
    pub(crate) fn receive_nowhere(&self, fd: i32, flags: i32) -> Answer<usize> {
        self.call(|world| world.receive_nowhere(fd, flags))
    }

    pub(crate) fn unread_message(&self, fd: i32) -> Option<i32> {
        self.now(|world| world.unread_message(fd))
    }

    pub(crate) fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Answer<usize> {
        let (mut done, mut has_waited) = (0, false);
        self.call(|world| world.send(fd, bytes, flags, &mut done, &mut has_waited))
    }

    pub(crate) fn send_to(&self, fd: i32, bytes: &[u8], flags: i32, to: &[u8]) -> Answer<usize> {
        if flags & libc::MSG_FASTOPEN != 0 || !to.is_empty() {
            self.now(|world| world.check_send_to(fd, flags, to))?;
        }
        self.send(fd, bytes, flags & !libc::MSG_FASTOPEN)
    }

    pub(crate) fn fcntl(&self, fd: i32, command: i32, value: i32) -> Answer<i32> {
        self.now(|world| world.fcntl(fd, command, value))
    }

    pub(crate) fn ioctl(&self, fd: i32, request: u64) -> Answer<i32> {
        self.now(|world| world.ioctl(fd, request))
    }

    pub(crate) fn close(&self, fd: i32) -> Answer<i32> {
        self.now(|world| world.close(fd))
    }

    pub(crate) fn shutdown(&self, fd: i32, how: i32) -> Answer<i32> {
        self.now(|world| world.shutdown(fd, how))
    }

    pub(crate) fn getsockopt(&self, fd: i32, level: i32, name: i32) -> Answer<Vec<u8>> {
        self.now(|world| world.getsockopt(fd, level, name))
    }

    pub(crate) fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<i32> {
        self.now(|world| world.setsockopt(fd, level, name, value))
    }

    pub(crate) fn poll(&self, polls: &mut [pollfd], timeout_ms: i32) -> Answer<i32> {
        let mut until = None;
        self.call(|world| {
            let ready = world.poll(polls);
            world.wait_unless(ready > 0, ready, timeout_ms, &mut until)
        })
    }

    pub(crate) fn epoll_create(&self) -> Answer<i32> {
        self.now(World::epoll_create)
    }

    pub(crate) fn epoll_ctl(
        &self,
        epoll: i32,
        operation: i32,
        fd: i32,
        interest: Option<Interest>,
    ) -> Answer<i32> {
        self.now(|world| world.epoll_ctl(epoll, operation, fd, interest))
    }

    pub(crate) fn epoll_wait(&self, epoll: i32, count: usize, timeout_ms: i32) -> Answer<Vec<Interest>> {
        let mut until = None;
        self.call(|world| match world.epoll_ready(epoll, count) {
            Ok(ready) => world.wait_unless(!ready.is_empty(), ready, timeout_ms, &mut until),
            Err(errno) => Step::Done(Err(errno)),
        })
    }

    pub(crate) fn pipe(&self) -> [i32; 2] {
        self.now(World::pipe)
    }

    pub(crate) fn splice(&self, from: i32, to: i32, len: usize, flags: u32) -> Answer<i32> {
        self.call(|world| world.splice(from, to, len, flags))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world has changed: waits until the call that blocks has looked at it, and, if that ended it, until its thread
    /// has read the time.
    fn announce<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.changes += 1;
        self.changed.notify_all();
        let is_behind = |state: &mut State| {
            state.unrecorded.is_some() || state.blocked.is_some_and(|it| it.seen != state.changes)
        };
        let waited = self.looked.wait_timeout_while(state, PATIENCE, is_behind);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn wait_for_change<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until_us: Option<u64>,
    ) -> MutexGuard<'a, State> {
        let seen = state.changes;
        state.blocked = Some(Blocked { seen, until_us });
        self.looked.notify_all();
        let changed = self.changed.wait_while(state, |state| state.changes == seen);
        changed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Time passes until `target_us`, from one deadline to the next.
    fn pass_to<'a>(&self, mut state: MutexGuard<'a, State>, target_us: u64) -> MutexGuard<'a, State> {
        while let Some(next) = state.next_us().filter(|next| *next <= target_us) {
            state.world.advance(next);
            state.world.settle();
            state = self.announce(state);
        }
        state.world.advance(target_us);
        state.world.settle();
        self.announce(state)
    }
}

impl State {
    /// The next deadline, µs.
    fn next_us(&self) -> Option<u64> {
        let of_call = self.blocked.and_then(|it| it.until_us).filter(|until| *until > self.world.now_us());
        self.world.next_us().into_iter().chain(of_call).min()
    }
}

/// Waits until a thread sleeps: it does once its call is noted, as packetdrill itself looks for it. The sleep that asked
/// for it took no time, in which it would have been noted otherwise.
fn await_sleep(task: &Path) {
    let place = Path::new("/proc").join(task).join("stat");
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let Ok(facts) = fs::read_to_string(&place) else { return };
        if facts.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')) {
            return;
        }
        thread::yield_now();
    }
}
