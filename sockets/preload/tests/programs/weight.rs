//! What the library takes of a program: memory and descriptors, which are compared with those of the program alone.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use twinpath_test_rig::{root_or_skip, skip};
use twinpath_worker::idle::Mode;

use crate::link::{Echo, Link, output_of, run};
use crate::{PROGRAMS, own, rule, with_library};

/// What a process with a lease may have more than alone, KiB, and one without.
const WITH_LEASE_KIB: i64 = 1024;
const WITHOUT_LEASE_KIB: i64 = 512;
/// Descriptors of the library where there is a lease; without one it has none. Programs expect to get lower numbers than theirs.
const DESCRIPTORS: usize = 3;
const LOWEST: u32 = 100;
/// The file of --explain stays open.
const EXPLAIN: usize = 1;

struct Bench {
    folder: tempfile::TempDir,
    link: Link,
    program: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/weight.c");
        let program = folder.path().join("weight");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
        run(compiler.arg(source).arg("-o").arg(&program));
        own(&link, &folder.path().join(PROGRAMS));
        Self { folder, link, program }
    }

    /// With the library or alone.
    fn command<'a>(&self, command: &'a mut Command, with: bool) -> &'a mut Command {
        if with {
            let explain = self.folder.path().join("explain");
            with_library(command, rule(Mode::Poll), &explain);
        }
        self.link.within(command)
    }

    fn start(&self, with: bool) -> Program {
        Program::new(
            self.command(Command::new(&self.program).stdin(Stdio::piped()).stdout(Stdio::piped()), with),
        )
    }
}

struct Program {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn new(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    /// The number that it answers.
    fn ask(&mut self, what: &str) -> u32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.said.next().unwrap().unwrap().parse().unwrap()
    }

    fn weight(&self) -> Weight {
        Weight::of(self.child.id())
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// What a process holds.
struct Weight {
    memory_kib: i64,
    descriptors: BTreeSet<u32>,
}

impl Weight {
    fn of(process: u32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
        let names = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let number = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap().parse().unwrap()
        };
        Self { memory_kib: memory_kib(&maps), descriptors: names.map(number).collect() }
    }
}

/// The memory of a process by its `smaps`, without pages as they are in files: the kernel takes these back whenever it likes, and counts
/// them by how many other processes have them just now.
fn memory_kib(maps: &str) -> i64 {
    let (mut is_file, mut sum) = (false, 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Pss:", kib, "kB"] if !is_file => sum += kib.parse::<i64>().unwrap(),
            ["Anonymous:", kib, "kB"] if is_file => sum += kib.parse::<i64>().unwrap(),
            [first, ..] if first.ends_with(':') => {}
            // Of each mapping first: addresses, rights, place in the file, device, inode, path.
            [_, _, _, device, ..] => {
                is_file = *device != "00:00" && words.last().is_some_and(|path| path.starts_with('/'))
            }
            _ => {}
        }
    }
    sum
}

/// Says what the library takes, and adds what is too much.
fn compare(what: &str, alone: &Weight, with: &Weight, has_lease: bool, wrong: &mut Vec<String>) {
    let more_kib = with.memory_kib - alone.memory_kib;
    let more: Vec<u32> = with.descriptors.difference(&alone.descriptors).copied().collect();
    let (most_kib, most) = if has_lease { (WITH_LEASE_KIB, DESCRIPTORS) } else { (WITHOUT_LEASE_KIB, 0) };
    let most = most + EXPLAIN;
    let line = format!(
        "{what}: {} KiB alone, {more_kib} KiB more (at most {most_kib}); descriptors more: {more:?} (at most {most}, from {LOWEST} on)",
        alone.memory_kib
    );
    println!("{line}");
    if more_kib > most_kib || more.len() > most || more.iter().any(|number| *number < LOWEST) {
        wrong.push(line);
    }
}

#[test]
fn a_program_has_hardly_more_memory_and_descriptors_than_alone() {
    if !root_or_skip() {
        return;
    }
    let bench = Bench::new();
    let _echo = Echo::new(&bench.link);
    let weights = |with| {
        let mut program = bench.start(with);
        // An answer says that the program has begun.
        program.ask("begin");
        let begun = program.weight();
        program.ask("bind");
        program.ask("receive");
        let received = program.weight();
        let child = Weight::of(program.ask("fork"));
        program.end();
        [begun, received, child]
    };
    let (alone, with) = (weights(false), weights(true));
    let mut wrong = Vec::new();
    let what = [("without a lease", false), ("with a lease", true), ("a child that receives", true)];
    for ((what, has_lease), (alone, with)) in what.into_iter().zip(alone.iter().zip(&with)) {
        compare(what, alone, with, has_lease, &mut wrong);
    }
    let text = std::fs::read_to_string(bench.folder.path().join("explain")).unwrap();
    assert!(text.contains(": fast path on in0"), "{text}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_program_has_as_many_sockets_as_alone_where_descriptors_are_few() {
    if !root_or_skip() {
        return;
    }
    let bench = Bench::new();
    let sockets = |with: bool| {
        let mut command = Command::new("prlimit");
        command.arg("--nofile=64").arg(&bench.program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::new(bench.command(&mut command, with));
        let sockets = program.ask("fill");
        program.end();
        sockets
    };
    // The connection to the owner has one, and the file of --explain.
    assert_eq!(sockets(true) + 1 + EXPLAIN as u32, sockets(false));
}

#[test]
fn valgrind_finds_nothing_that_leaks() {
    if !root_or_skip() {
        return;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("there is no valgrind here");
    }
    let bench = Bench::new();
    let _echo = Echo::new(&bench.link);
    for with in [false, true] {
        let input = bench.folder.path().join("input");
        std::fs::write(&input, "bind\nreceive\nend\n").unwrap();
        let mut command = Command::new("sh");
        // The shell opens the input, as what is asked for by `output_of` has none.
        let line = "exec valgrind -q --leak-check=full --show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible \
                    --error-exitcode=9 \"$0\" <\"$1\"";
        command.args(["-c", line]).arg(&bench.program).arg(&input);
        let output = output_of(bench.command(&mut command, with));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "with the library: {with}: {}: {said}", output.status);
    }
}
