//! What the output of tests says: how many passed, which failed, and which are still running.

use std::time::Duration;

/// The result of one or more steps of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Tests with `#[ignore]`, which the house rules forbid.
    pub(super) ignored: usize,
    pub(super) failures: Vec<Failure>,
    /// Tests that failed, and passed when they ran alone.
    pub(super) flaky: Vec<String>,
    /// How long it took after the test of the same program before it until a test had ended. Several run at once, so this is not its own
    /// time.
    pub(super) waits: Vec<(Duration, String)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The test's path within its program, or what else went wrong.
    pub(super) name: String,
    /// The place of its step among all. `None` if it is no test that could run again.
    pub(super) step: Option<usize>,
    /// It is not one test: the program ended before it had run all of its tests.
    pub(super) of_all: bool,
}

impl Failure {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), step: None, of_all: false }
    }
}

impl Tally {
    /// Parses one line of the output of the step at that place.
    pub(super) fn take_line(&mut self, step: usize, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += count_of(rest, "passed");
            self.failed += count_of(rest, "failed");
            self.ignored += count_of(rest, "ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            self.failures.push(Failure { step: Some(step), ..Failure::new(name) });
        }
    }

    /// Takes a failure back, as the test passed when it ran alone.
    pub(super) fn passed_alone(&mut self, index: usize) {
        self.flaky.push(self.failures.remove(index).name);
        self.failed -= 1;
        self.passed += 1;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures);
        self.flaky.extend(other.flaky);
        self.waits.extend(other.waits);
    }
}

/// The number before `word` in `ok. 3 passed; 0 failed; ...`.
fn count_of(result: &str, word: &str) -> usize {
    let before = |part: &str| part.trim().strip_suffix(word)?.trim().rsplit(' ').next()?.parse().ok();
    result.split(';').find_map(before).unwrap_or(0)
}

/// Which tests of the program that runs now have begun without an end.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) is_running: bool,
    /// Those that libtest has said to be slow, which it does after a minute.
    pub(super) slow: Vec<String>,
}

impl Running {
    pub(super) fn take_line(&mut self, line: &str) {
        if line.starts_with("running ") || line.starts_with("test result: ") {
            *self = Self { is_running: line.starts_with("running "), slow: Vec::new() };
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" has been running for over 60 seconds") {
                self.slow.push(name.to_owned());
            } else if let Some((name, _)) = test.split_once(" ... ") {
                self.slow.retain(|slow| slow != name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_libtest_lines() {
        let mut tally = Tally::default();
        let output = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\n\
             test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.02s";
        output.lines().for_each(|line| tally.take_line(7, line));
        let failures = vec![Failure { step: Some(7), ..Failure::new("c") }];
        assert_eq!(tally, Tally { passed: 42, failed: 1, ignored: 2, failures, ..Tally::default() });
    }
}
