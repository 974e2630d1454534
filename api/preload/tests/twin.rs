//! Ninety seconds of the twin.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use twinpath_test_skip::root_or_skip;
use twinpath_twin::soak::run;
use twinpath_twin::twin::Twin;

/// With what is before and behind it, 90 s.
const TIME: Duration = Duration::from_secs(80);

/// The library of this build: beside the tests, or a folder above.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folders = tests.ancestors().skip(1).take(2);
    let mut libraries = folders.map(|folder| folder.join("libtwinpath_preload.so"));
    libraries.find(|library| library.is_file()).expect("cargo builds the library with the tests")
}

#[test]
fn a_program_sees_no_difference_between_a_plain_socket_and_a_leased_one() {
    if !root_or_skip() {
        return;
    }
    let mut twin = Twin::new(&library()).unwrap();
    let totals = run(&mut twin, 0..u64::MAX, Some(Instant::now() + TIME), &[]).unwrap();
    println!("{totals}");
    // Some 1.5 % of the scripts still differ, each for a reason that is not found yet. This bound is to fall, and never to rise.
    assert!(totals.failed * 20 <= totals.seeds, "what differs is said above");
    // Otherwise nothing was compared with anything.
    let received = totals.by_ring + totals.by_kernel;
    assert!(totals.by_ring * 20 > received, "{} of {received} datagrams came by the ring", totals.by_ring);
}
