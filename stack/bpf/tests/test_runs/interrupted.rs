//! Signals while programs are loaded.
#![allow(unsafe_code, reason = "a handler, and a signal for one thread")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use twinpath_bpf::{KeptMaps, Path, ReflexPlan, Steering};
use twinpath_time::Duration;

static COME: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    COME.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_do_not_end_the_verifiers_work() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    // SAFETY: the handler does nothing but count; all zeros are an empty mask and no flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: it has no arguments.
    let thread = unsafe { libc::pthread_self() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // SAFETY: that thread waits in this scope for the end of this one.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                std::thread::yield_now();
            }
        });
        let plan = ReflexPlan { partial_checksums: true, rate: 1, tries_worker: true };
        let kept = KeptMaps::create(16, 0).map(Arc::new).unwrap();
        let loaded =
            Steering::load_with_reflexes(Path::Packet, 1, Duration::from_millis(1), &plan, Some(&kept));
        over.store(true, Ordering::Relaxed);
        assert!(loaded.is_ok(), "{:?}", loaded.err());
    });
    assert!(COME.load(Ordering::Relaxed) > 0, "and they come in between, or afterwards");
}
