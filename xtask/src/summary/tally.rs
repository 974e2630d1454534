//! What the output of tests says: how many passed, which failed, and which are still running.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Duration;

/// The status with which libtest ends a program if a test failed.
const FAILED: i32 = 101;

/// The result of one or more steps of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// What the programs of a step have counted, by the place of the step among all.
    pub(super) counts: BTreeMap<usize, Counts>,
    /// All that failed. If the list is empty, the run has passed.
    pub(super) failures: Vec<Failure>,
    /// Tests that failed, and passed when they ran alone.
    pub(super) flaky: Vec<String>,
    /// How long it took after the test of the same program before it until a test had ended. Several run at once, so this is not its own
    /// time.
    pub(super) waits: Vec<(Duration, String)>,
}

/// What lines with the result of a program have counted. The failures are a list of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    /// Tests with `#[ignore]`, which the house rules forbid.
    pub(super) ignored: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The test's path within its program, or what else went wrong.
    pub(super) name: String,
    /// The place of its step among all. `None` if nothing of it could run again.
    pub(super) step: Option<usize>,
    /// It is not one test: some tests of the step have not run, or have no name. Only a second run of the whole step
    /// shows that all of them pass.
    pub(super) of_all: bool,
}

impl Tally {
    pub(super) fn passed(&self) -> usize {
        self.counts.values().map(|counts| counts.passed).sum()
    }

    pub(super) fn ignored(&self) -> usize {
        self.counts.values().map(|counts| counts.ignored).sum()
    }

    /// Takes a failure back, as the test passed when it ran alone.
    pub(super) fn passed_alone(&mut self, index: usize) {
        let Failure { name, step, .. } = self.failures.remove(index);
        self.flaky.push(name);
        if let Some(step) = step {
            self.counts.entry(step).or_default().passed += 1;
        }
    }

    /// Takes all failures of a step back, as all of it passed when it ran again. Only the second run counts.
    pub(super) fn passed_whole(&mut self, step: usize, second: Self) {
        let taken_back = self.failures.extract_if(.., |failure| failure.step == Some(step));
        self.flaky.extend(taken_back.map(|failure| failure.name));
        self.counts.remove(&step);
        self.counts.extend(second.counts);
    }

