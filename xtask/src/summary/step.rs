//! One step of the tests: a program of tests or a command of cargo, its output, and its end if it is stuck.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::tally::{Reading, Tally};

/// Longest time without a line of a program that runs tests. The longest test of a run takes a quarter of it.
const SILENCE: Duration = Duration::from_secs(300);

/// The variable that is set where tests repeat what they do for hours.
const IN_FULL: &str = "TWINPATH_TESTS_IN_FULL";

/// One step of the tests.
pub(super) struct Step {
    /// What the lines of its output begin with, as others run at the same time.
    pub(super) name: String,
    /// Makes its command, also for a second time.
    pub(super) command: Box<dyn Fn() -> Command + Sync>,
    /// Whether the command runs tests itself, and is not cargo.
    pub(super) is_program: bool,
}

/// Where the lines of all steps go.
pub(super) struct Output<W>(Mutex<W>);

impl<W: Write> Output<W> {
    pub(super) fn new(out: W) -> Self {
        Self(Mutex::new(out))
    }

    #[cfg(test)]
    pub(super) fn into_inner(self) -> W {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn line(&self, name: &str, line: &str) -> Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (name, line) {
            ("", _) => writeln!(out, "{line}"),
            // It would separate nothing, between lines of other programs.
            (_, "") => Ok(()),
            _ => writeln!(out, "{name}: {line}"),
        }
        .context("writing to the terminal")
    }
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

impl Step {
    /// The words at the end of its command with which it runs that test alone. Cargo hands on what stands behind the
    /// first `--`, and libtest takes `--exact` only once.
    pub(super) fn alone(&self, test: &str) -> Vec<String> {
        let command = (self.command)();
        let arguments: Vec<_> = command.get_args().collect();
        let behind = arguments.iter().position(|argument| *argument == "--").map(|at| &arguments[at + 1..]);
        let words: &[&str] = match behind {
            _ if self.is_program => &["--exact", test],
            None => &["--", "--exact", test],
            Some(behind) if behind.iter().any(|argument| *argument == "--exact") => &[test],
            Some(_) => &["--exact", test],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Runs it, passing its output through to `out`. `place` is its place among all steps, and `words` end its command.
    pub(super) fn run(&self, place: usize, words: &[String], out: &Output<impl Write>) -> Result<Tally> {
        let in_full = std::env::var_os(IN_FULL).is_some_and(|value| value == "1");
        self.run_watched(place, words, out, if in_full { Duration::MAX } else { SILENCE })
    }

    /// The same, where a program that runs tests is stuck after `silence` without a line.
    pub(super) fn run_watched(
        &self,
        place: usize,
        words: &[String],
        out: &Output<impl Write>,
        silence: Duration,
    ) -> Result<Tally> {
        let what = &self.name;
        // One pipe for both, so that what a test prints is where it was printed.
        let (output, ours) = std::io::pipe().context("making a pipe")?;
        let errors = ours.try_clone().context("duplicating a pipe")?;
        let mut command = (self.command)();
        let mut child = command
            .args(words)
            .stdout(ours)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("starting {what}"))?;
        // The child alone holds the writing end now, or the output would never end.
        drop(command);
        let mut reading = Reading::new(what, place, self.is_program);
        let mut before = Instant::now();
        let (line_read, lines) = channel();
        // It ends with the output.
        let reader = std::thread::spawn(move || {
            BufReader::new(output).split(b'\n').try_for_each(|line| line_read.send(line)).unwrap_or(());
        });
        loop {
            let line = match lines.recv_timeout(silence) {
                Ok(line) => line.with_context(|| format!("reading the output of {what}"))?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if reading.is_running => {
                    let name = reading.is_stuck(silence.as_secs());
                    out.line(what, &format!("== {name}"))?;
                    self.end_stuck(&child, out)?;
                    continue;
                }
                // Cargo builds.
                Err(RecvTimeoutError::Timeout) => continue,
            };
            let line = String::from_utf8_lossy(&line);
            out.line(what, &line)?;
            reading.take_line(&line);
            let test = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
            if let Some((name, _)) = test {
                reading.tally.waits.push((before.elapsed(), name.to_owned()));
            }
            // Before the first test of a program it was built, or started.
            if test.is_some() || line.starts_with("running ") {
                before = Instant::now();
            }
        }
        reader.join().map_err(|_| anyhow!("the thread that reads the output has panicked"))?;
        let status = child.wait().with_context(|| format!("waiting for {what}"))?;
        Ok(reading.end(status))
    }

    /// Says what each thread of a stuck program waits for, and kills it and all that it has started. Of cargo, its children: it goes on
    /// with the next program.
    fn end_stuck(&self, child: &Child, out: &Output<impl Write>) -> Result<()> {
        let itself = self.is_program.then_some(child.id());
        let stuck: Vec<u32> = itself.into_iter().chain(descendants(child.id())).collect();
        for process in &stuck {
            let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            out.line(&self.name, &format!("process {process}: {}", command.replace('\0', " ")))?;
            for thread in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
                let of = |file: &str| {
                    let text = std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
                    // The kernel's stack takes a line each.
                    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
                };
                let line = format!("    {}: syscall {}; {}", of("comm"), of("syscall"), of("stack"));
                out.line(&self.name, &line)?;
            }
        }
        // With gdb, the stacks in the programs too; without it, what the kernel says has to do.
        for process in &stuck {
            let batch = ["-batch", "-ex", "thread apply all bt 30", "-p", &process.to_string()];
            let Ok(stacks) = Command::new("gdb").args(batch).stderr(Stdio::null()).output() else { break };
            let stacks = String::from_utf8_lossy(&stacks.stdout);
            stacks.lines().try_for_each(|line| out.line(&self.name, line))?;
        }
        let ids = stuck.iter().map(ToString::to_string);
        Command::new("kill").arg("-KILL").args(ids).status().context("starting kill")?;
        Ok(())
    }
}
