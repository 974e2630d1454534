//! Closes descriptors that came from programs. Closing may block if a program wants it to, for instance on a file
//! system that one of its own processes serves. So helper threads do it, and the control thread never waits for them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use rustix::net::sockopt::set_socket_linger;

/// Threads at a time.
const THREADS_MAX: usize = 8;

/// While more wait to be closed, no further program is let in: each that is there can add what came with one message.
const WAITING_MAX: usize = 64;

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<OwnedFd>>,
    threads: usize,
    /// Those who wait until fewer wait.
    wakers: Vec<Waker>,
}

static STATE: Mutex<State> = Mutex::new(State { waiting: VecDeque::new(), threads: 0, wakers: Vec::new() });

/// Has descriptors closed by a thread, as soon as one is free. Called on the control thread; it does not wait.
pub fn close(descriptors: Vec<OwnedFd>) {
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

/// Waits until no more than [`WAITING_MAX`] wait to be closed.
pub async fn catches_up() {
    poll_fn(|context| {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.len() <= WAITING_MAX {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    })
    .await
}

fn work() {
    loop {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.waiting.pop_front() else {
            state.threads -= 1;
            return;
        };
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        drop(next);
    }
}
