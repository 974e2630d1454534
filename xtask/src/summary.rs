//! Runs the tests, passes their output through, and reports at the end how many ran and why any was skipped.
//!
//! A test that cannot run here appends `SKIPPED: <crate> <test>: <reason>` to the file named by `TWINPATH_SKIP_LOG` and
//! returns. libtest counts it as passed, so it is subtracted from the passed ones here. With
//! `TWINPATH_REQUIRE_ROOT_TESTS=1` a skip counts as a failure. `WITHOUT: <crate> <test>: <reason>` is for a test that
//! needs material which no package of the system has: skipped, but never a failure.
//!
//! With `TWINPATH_TEST_RETRIES=N`, up to N tests that failed are run a second time, alone. Those that pass then are
//! listed as `FLAKY` at the end, since each of them is a defect, of the test or of what it tests.
//!
//! A program that runs tests and says nothing for [`SILENCE`] is stuck. What its threads and its children wait for is
//! printed, it is killed, and the tests that it had begun have failed. As the others of the program did not run, all of
//! it runs a second time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The variable with the file in which tests record that they could not run.
const SKIP_LOG: &str = "TWINPATH_SKIP_LOG";
/// The variable that is set where every test has to run.
const REQUIRE_ALL: &str = "TWINPATH_REQUIRE_ROOT_TESTS";
/// The variable with the number of failed tests that may be run a second time. If more fail, none is.
const RETRIES: &str = "TWINPATH_TEST_RETRIES";
/// The variable with the file for `passed failed skipped`, for a calling script.
const COUNTS_FILE: &str = "TWINPATH_TEST_COUNTS";

/// What a line of the log starts with: a test that cannot run on this machine, and one without its material.
const SKIPPED: &str = "SKIPPED: ";
const WITHOUT: &str = "WITHOUT: ";

/// How cargo says which arguments run a program of tests again.
const RERUN: &str = "error: test failed, to rerun pass `";

/// How many tests are listed as those that a run has waited for longest.
const SLOWEST: usize = 12;

/// Longest time without a line of a program that runs tests. The longest test of a run takes a quarter of it.
const SILENCE: Duration = Duration::from_secs(300);

/// The variable that is set where tests repeat what they do for hours.
const IN_FULL: &str = "TWINPATH_TESTS_IN_FULL";

/// Device tests share few cores with the kernel work that they cause.
const TEST_THREADS: &str = "2";

/// The result of one or more steps of tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Tests with `#[ignore]`, which the house rules forbid.
    ignored: usize,
    failures: Vec<Failure>,
    /// Tests that failed, and passed when they ran alone.
    flaky: Vec<String>,
    /// How long it took after the test before it until a test had ended. Several run at once, so this is not its own time.
    waits: Vec<(Duration, String)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Failure {
    /// The test's path within its program, or what else went wrong.
    name: String,
    /// What cargo has to be told beside its packages to run the program of that test again, once cargo has said so.
    program: Option<Vec<String>>,
    /// It is not one test: the program ended before it had run all of its tests.
    of_all: bool,
}

impl Failure {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), program: None, of_all: false }
    }
}

/// Which tests of the program that runs now have begun without an end.
#[derive(Debug, Default)]
struct Running {
    is_running: bool,
    /// Those that libtest has said to be slow, which it does after a minute.
    slow: Vec<String>,
}

impl Running {
    fn take_line(&mut self, line: &str) {
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

impl Tally {
    /// Parses one line of a test program's output.
    fn take_line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += count_of(rest, "passed");
            self.failed += count_of(rest, "failed");
            self.ignored += count_of(rest, "ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            self.failures.push(Failure::new(name));
        } else if let Some(rest) = line.strip_prefix(RERUN) {
            // Cargo says this once a program has ended.
            let program = target_of(rest.trim_end_matches('`'));
            let of_program = self.failures.iter_mut().filter(|failure| failure.program.is_none());
            of_program.for_each(|failure| failure.program = Some(program.clone()));
        }
    }

    /// Takes a failure back, as the test passed when it ran alone.
    fn passed_alone(&mut self, index: usize) {
        self.flaky.push(self.failures.remove(index).name);
        self.failed -= 1;
        self.passed += 1;
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures);
        self.flaky.extend(other.flaky);
        self.waits.extend(other.waits);
    }
}

/// The arguments of a program of tests without its package's. One package alone is built with other features than beside
/// others, and building all of them anew takes minutes; among the packages of the first run, what is there is run again.
fn target_of(arguments: &str) -> Vec<String> {
    let mut target = Vec::new();
    let mut words = arguments.split(' ');
    while let Some(word) = words.next() {
        if word == "-p" {
            words.next();
        } else {
            target.push(word.to_owned());
        }
    }
    target
}

