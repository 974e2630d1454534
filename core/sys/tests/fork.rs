//! Children that are forked at any moment. They have the descriptors of the process for a while, so these tests have one of their own.
#![allow(unsafe_code, reason = "a child that is stuck is killed by alarm(2)")]
#![allow(clippy::expect_used, reason = "a test says what it needs")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use twinpath_sys::fork::{Forked, OfProcess, fork};

/// While another thread has the lock of the value: no child waits for a thread that it does not have.
#[test]
fn a_child_that_is_forked_while_another_thread_has_a_value_has_its_own() {
    static OF: OfProcess<Mutex<u32>> = OfProcess::new(Mutex::new(0), || Mutex::new(0));
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut value = OF.own().lock().expect("no test panics with it");
                *value += 1;
            }
        });
        let children = (0..200).map(|_| {
            let child = fork(|| {
                // SAFETY: it takes a number. A child that is stuck is killed, and the test fails.
                unsafe { libc::alarm(20) };
                let grandchild = fork(|| i32::from(*OF.own().lock().expect("its own") != 0));
                let is_own = *OF.own().lock().expect("its own") == 0;
                i32::from(!is_own || grandchild.and_then(Forked::wait).ok().flatten() != Some(0))
            });
            child.and_then(Forked::wait).ok().flatten()
        });
        let ended: Vec<_> = children.collect();
        // Before anything can fail: the thread goes on until then.
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(ended, [Some(0); 200]);
    });
    assert!(*OF.own().lock().expect("nobody has it") > 0);
}
