//! Records that a test cannot run here, and why.
//!
//! libtest has no notion of a skipped test: such a test returns early and counts as passed. [`skip`] therefore writes
//! a line to the file that `make test` names, and the test summary reports it with its reason. Without
//! such a file the line goes to standard error. With `TWINPATH_REQUIRE_ROOT_TESTS=1`, as in `.ci/run`, it panics
//! instead.
//!
//! A test that repeats what it does asks [`few_or_all`] how often.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;

/// The capabilities that device tests need, as bits of `CapEff` (`linux/capability.h`): CAP_NET_ADMIN, CAP_NET_RAW,
/// CAP_SYS_ADMIN.
const NEEDED: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN")];

/// Records that the calling test is skipped, and why. The test must return after it.
///
/// # Panics
/// If every test has to run (`TWINPATH_REQUIRE_ROOT_TESTS=1`), or the log cannot be written.
pub fn skip(reason: impl Display) {
    let line = line_of_this_test("SKIPPED", &reason);
    assert!(
        std::env::var_os("TWINPATH_REQUIRE_ROOT_TESTS").is_none_or(|value| value != "1"),
        "{line} (and every test has to run here)"
    );
    record(&line);
}

/// Records that the calling test is skipped because material of another project is not installed. No package of the
/// system has it, so this is allowed even where every test has to run. The test must return after it.
///
/// # Panics
/// The log cannot be written.
pub fn skip_without(material: impl Display) {
    record(&line_of_this_test("WITHOUT", &format_args!("needs {material}")));
}

/// How often a test repeats what it does, or for how long: `few`, which finds what the test was written for, or `all`
/// with `TWINPATH_TESTS_IN_FULL=1`, which also finds what is rare.
#[must_use]
pub fn few_or_all<N>(few: N, all: N) -> N {
    if std::env::var_os("TWINPATH_TESTS_IN_FULL").is_some_and(|value| value == "1") { all } else { few }
}

fn line_of_this_test(outcome: &str, reason: &impl Display) -> String {
    let thread = std::thread::current();
    // libtest names a test's thread after the test, and cargo sets the name of the tested crate.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    entry(outcome, &package, thread.name().unwrap_or("a test"), &reason.to_string())
}

fn record(line: &str) {
    let Some(log) = std::env::var_os("TWINPATH_SKIP_LOG") else {
        // `eprint!` would show it only if the test fails: libtest captures that.
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    };
    let file = OpenOptions::new().append(true).create(true).open(&log);
    // A single write, so that lines of tests that skip at the same time do not mix.
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip log can be written");
}

/// One line of the log, whatever characters the reason has.
fn entry(outcome: &str, package: &str, test: &str, reason: &str) -> String {
    format!("{outcome}: {package} {test}: {}\n", reason.replace('\n', " "))
}

/// Whether the calling test has the capabilities to make namespaces and devices; if not, it is recorded as skipped
/// and must return.
#[must_use]
pub fn root_or_skip() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing_in(&status);
    if !missing.is_empty() {
        skip(format_args!("needs root for its namespaces and devices (missing: {})", missing.join(", ")));
    }
    missing.is_empty()
}

/// The needed capabilities that are not effective according to a `/proc/PID/status`.
fn missing_in(status: &str) -> Vec<&'static str> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    NEEDED.iter().filter(|(bit, _)| bits & (1 << bit) == 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        assert_eq!(missing_in("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"), Vec::<&str>::new());
        assert_eq!(missing_in("CapEff:\t0000000000201000\n"), ["CAP_NET_RAW"]);
        assert_eq!(missing_in("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n").len(), 3);
        assert_eq!(missing_in("").len(), 3);
    }

    #[test]
    fn a_reason_stays_on_one_line() {
        assert_eq!(
            entry("SKIPPED", "crate", "a::b", "no veth:\nEPERM"),
            "SKIPPED: crate a::b: no veth: EPERM\n"
        );
    }
}
