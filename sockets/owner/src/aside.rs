//! Closes descriptors that came from programs. Closing may block if a program wants it to, for instance on a file
//! system that one of its own processes serves. So helper threads do it, and the control thread never waits for them.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_socket_linger;
use tokio::sync::Notify;

/// Threads at a time.
const THREADS_MAX: usize = 8;

/// While more wait to be closed, no further program is let in: each that is there can add what came with one message.
const WAITING_MAX: usize = 64;

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<OwnedFd>>,
    threads: usize,
}

/// Notified whenever a thread takes what it closes next.
static TAKEN: Notify = Notify::const_new();

static STATE: Mutex<State> = Mutex::new(State { waiting: VecDeque::new(), threads: 0 });

/// Has descriptors closed by a thread, as soon as one is free. Called on the control thread; it does not wait.
pub(crate) fn close(descriptors: Vec<OwnedFd>) {
    if descriptors.is_empty() {
        return;
    }
    for descriptor in &descriptors {
        // A TCP connection that lingers would wait for its peer. For other sockets this changes nothing, and the rest refuse it.
        let _ = set_socket_linger(descriptor.as_fd(), None);
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.waiting.push_back(descriptors);
    if state.threads < THREADS_MAX {
        // Without a thread they wait until there is one for others.
        let started = std::thread::Builder::new().name("twinpath-close".to_owned()).spawn(work);
        state.threads += usize::from(started.is_ok());
    }
}

/// Whether more than [`WAITING_MAX`] wait to be closed.
pub(crate) fn is_behind() -> bool {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).waiting.len() > WAITING_MAX
}

/// Waits until no more than [`WAITING_MAX`] wait to be closed.
pub(crate) async fn catches_up() {
    while is_behind() {
        TAKEN.notified().await;
    }
}

fn work() {
    loop {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.waiting.pop_front() else {
            state.threads -= 1;
            return;
        };
        drop(state);
        TAKEN.notify_one();
        drop(next);
    }
}
