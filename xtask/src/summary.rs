//! Runs the tests, passes their output through, and reports at the end how many ran and why any was skipped.
//!
//! A test that cannot run here appends `SKIPPED: <crate> <test>: <reason>` to the file named by `TWINPATH_SKIP_LOG` and
//! returns. libtest counts it as passed, so it is subtracted from the passed ones here. With
//! `TWINPATH_REQUIRE_ROOT_TESTS=1` a skip counts as a failure. `WITHOUT: <crate> <test>: <reason>` is for a test that
//! needs material which no package of the system has: skipped, but never a failure.
//!
//! All of them are programs that cargo builds and that run here, [`LANES`] at a time: cargo would run one after the
//! other, and most wait for the kernel more than they use a CPU. Each line says of which program it is.
//!
//! With `TWINPATH_TEST_RETRIES=N`, up to N of all tests that failed are run a second time, alone. Those that pass then
//! are listed as `FLAKY` at the end, since each of them is a defect, of the test or of what it tests.
//!
//! A program that runs tests and says nothing for minutes is stuck. What its threads and its children wait for is
//! printed, it is killed, and that is a failure. So is a program that ends before its tests have. As the others of its
//! tests did not run, all of it runs a second time. It has passed only if all of them pass then.

mod programs;
mod step;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};

use self::programs::Program;
use self::step::{Output, Step};
use self::tally::{Failure, Tally};

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

/// How many tests are listed as those that a run has waited for longest.
const SLOWEST: usize = 12;

/// Device tests share few cores with the kernel work that they cause.
const TEST_THREADS: &str = "2";

/// How many programs of tests run at once.
const LANES: usize = 2;

/// What cargo itself builds and runs: the examples in documentation, and the models.
const DOCUMENTATION: &str = "documentation";
const MODELS: &str = "models of what crosses cores (loom)";

/// What takes longest is begun first: a long program that began last would run alone at the end. So is what cargo builds, as that uses
/// the CPUs that device tests leave.
const FIRST: [&str; 5] =
    ["twinpath-cli interop", DOCUMENTATION, MODELS, "twinpath-preload programs", "twinpath-preload twin"];

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

    let retries = match std::env::var(RETRIES) {
        Ok(number) => number.parse().with_context(|| format!("{RETRIES}={number}: not a number of tests"))?,
        Err(_) => 0,
    };
    let out = Output::new(std::io::stdout());
    let steps = if cargo_args.iter().all(|argument| argument == WITH_LABS) {
        println!("== tests of the product{}", if cargo_args.is_empty() { "" } else { " and of the labs" });
        everything(root, &target, &skip_log, cargo_args)?
    } else {
        println!("== tests");
        let (root, skip_log, cargo_args) = (root.to_owned(), skip_log.clone(), cargo_args.to_vec());
        let command = move || cargo_test(&root, &skip_log, &cargo_args);
        vec![Step { name: String::new(), command: Box::new(command), is_program: false }]
    };
    let mut tally = run_steps(&steps, &out)?;
    retry(&mut tally, retries, &steps, &out)?;

    let log =
        std::fs::read_to_string(&skip_log).with_context(|| format!("reading {}", skip_log.display()))?;
    std::fs::remove_file(&skip_log).with_context(|| format!("removing {}", skip_log.display()))?;
    let strict = std::env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    conclude(tally, &skips_in(&log, SKIPPED), &skips_in(&log, WITHOUT), strict)
}