/// The number before `word` in `ok. 3 passed; 0 failed; ...`.
fn count_of(result: &str, word: &str) -> usize {
    let before = |part: &str| part.trim().strip_suffix(word)?.trim().rsplit(' ').next()?.parse().ok();
    result.split(';').find_map(before).unwrap_or(0)
}

/// Reasons by test, from the lines of the log with that prefix. A test with two lines counts as skipped once.
fn skips_in(log: &str, prefix: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let (test, reason) = line.strip_prefix(prefix)?.split_once(": ")?;
        Some((test.to_owned(), reason.to_owned()))
    };
    log.lines().filter_map(entry).collect()
}

/// The argument that adds the labs to the tests of the product.
const WITH_LABS: &str = "--workspace";

/// Runs the tests: those of the default members of the workspace and the models of what crosses cores, or `cargo test`
/// with `cargo_args`. `--workspace` alone adds the labs' tests, built with the same features of the same crates.
pub(crate) fn run(root: &Path, cargo_args: &[String]) -> Result<ExitCode> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
    let skip_log = std::path::absolute(&target)?.join(format!("skipped-tests-{}", std::process::id()));
    std::fs::write(&skip_log, "").with_context(|| format!("emptying {}", skip_log.display()))?;

    let mut out = std::io::stdout();
    let mut tally = Tally::default();
    let retries = match std::env::var(RETRIES) {
        Ok(number) => number.parse().with_context(|| format!("{RETRIES}={number}: not a number of tests"))?,
        Err(_) => 0,
    };
    let everything = cargo_args.iter().all(|argument| argument == WITH_LABS);
    let what = match (everything, cargo_args) {
        (true, []) => "tests of the product",
        (true, _) => "tests of the product and of the labs",
        (false, _) => "tests",
    };
    let mut first = run_step(what, &mut cargo_test(root, &skip_log, cargo_args), &mut out)?;
    let selection = cargo_args.split(|argument| argument == "--").next().unwrap_or_default();
    let again = |program: &[String]| {
        // Cargo refuses `--lib` twice.
        let program = program.iter().filter(|word| *word != "--lib" || !selection.contains(word));
        cargo_test(root, &skip_log, &selection.iter().chain(program).cloned().collect::<Vec<_>>())
    };
    retry(&mut first, retries, again, &mut out)?;
    tally.add(first);
    if everything {
        let mut models = cargo_test(root, &skip_log, &[]);
        // Optimised, since a model checker runs each test thousands of times; in a separate directory, since the flag
        // changes every crate.
        models
            .args(["--release", "-p", "twinpath-rings", "-p", "twinpath-forwarding"])
            .args(["--lib", "--target-dir"])
            .arg(target.join("loom"));
        models.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_RELEASE_LTO", "off");
        tally.add(run_step("models of what crosses cores (loom)", &mut models, &mut out)?);
    }

    let log =
        std::fs::read_to_string(&skip_log).with_context(|| format!("reading {}", skip_log.display()))?;
    std::fs::remove_file(&skip_log).with_context(|| format!("removing {}", skip_log.display()))?;
    let strict = std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    conclude(tally, &skips_in(&log, SKIPPED), &skips_in(&log, WITHOUT), strict)
}

/// Runs each failed test again, alone, unless more failed than `limit`.
fn retry(
    tally: &mut Tally,
    limit: usize,
    command: impl Fn(&[String]) -> Command,
    out: &mut impl Write,
) -> Result<()> {
    if tally.failed > limit {
        return Ok(());
    }
    for index in (0..tally.failures.len()).rev() {
        let Failure { name, program: Some(program), of_all } = &tally.failures[index] else { continue };
        let (of_all, mut again) = (*of_all, command(program));
        if !of_all {
            again.args(["--", "--exact", name]);
        }
        let second = run_step(&format!("{name} once more, alone"), &mut again, out)?;
        // Another package's test may have the same name, in a program that has the same one.
        if second.failed == 0 && second.passed > 0 {
            tally.passed_alone(index);
            // The first time it had no result, and its tests were not counted.
            tally.passed += if of_all { second.passed - 1 } else { 0 };
        }
    }
    Ok(())
}

fn cargo_test(root: &Path, skip_log: &Path, cargo_args: &[String]) -> Command {
    let mut command = crate::cargo();
    command.arg("test").arg("--no-fail-fast").args(cargo_args).current_dir(root);
    command.env(SKIP_LOG, skip_log);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    command
}

/// The children of a process, theirs, and so on.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut at = 0;
    while let Some(process) = found.get(at) {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        found.extend(children);
        at += 1;
    }
    found.split_off(1)
}