    pub(super) fn add(&mut self, other: Self) {
        // No step is in both.
        self.counts.extend(other.counts);
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

/// Whether libtest says with this line that a program begins its tests: `running 3 tests`.
fn begins_tests(line: &str) -> bool {
    let number = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    number.is_some_and(|(number, plural)| number.parse::<usize>().is_ok() && matches!(plural, "" | "s"))
}

/// The output of one step, as far as it is read.
///
/// A step of cargo runs several programs, one after the other. Cargo says when it begins one, and which failed.
#[derive(Debug)]
pub(super) struct Reading {
    /// What the step is called in a failure.
    what: String,
    /// The place of the step among all.
    place: usize,
    /// Whether the step is one program, and not cargo.
    is_program: bool,
    pub(super) tally: Tally,
    /// Whether a program runs tests now: it has begun, and its result has not come.
    pub(super) is_running: bool,
    /// The running tests that libtest has said to be slow, which it does after a minute.
    slow: Vec<String>,
    /// How many tests were said to have failed since a result counted them.
    uncounted: usize,
    /// How many failures there were before the present program.
    failures_before: usize,
    /// Whether it is a failure already that the present program ended before it should.
    is_cut_short: bool,
    /// Whether any program has begun.
    has_begun: bool,
}

impl Reading {
    pub(super) fn new(what: &str, place: usize, is_program: bool) -> Self {
        let what = if what.is_empty() { "cargo test" } else { what }.to_owned();
        Self {
            what,
            place,
            is_program,
            tally: Tally::default(),
            is_running: false,
            slow: Vec::new(),
            uncounted: 0,
            failures_before: 0,
            is_cut_short: false,
            has_begun: false,
        }
    }

    pub(super) fn take_line(&mut self, line: &str) {
        if begins_tests(line) {
            (self.is_running, self.has_begun) = (true, true);
            self.slow.clear();
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.take_result(result);
        } else if let Some(test) = line.strip_prefix("test ") {
            self.take_test(test);
        } else if !self.is_program {
            self.take_line_of_cargo(line);
        }
    }

    fn take_test(&mut self, test: &str) {
        if let Some(name) = test.strip_suffix(" has been running for over 60 seconds") {
            self.slow.push(name.to_owned());
        } else if let Some((name, _)) = test.split_once(" ... ") {
            self.slow.retain(|slow| slow != name);
        }
        if let Some(name) = test.strip_suffix(" ... FAILED") {
            self.uncounted += 1;
            self.fail(name.to_owned(), false);
        }
    }

    fn take_result(&mut self, result: &str) {
        let counts = self.tally.counts.entry(self.place).or_default();
        counts.passed += count_of(result, "passed");
        counts.ignored += count_of(result, "ignored");
        let failed = count_of(result, "failed");
        // What a test prints may stand before the name on the same line, and `--quiet` has no names.
        for _ in self.uncounted..failed {
            self.fail(format!("{}: a test that the output does not name, see above", self.what), true);
        }
        self.uncounted = self.uncounted.saturating_sub(failed);
        self.is_running = false;
        self.slow.clear();
    }

    fn take_line_of_cargo(&mut self, line: &str) {
        let begins_program = ["     Running ", "   Doc-tests "].iter().any(|start| line.starts_with(start));
        if begins_program || line.contains("failed, to rerun pass `") {
            let has_failure = self.tally.failures.len() > self.failures_before;
            if self.is_running || !(begins_program || has_failure) {
                self.cut_short(&format!("{}: a program ended before its tests had, see above", self.what));
            }
            self.failures_before = self.tally.failures.len();
            self.uncounted = 0;
            // Why a program failed follows.
            self.is_cut_short &= !begins_program;
        } else if line.starts_with("  process didn't exit successfully: `") {
            // Cargo does not say so of a program that ended as libtest does after a failure.
            self.cut_short(&format!("{}: a program crashed, see above", self.what));
        }
    }

    /// Nothing has come for that many seconds, and the program will be killed. Gives what failed.
    pub(super) fn is_stuck(&mut self, silence_s: u64) -> String {
        let name = format!("stuck for {silence_s} s: {}", self.slow.join(", "));
        self.cut_short(&name);
        name
    }

    /// The result of the step, which has ended.
    pub(super) fn end(mut self, status: ExitStatus) -> Tally {
        let is_crash = self.is_program && !status.success() && status.code() != Some(FAILED);
        let is_unexplained = !status.success() && self.tally.failures.is_empty();
        if self.is_running || is_crash || is_unexplained {
            self.cut_short(&format!("{}: ended with {status}, see above", self.what));
        }
        self.tally
    }

    /// The present program has ended, or will, though it has not said of all of its tests how they ended.
    fn cut_short(&mut self, name: &str) {
        if !self.is_cut_short {
            self.fail(name.to_owned(), true);
        }
        self.is_cut_short = true;
        self.is_running = false;
        self.slow.clear();
    }

    fn fail(&mut self, name: String, of_all: bool) {
        // What does not compile would not do so a second time.
        let step = (self.is_program || self.has_begun).then_some(self.place);
        self.tally.failures.push(Failure { name, step, of_all });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// The result of a step with that output, and the status that `wait` gives for it.
    fn result_of(is_program: bool, output: &str, status: i32) -> Tally {
        let mut reading = Reading::new("x", 7, is_program);
        output.lines().for_each(|line| reading.take_line(line));
        reading.end(ExitStatus::from_raw(status))
    }

    /// What failed, and whether only a second run of the whole step takes it back.
    fn failures(tally: &Tally) -> Vec<(&str, bool)> {
        tally.failures.iter().map(|failure| (failure.name.as_str(), failure.of_all)).collect()
    }

    const ENDED_AS_LIBTEST: i32 = FAILED << 8;

    #[test]
    fn counts_are_read_from_libtest_lines() {
        let output = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\n\
             test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.02s";
        let tally = result_of(true, output, ENDED_AS_LIBTEST);
        assert_eq!((tally.passed(), tally.ignored()), (42, 2));
        assert_eq!(tally.failures, [Failure { name: "c".to_owned(), step: Some(7), of_all: false }]);
    }

    #[test]
    fn a_program_that_ends_within_its_tests_has_failed_whatever_its_status() {
        let output = "running 3 tests\ntest a ... FAILED";
        for status in [0, ENDED_AS_LIBTEST, 6] {
            let tally = result_of(true, output, status);
            let [("a", false), (ended, true)] = failures(&tally)[..] else { panic!("{tally:?}") };
            assert!(ended.starts_with("x: ended with "), "{ended}");
        }
        let crash_at_exit = format!("{output}\ntest result: FAILED. 2 passed; 1 failed; 0 ignored");
        assert_eq!(failures(&result_of(true, &crash_at_exit, ENDED_AS_LIBTEST)).len(), 1);
        assert_eq!(failures(&result_of(true, &crash_at_exit, 11)).len(), 2);
    }

    #[test]
    fn a_failed_test_without_a_name_has_failed() {
        let output = "running 2 tests\ntest a ... FAILED\nnoise: test b ... FAILED\n\
             test result: FAILED. 0 passed; 2 failed; 0 ignored";
        let tally = result_of(true, output, ENDED_AS_LIBTEST);
        assert_eq!(
            failures(&tally),
            [("a", false), ("x: a test that the output does not name, see above", true)]
        );
    }

    #[test]
    fn of_the_programs_that_cargo_runs_each_crash_is_a_failure() {
        let crashed = ("x: a program ended before its tests had, see above", true);
        let aborts = "     Running unittests src/lib.rs (target/debug/deps/x-57)\n\nrunning 2 tests\ntest a ... FAILED\n\
             error: test failed, to rerun pass `--lib`\n\nCaused by:\n\
             \x20 process didn't exit successfully: `x-57` (signal: 6, SIGABRT: process abort signal)\n";
        let fails = "     Running tests/t.rs (target/debug/deps/t-1c)\n\nrunning 1 test\ntest c ... FAILED\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\n\nerror: test failed, to rerun pass `--test t`\n";
        let exits = "     Running tests/u.rs (target/debug/deps/u-09)\n\nrunning 1 test\n";
        let cannot_begin = "     Running tests/v.rs (target/debug/deps/v-09)\nerror: test failed, to rerun pass `--test v`\n";
        let passes = "   Doc-tests x\n\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        let of = |programs: &[&str]| result_of(false, &programs.concat(), ENDED_AS_LIBTEST);
        assert_eq!(failures(&of(&[aborts, fails, passes])), [("a", false), crashed, ("c", false)]);
        assert_eq!(failures(&of(&[fails, exits, passes])), [("c", false), crashed]);
        assert_eq!(failures(&of(&[fails, cannot_begin, passes])), [("c", false), crashed]);
        assert_eq!(failures(&of(&[passes, fails])), [("c", false)]);
        assert_eq!(failures(&result_of(false, passes, 0)), []);
    }

    #[test]
    fn what_does_not_compile_cannot_run_again() {
        let tally = result_of(false, "error: could not compile `x`", ENDED_AS_LIBTEST);
        assert_eq!(tally.failures.len(), 1);
        assert_eq!(tally.failures[0].step, None);
    }
}
