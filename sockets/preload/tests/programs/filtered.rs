//! The system calls that the library makes in a program: the manual has their list, for who filters them by seccomp(2), and this test
//! measures it. With `WRITE_DOCUMENTS=1` it writes the list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use twinpath_leases::rules::{OWNER_VARIABLE, Rule};
use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Echo, Link, output_of, run};
use crate::{PROGRAMS, own, received, rule, with_library};

/// What the program of the test is about, by the phases of `filtered.c`, as the manual says it.
const ROWS: [(&str, &[u32]); 3] = [
    ("the beginning, socket, bind, close, and leases", &[0, 1, 5]),
    ("receiving and waiting", &[2, 3]),
    ("fork, and sockets that processes share", &[4]),
];
/// The end is in no row of its own.
const END: (&str, &[u32]) = ("exit", &[6]);
const EXPLAINED: &str = "\\-\\-explain";
const TABLE: &str = ".\\\" System calls: measured by a test of sockets/preload, which writes this with WRITE_DOCUMENTS=1.\n.TS\nl lx.\n";

/// Runs are enough for what does not happen in each of them, as it depends on what else the machine does.
const RUNS: usize = 3;

type Calls = BTreeMap<u32, BTreeSet<u32>>;

struct Bench {
    folder: tempfile::TempDir,
    link: Link,
    watched: PathBuf,
    program: PathBuf,
    listen: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
        let build = |name: &str| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
            let program = folder.path().join(name);
            let mut compiler = Command::new("cc");
            compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
            run(compiler.arg(source).arg("-o").arg(&program));
            program
        };
        let (watched, program) = (build("watched"), build("filtered"));
        let listen = folder.path().join(PROGRAMS);
        own(&link, &listen);
        Self { folder, link, watched, program, listen }
    }

    /// The calls of each phase, with the library or without.
    fn calls(&self, rule: Option<Rule>, explain: Option<&Path>) -> Calls {
        let output = self.output(None, rule, explain);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let mut calls = Calls::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (phase, number) = line.split_once(' ').unwrap();
            calls.entry(phase.parse().unwrap()).or_default().insert(number.parse().unwrap());
        }
        calls
    }

    fn output(&self, only: Option<&BTreeSet<u32>>, rule: Option<Rule>, explain: Option<&Path>) -> Output {
        let mut command = Command::new(&self.watched);
        if let Some(only) = only {
            let list: Vec<String> = only.iter().map(u32::to_string).collect();
            command.arg(format!("-{}", list.join(",")));
        }
        command.arg("/usr/bin/env");
        if let Some(rule) = rule {
            // Not in the program that watches.
            let mut library = Command::new("env");
            with_library(&mut library, rule, explain.unwrap_or(Path::new("")));
            library.env(OWNER_VARIABLE, &self.listen);
            for (name, value) in library.get_envs() {
                let value = value.unwrap_or_default();
                command.arg(format!("{}={}", name.display(), value.display()));
            }
        }
        output_of(self.link.within(command.arg(&self.program)))
    }
}

/// However calls wait, and whether bind waits for the lease.
fn rules() -> impl Iterator<Item = Rule> {
    let modes = [Mode::Adaptive, Mode::Poll, Mode::Interrupt].into_iter();
    modes.flat_map(|mode| [true, false].map(|at_bind| Rule { at_bind, ..rule(mode) }))
}

/// The numbers of system calls here, by their names.
fn numbers() -> BTreeMap<String, u32> {
    let output = output_of(Command::new("cc").args([
        "-E",
        "-dM",
        "-include",
        "sys/syscall.h",
        "-x",
        "c",
        "/dev/null",
    ]));
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    numbers.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect()
}

fn names(calls: &BTreeSet<u32>, numbers: &BTreeMap<String, u32>) -> BTreeSet<String> {
    numbers.iter().filter(|(_, number)| calls.contains(number)).map(|(name, _)| name.clone()).collect()
}

/// What the library makes in each phase, which the program alone does not make there.
fn of_library(with: &Calls, alone: &Calls, into: &mut Calls) {
    for (phase, calls) in with {
        let own = alone.get(phase).cloned().unwrap_or_default();
        into.entry(*phase).or_default().extend(calls.difference(&own));
    }
}