/// Says what each thread below cargo waits for, and kills all of them: the program of tests, and what it has started.
fn end_stuck(cargo: &Child, out: &mut impl Write) -> Result<()> {
    let stuck = descendants(cargo.id());
    for process in &stuck {
        let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        writeln!(out, "process {process}: {}", command.replace('\0', " "))
            .context("writing to the terminal")?;
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let of = |file: &str| {
                let text = std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
                // The kernel's stack takes a line each.
                text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
            };
            writeln!(out, "    {}: syscall {}; {}", of("comm"), of("syscall"), of("stack"))
                .context("writing to the terminal")?;
        }
    }
    // With gdb, the stacks in the programs too; without it, what the kernel says has to do.
    for process in &stuck {
        let batch = ["-batch", "-ex", "thread apply all bt 30", "-p", &process.to_string()];
        let Ok(stacks) = Command::new("gdb").args(batch).stderr(Stdio::null()).output() else { break };
        out.write_all(&stacks.stdout).context("writing to the terminal")?;
    }
    let ids = stuck.iter().map(ToString::to_string);
    Command::new("kill").arg("-KILL").args(ids).status().context("starting kill")?;
    Ok(())
}

/// Runs one command, passing its output through to `out`.
fn run_step(what: &str, command: &mut Command, out: &mut impl Write) -> Result<Tally> {
    let in_full = std::env::var_os(IN_FULL).is_some_and(|value| value == "1");
    run_watched(what, command, out, if in_full { Duration::MAX } else { SILENCE })
}

/// The same, where a program that runs tests is stuck after `silence` without a line.
fn run_watched(what: &str, command: &mut Command, out: &mut impl Write, silence: Duration) -> Result<Tally> {
    writeln!(out, "== {what}").context("writing to the terminal")?;
    // One pipe for both, as cargo's own lines say of which program the lines before them are.
    let (output, ours) = std::io::pipe().context("making a pipe")?;
    let errors = ours.try_clone().context("duplicating a pipe")?;
    let mut child =
        command.stdout(ours).stderr(errors).spawn().with_context(|| format!("starting cargo for {what}"))?;
    // The child alone holds the writing end now, or the output would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tally = Tally::default();
    let mut before = Instant::now();
    let (line_read, lines) = channel();
    // It ends with the output.
    let reader = std::thread::spawn(move || {
        BufReader::new(output).split(b'\n').try_for_each(|line| line_read.send(line)).unwrap_or(());
    });
    let mut running = Running::default();
    loop {
        let line = match lines.recv_timeout(silence) {
            Ok(line) => line.with_context(|| format!("reading the output of {what}"))?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if running.is_running => {
                tally.failed += 1;
                let name = format!("stuck for {} s: {}", silence.as_secs(), running.slow.join(", "));
                writeln!(out, "== {name}").context("writing to the terminal")?;
                tally.failures.push(Failure { of_all: true, ..Failure::new(name) });
                running = Running::default();
                end_stuck(&child, out)?;
                continue;
            }
            // Cargo builds.
            Err(RecvTimeoutError::Timeout) => continue,
        };
        let line = String::from_utf8_lossy(&line);
        writeln!(out, "{line}").context("writing to the terminal")?;
        tally.take_line(&line);
        running.take_line(&line);
        let test = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        if let Some((name, _)) = test {
            tally.waits.push((before.elapsed(), name.to_owned()));
        }
        // Before the first test of a program it was built, or started.
        if test.is_some() || line.starts_with("running ") {
            before = Instant::now();
        }
    }
    reader.join().map_err(|_| anyhow::anyhow!("the thread that reads the output has panicked"))?;
    let status = child.wait().with_context(|| format!("waiting for {what}"))?;
    if !status.success() && tally.failed == 0 {
        // The test program did not compile, or was killed before it could report.
        tally.failed = 1;
        tally.failures.push(Failure::new(format!("{what}: ended with {status}, see above")));
    }
    Ok(tally)
}