/// Builds the programs of all tests. They are the steps, with what cargo has to run: the examples in documentation, and the models.
fn everything(root: &Path, target: &Path, skip_log: &Path, cargo_args: &[String]) -> Result<Vec<Step>> {
    let programs = programs::build(cargo_test(root, skip_log, cargo_args))?;
    let of_cargo = |name: &str, command: Box<dyn Fn() -> Command + Sync>| Step {
        name: name.to_owned(),
        command,
        is_program: false,
    };
    let (of_root, log, mut arguments) = (root.to_owned(), skip_log.to_owned(), cargo_args.to_vec());
    arguments.push("--doc".to_owned());
    let documentation = of_cargo(DOCUMENTATION, Box::new(move || cargo_test(&of_root, &log, &arguments)));
    let (of_root, log, loom) = (root.to_owned(), skip_log.to_owned(), target.join("loom"));
    let models = move || {
        let mut models = cargo_test(&of_root, &log, &[]);
        // Optimised, since a model checker runs each test thousands of times; in a separate directory, since the flag
        // changes every crate.
        models
            .args(["--release", "-p", "twinpath-rings", "-p", "twinpath-forwarding"])
            .args(["--lib", "--target-dir"])
            .arg(&loom);
        models.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_RELEASE_LTO", "off");
        models
    };
    let models = of_cargo(MODELS, Box::new(models));
    let program = |program: Program| {
        let (name, skip_log) = (program.name.clone(), skip_log.to_owned());
        let command = move || with_variables(program.command(), &skip_log);
        Step { name, command: Box::new(command), is_program: true }
    };
    let mut steps: Vec<_> =
        [documentation, models].into_iter().chain(programs.into_iter().map(program)).collect();
    let place = |step: &Step| FIRST.iter().position(|first| *first == step.name).unwrap_or(FIRST.len());
    steps.sort_by_key(place);
    Ok(steps)
}

/// Runs the steps in their order, [`LANES`] of them at a time.
fn run_steps(steps: &[Step], out: &Output<impl Write + Send>) -> Result<Tally> {
    let next = AtomicUsize::new(0);
    let lane = || -> Result<Tally> {
        let mut tally = Tally::default();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = steps.get(place) else { return Ok(tally) };
            tally.add(step.run(place, &[], out)?);
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_fold(Tally::default(), |mut all, lane| -> Result<Tally> {
            all.add(lane.join().map_err(|_| anyhow!("a thread that runs tests has panicked"))??);
            Ok(all)
        })
    })
}

/// Runs what failed again, alone, unless more failed than `limit`.
fn retry(tally: &mut Tally, limit: usize, steps: &[Step], out: &Output<impl Write>) -> Result<()> {
    if tally.failures.len() > limit {
        return Ok(());
    }
    let of_all = tally.failures.iter().filter(|failure| failure.of_all);
    let whole: BTreeMap<_, _> = of_all.filter_map(|all| Some((all.step?, all.name.clone()))).collect();
    for (&place, name) in &whole {
        out.line("", &format!("== {name} once more, alone"))?;
        let second = steps[place].run(place, &[], out)?;
        if has_passed(&second) {
            tally.passed_whole(place, second);
        }
    }
    retry_tests(tally, &whole.into_keys().collect(), steps, out)
}

/// Runs each failed test again, alone. A test of a step in `whole` is left out: it has run with all of its step.
fn retry_tests(
    tally: &mut Tally,
    whole: &BTreeSet<usize>,
    steps: &[Step],
    out: &Output<impl Write>,
) -> Result<()> {
    for index in (0..tally.failures.len()).rev() {
        let Failure { name, step: Some(place), .. } = &tally.failures[index] else { continue };
        if whole.contains(place) {
            continue;
        }
        let step = &steps[*place];
        out.line("", &format!("== {name} once more, alone"))?;
        if has_passed(&step.run(*place, &step.alone(name), out)?) {
            tally.passed_alone(index);
        }
    }
    Ok(())
}

/// Whether tests have run, and all of them passed.
fn has_passed(second: &Tally) -> bool {
    second.failures.is_empty() && second.passed() > 0
}

fn cargo_test(root: &Path, skip_log: &Path, cargo_args: &[String]) -> Command {
    let mut command = crate::cargo();
    command.arg("test").arg("--no-fail-fast").args(cargo_args).current_dir(root);
    with_variables(command, skip_log)
}