fn manual() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/twinpath-run.1")
}

/// The rows of the manual's table: names of calls by what they are for.
fn listed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (_, table) = text.split_once(TABLE).expect("the manual has the table of system calls");
    let (table, _) = table.split_once(".TE\n").expect("it ends");
    let row = |text: &str| {
        let (what, names) = text.split_once("\tT{").unwrap();
        let names = names.split(|each: char| each.is_whitespace() || each == ',');
        (what.trim_start().to_owned(), names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    };
    table.split("T}\n").filter(|text| !text.is_empty()).map(row).collect()
}

fn write(rows: &BTreeMap<String, BTreeSet<String>>) {
    let text = std::fs::read_to_string(manual()).unwrap();
    let (before, table) = text.split_once(TABLE).unwrap();
    let (_, after) = table.split_once(".TE\n").unwrap();
    let order = ROWS.iter().map(|row| row.0).chain([END.0, EXPLAINED]);
    let lines = order.map(|what| {
        let names: Vec<&str> = rows.get(what).into_iter().flatten().map(String::as_str).collect();
        format!("{what}\tT{{\n{}\nT}}\n", names.join(",\n"))
    });
    std::fs::write(manual(), format!("{before}{TABLE}{}.TE\n{after}", lines.collect::<String>())).unwrap();
}

#[test]
fn a_filter_that_allows_what_the_manual_says_kills_no_program() {
    if !root_or_skip() {
        return;
    }
    let bench = Bench::new();
    let _echo = Echo::new(&bench.link);
    let explain = bench.folder.path().join("explain");
    let (mut alone, mut own, mut explained) = (Calls::new(), Calls::new(), Calls::new());
    for _ in 0..RUNS {
        for (phase, calls) in bench.calls(None, None) {
            alone.entry(phase).or_default().extend(calls);
        }
    }
    for _ in 0..RUNS {
        for rule in rules() {
            of_library(&bench.calls(Some(rule), None), &alone, &mut own);
        }
    }
    of_library(&bench.calls(Some(rule(Mode::Poll)), Some(&explain)), &alone, &mut explained);
    let (by_ring, by_kernel) = received(&explain);
    assert!(by_ring > 0, "{by_kernel} by the kernel: {}", std::fs::read_to_string(&explain).unwrap());

    let numbers = numbers();
    let of_phases = |calls: &Calls, phases: &[u32]| -> BTreeSet<u32> {
        phases.iter().filter_map(|phase| calls.get(phase)).flatten().copied().collect()
    };
    let all: Vec<u32> = own.keys().copied().collect();
    let only_explained = &of_phases(&explained, &all) - &of_phases(&own, &all);
    let mut rows: BTreeMap<String, BTreeSet<String>> = ROWS
        .iter()
        .chain([&END])
        .map(|(what, phases)| ((*what).to_owned(), names(&of_phases(&own, phases), &numbers)))
        .collect();
    rows.insert(EXPLAINED.to_owned(), names(&only_explained, &numbers));
    println!("{rows:#?}");
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        write(&rows);
    }
    let listed = listed(&std::fs::read_to_string(manual()).unwrap());
    // When a lease is asked for, and when its answer is taken up, depends on the machine: so a call may be in another row.
    let all: BTreeSet<String> = listed.values().flatten().cloned().collect();
    for (what, names) in &rows {
        let missing: Vec<&String> = names.difference(&all).collect();
        assert!(
            missing.is_empty(),
            "the manual does not say that the library calls {missing:?}, for: {what}; with WRITE_DOCUMENTS=1 this test writes its list"
        );
    }
    // Under the filter itself: what the program makes alone, and what is listed.
    let mut allowed: BTreeSet<u32> = alone.values().flatten().copied().collect();
    let all_listed = listed.values().flatten();
    allowed
        .extend(all_listed.map(|name| numbers.get(name).unwrap_or_else(|| panic!("no system call {name}"))));
    // By which the program says where it is.
    allowed.insert(numbers["prctl"]);
    for rule in rules() {
        let output = bench.output(Some(&allowed), Some(rule.clone()), Some(&explain));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{rule:?}: {}: {said}", output.status);
    }
}