/// Prints the result; the last line has only the counts.
fn conclude(
    mut tally: Tally,
    skips: &BTreeMap<String, String>,
    without: &BTreeMap<String, String>,
    strict: bool,
) -> Result<ExitCode> {
    let skipped = skips.len() + tally.ignored;
    tally.passed = tally.passed.saturating_sub(skips.len() + without.len());
    println!();
    for Failure { name, .. } in &tally.failures {
        println!("FAILED: {name}");
    }
    for name in &tally.flaky {
        println!("FLAKY: {name}: failed beside others, passed alone; its first output is above");
    }
    for (test, reason) in skips.iter().chain(without) {
        println!("SKIPPED: {test}: {reason}");
    }
    if tally.ignored > 0 {
        println!("SKIPPED: {} tests marked #[ignore]", tally.ignored);
    }
    tally.waits.sort_by_key(|(wait, _)| std::cmp::Reverse(*wait));
    for (wait, name) in tally.waits.iter().take(SLOWEST) {
        println!("waited {:3.0} s for {name}", wait.as_secs_f64());
    }
    if strict && skipped > 0 {
        println!("{REQUIRE_ALL}=1: a skipped test is a failed one");
        tally.failed += skipped;
    }
    let counted_as_skipped = without.len() + if strict { 0 } else { skipped };
    if let Some(path) = std::env::var_os(COUNTS_FILE) {
        let counts = format!("{} {} {counted_as_skipped}\n", tally.passed, tally.failed);
        std::fs::write(&path, counts).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{} passed, {} failed, {counted_as_skipped} skipped", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        output.lines().for_each(|line| tally.take_line(line));
        let failures = vec![Failure::new("c")];
        assert_eq!(tally, Tally { passed: 42, failed: 1, ignored: 2, failures, ..Tally::default() });
    }

    /// A run of two programs with one failure each.
    fn two_failures() -> Tally {
        let mut tally = Tally::default();
        let output = "test a::b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\
             error: test failed, to rerun pass `-p x --test y`\ntest c ... FAILED\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\nerror: test failed, to rerun pass `-p x --lib`";
        output.lines().for_each(|line| tally.take_line(line));
        tally
    }

    /// In place of cargo: the tests of the library fail again.
    fn again(program: &[String]) -> Command {
        let library = program.last().is_some_and(|last| last == "--lib");
        let counts = if library { "0 passed; 1 failed" } else { "1 passed; 0 failed" };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo 'test result: x. {counts}; 0 ignored'"), "sh"]);
        command
    }

    #[test]
    fn a_test_that_passes_alone_is_flaky_and_one_that_fails_again_has_failed() {
        let mut tally = two_failures();
        retry(&mut tally, 2, again, &mut std::io::sink()).expect("sh runs");
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.flaky, ["a::b"]);
        assert_eq!(tally.failures[0].name, "c");
    }

    #[test]
    fn what_runs_again_is_named_without_its_package() {
        let tally = two_failures();
        let programs: Vec<_> = tally.failures.iter().map(|failure| failure.program.clone()).collect();
        assert_eq!(programs, [Some(vec!["--test".into(), "y".into()]), Some(vec!["--lib".into()])]);
    }

    #[test]
    fn nothing_is_tried_again_once_more_failed_than_may() {
        let mut tally = two_failures();
        retry(&mut tally, 1, again, &mut std::io::sink()).expect("sh runs");
        assert_eq!((tally.failed, tally.flaky.len()), (2, 0));
    }

    #[test]
    fn a_test_that_skips_twice_is_skipped_once() {
        let log = "SKIPPED: a::b: not root\nnoise\nSKIPPED: a::b: not root\nSKIPPED: c: no veth: EPERM\nWITHOUT: d: f\n";
        let skips = skips_in(log, SKIPPED);
        assert_eq!(skips.len(), 2);
        assert_eq!(skips["c"], "no veth: EPERM");
        assert_eq!(skips_in(log, WITHOUT)["d"], "f");
    }

    #[test]
    fn a_program_that_is_stuck_is_killed_and_names_the_test() {
        let mut command = Command::new("sh");
        let silent = "echo 'running 2 tests'; echo 'test a::b ... ok'; \
             echo 'test c has been running for over 60 seconds'; sh -c 'cat; :' < /dev/zero > /dev/null; \
             echo 'error: test failed, to rerun pass `-p x --test y`'; exit 101";
        command.args(["-c", silent]);
        let mut out = Vec::new();
        let mut tally =
            run_watched("a stuck one", &mut command, &mut out, Duration::from_millis(300)).expect("sh runs");
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains("cat; :") && out.contains("cat: syscall"), "{out}");
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert!(tally.failures[0].name.ends_with(": c"), "{:?}", tally.failures);
        // All of it runs again, and counts.
        let again = |program: &[String]| {
            assert_eq!(program, ["--test", "y"]);
            let mut command = Command::new("sh");
            command.args(["-c", "[ $# = 0 ] && echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", "sh"]);
            command
        };
        retry(&mut tally, 1, again, &mut std::io::sink()).expect("sh runs");
        assert_eq!((tally.passed, tally.failed, tally.flaky.len()), (2, 0, 1));
    }

    #[test]
    fn a_program_that_dies_without_a_verdict_is_a_failure() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101"]);
        let tally = run_step("a killed test", &mut command, &mut std::io::sink()).expect("sh runs");
        assert_eq!((tally.passed, tally.failed), (2, 1));
    }
}