/// With what tests read.
fn with_variables(mut command: Command, skip_log: &Path) -> Command {
    command.env(SKIP_LOG, skip_log);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    command
}

/// Prints the result; the last line has only the counts.
fn conclude(
    mut tally: Tally,
    skips: &BTreeMap<String, String>,
    without: &BTreeMap<String, String>,
    strict: bool,
) -> Result<ExitCode> {
    let skipped = skips.len() + tally.ignored();
    let passed = tally.passed().saturating_sub(skips.len() + without.len());
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
    if tally.ignored() > 0 {
        println!("SKIPPED: {} tests marked #[ignore]", tally.ignored());
    }
    tally.waits.sort_by_key(|(wait, _)| std::cmp::Reverse(*wait));
    for (wait, name) in tally.waits.iter().take(SLOWEST) {
        println!("waited {:3.0} s for {name}", wait.as_secs_f64());
    }
    if strict && skipped > 0 {
        println!("{REQUIRE_ALL}=1: a skipped test is a failed one");
    }
    let (counted_as_failed, counted_as_skipped) = if strict { (skipped, 0) } else { (0, skipped) };
    let (failed, counted_as_skipped) =
        (tally.failures.len() + counted_as_failed, without.len() + counted_as_skipped);
    if let Some(path) = std::env::var_os(COUNTS_FILE) {
        let counts = format!("{passed} {failed} {counted_as_skipped}\n");
        std::fs::write(&path, counts).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("{passed} passed, {failed} failed, {counted_as_skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Runs a script in place of each program of tests. A second time it is told which test alone.
    fn scripts(scripts: &[&str]) -> Vec<Step> {
        let step = |(number, script): (usize, &&str)| {
            let script = (*script).to_owned();
            let command = move || {
                let mut command = Command::new("sh");
                command.args(["-c", &script, "sh"]);
                command
            };
            Step { name: format!("program {number}"), command: Box::new(command), is_program: true }
        };
        scripts.iter().enumerate().map(step).collect()
    }

    fn silent() -> Output<std::io::Sink> {
        Output::new(std::io::sink())
    }

    /// Two programs with one failure each; alone, the first one's passes.
    fn two_failures() -> Vec<Step> {
        scripts(&[
            "[ \"$*\" = '--exact a::b' ] && { echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit; }; \
             echo 'test a::b ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101",
            "echo 'test c ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101",
        ])
    }

    #[test]
    fn a_test_that_passes_alone_is_flaky_and_one_that_fails_again_has_failed() {
        let steps = two_failures();
        let mut tally = run_steps(&steps, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len()), (1, 2));
        retry(&mut tally, 2, &steps, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len()), (2, 1));
        assert_eq!(tally.flaky, ["a::b"]);
        assert_eq!(tally.failures[0].name, "c");
    }

    #[test]
    fn nothing_is_tried_again_once_more_failed_than_may() {
        let steps = two_failures();
        let mut tally = run_steps(&steps, &silent()).expect("sh runs");
        retry(&mut tally, 1, &steps, &silent()).expect("sh runs");
        assert_eq!((tally.failures.len(), tally.flaky.len()), (2, 0));
    }

    #[test]
    fn every_program_runs_once_and_two_at_a_time() {
        let folder = std::env::temp_dir().join(format!("twinpath-lanes-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let ok = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        // Either of the first two waits until the other one has begun, or fails in the end.
        let meets = |own: &str, other: &str| {
            format!(
                "cd {}; touch {own}; i=0; until [ -e {other} ] || [ $i = 1000000 ]; do i=$((i + 1)); done; \
                 [ -e {other} ] && {ok}",
                folder.display()
            )
        };
        let steps = scripts(&[&meets("a", "b"), &meets("b", "a"), ok, ok]);
        let tally = run_steps(&steps, &silent()).expect("sh runs");
        std::fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!((tally.passed(), tally.failures.len()), (4, 0), "{tally:?}");
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
        let stuck = "echo 'running 2 tests'; echo 'test a::b ... ok'; \
             echo 'test c has been running for over 60 seconds'; sh -c 'cat; :' < /dev/zero > /dev/null";
        let out = Output::new(Vec::new());
        let run = scripts(&[stuck])[0].run_watched(0, &[], &out, Duration::from_millis(300));
        let mut tally = run.expect("sh runs");
        let out = String::from_utf8_lossy(&out.into_inner()).into_owned();
        assert!(out.contains("cat; :") && out.contains("cat: syscall"), "{out}");
        assert_eq!((tally.passed(), tally.failures.len()), (0, 1));
        assert!(tally.failures[0].name.ends_with(": c"), "{:?}", tally.failures);
        // All of it runs again, and counts.
        let again = scripts(&["[ $# = 0 ] && echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"]);
        retry(&mut tally, 1, &again, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len(), tally.flaky.len()), (2, 0, 1));
    }

    /// A program says that the test `a` failed, and then ends as `end` has it.
    fn fails_and(end: &str) -> Tally {
        // Both lines at once: it must not be stuck between them.
        let script = format!("printf 'running 3 tests\\ntest a ... FAILED\\n'; {end}");
        scripts(&[&script])[0].run_watched(0, &[], &silent(), Duration::from_millis(300)).expect("sh runs")
    }

    /// Only a whole run that is good takes those two failures back.
    fn is_green_only_after_a_whole_run(mut tally: Tally) {
        assert_eq!((tally.passed(), tally.failures.len()), (0, 2), "{tally:?}");
        let alone =
            scripts(&["[ $# = 0 ] && exit 101; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'"]);
        retry(&mut tally, 2, &alone, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len()), (0, 2), "{tally:?}");
        let whole = scripts(&["[ $# = 0 ] && echo 'test result: ok. 3 passed; 0 failed; 0 ignored'"]);
        retry(&mut tally, 2, &whole, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len(), tally.flaky.len()), (3, 0, 2), "{tally:?}");
    }

    #[test]
    fn a_program_that_crashed_after_a_failure_is_green_only_after_a_whole_run() {
        is_green_only_after_a_whole_run(fails_and("kill -ABRT $$"));
    }

    #[test]
    fn a_program_that_was_stuck_after_a_failure_is_green_only_after_a_whole_run() {
        is_green_only_after_a_whole_run(fails_and("exec tail -f /dev/null"));
    }

    #[test]
    fn a_second_run_of_what_cargo_ran_replaces_its_counts() {
        let mut steps =
            scripts(&["echo 'running 1 test'; echo 'test result: ok. 5 passed; 0 failed; 1 ignored'; \
             echo 'running 1 test'; kill -ABRT $$"]);
        steps[0].is_program = false;
        let mut tally = run_steps(&steps, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len()), (5, 1));
        let again = scripts(&["echo 'test result: ok. 6 passed; 0 failed; 1 ignored'"]);
        retry(&mut tally, 1, &again, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.ignored(), tally.failures.len()), (6, 1, 0));
    }

    #[test]
    fn a_test_alone_is_named_behind_the_first_two_dashes() {
        let words = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            let command = move || cargo_test(Path::new("/"), Path::new("/log"), &arguments);
            Step { name: String::new(), command: Box::new(command), is_program: false }.alone("a::b")
        };
        assert_eq!(words(&["-p", "x", "a"]), ["--", "--exact", "a::b"]);
        assert_eq!(words(&["-p", "x", "--", "--test-threads=1"]), ["--exact", "a::b"]);
        assert_eq!(words(&["-p", "x", "--", "--exact", "a::b"]), ["a::b"]);
    }

    #[test]
    fn a_program_that_dies_without_a_verdict_is_a_failure() {
        let steps = scripts(&["echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101"]);
        let tally = run_steps(&steps, &silent()).expect("sh runs");
        assert_eq!((tally.passed(), tally.failures.len()), (2, 1));
    }
}
