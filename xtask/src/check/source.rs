//! Rules about Rust code.

use super::facts::{Facts, Function, Place};
use super::{Finding, Source, Tree, first_of};

/// Maximum lines of a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 70;

/// At most one function in this many may be longer.
const ONE_LONG_IN: usize = 100;

/// Longer functions, each with its reason: `(file, function, reason)`.
///
/// An entry whose function has become short, or is gone, must be removed, so the list only shrinks.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Names that a tier must not use outside its tests, with what to use instead.
struct Banned {
    tiers: &'static [&'static str],
    /// A path as it is imported or written in full; everything below it is included.
    name: &'static str,
    instead: &'static str,
}

const BELOW_IO: &[&str] = &["pure", "engine"];
const BELOW_RUNTIME_WITHOUT_IO: &[&str] = &["pure", "memory", "engine"];

const CLOCK: &str =
    "take `now: twinpath_time::Instant` as an argument; the worker reads the clock once per turn";
const THREAD: &str = "make it a function of (state, now, input); the tier runtime owns the threads";
const OUTSIDE: &str = "take the bytes or values as arguments; the tiers io and runtime talk to the host";

const BANNED: &[Banned] = &[
    Banned { tiers: BELOW_RUNTIME_WITHOUT_IO, name: "std::time::Instant", instead: CLOCK },
    Banned { tiers: BELOW_RUNTIME_WITHOUT_IO, name: "std::time::SystemTime", instead: CLOCK },
    Banned { tiers: BELOW_RUNTIME_WITHOUT_IO, name: "std::time::*", instead: CLOCK },
    Banned { tiers: BELOW_RUNTIME_WITHOUT_IO, name: "clock_gettime", instead: CLOCK },
    Banned { tiers: BELOW_RUNTIME_WITHOUT_IO, name: "std::thread", instead: THREAD },
    Banned { tiers: BELOW_IO, name: "std::fs", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::env", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::process", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::os", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::net::TcpStream", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::net::TcpListener", instead: OUTSIDE },
    Banned { tiers: BELOW_IO, name: "std::net::UdpSocket", instead: OUTSIDE },
];

/// Names of the clock that can be set, forward or back.
const WALL_CLOCKS: &[&str] = &["std::time::SystemTime", "UNIX_EPOCH", "CLOCK_REALTIME", "ClockId::Realtime"];

/// Where it may be read: for output that people read, which is never compared with anything; and in the one file that
/// computes how old the kernel's stamp on a packet is, as those stamps are of this clock; and once at the start of the
/// memcached example, whose clients give dates.
const WALL_CLOCK_AT: &[&str] = &[
    "lab/lab/src/lab/",
    "cli/src/bench/moment.rs",
    "host/observe/src/capture/mod.rs",
    "core/sys/src/stamp.rs",
    "api/twinpath/examples/memcached/calendar.rs",
];

/// Calls that wait for a timer tick. They are forbidden in tests too.
const SLEEPS: &[&str] =
    &["thread::sleep", "thread::sleep_until", "thread::park_timeout", "usleep", "nanosleep"];

/// Macros that mark unfinished code.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "write it, or return an error that says what is missing"),
    ("unimplemented!", "write it, or return an error that says what is missing"),
    ("dbg!", "use tracing, or a counter"),
];

/// Code that runs in children of programs, which may be forked while any thread does anything.
const RUNS_IN_CHILDREN: &[&str] = &[
    "core/sys/src/",
    "sockets/leases/src/",
    "sockets/calls/src/",
    "sockets/preload/src/",
    "sockets/preloader/src/",
    "sockets/capi/src/",
];

/// Types of which a static value makes a thread wait for another one, which a forked child does not have.
const WAITS: &[&str] = &["Mutex", "RwLock", "Condvar", "Once", "OnceLock", "LazyLock"];

/// Those that no child waits for, each with its reason: `(file, static, reason)`. An entry without its static must be removed.
const NEVER_WAITED_FOR: &[(&str, &str, &str)] = &[
    (
        "sockets/calls/src/earning.rs",
        "REQUESTS",
        "it is only tried, and a child that finds it taken asks for no lease",
    ),
    ("sockets/calls/src/table.rs", "TELL", "it is set when the library is loaded"),
    ("sockets/calls/src/table.rs", "ONCE", "it is called when the library is loaded"),
    ("sockets/preload/src/started.rs", "STARTED", "it is set when the library is loaded"),
];

/// Words in comments that mark unfinished code, written so that this file does not contain them.
const UNFINISHED_WORDS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("(being ", "written)")];

pub(super) fn every_file_parses(tree: &Tree) -> Vec<Finding> {
    let failing = |source: &Source| {
        let error = source.facts.as_ref().err()?;
        Some(Finding::error(&source.path, error.span().start().line, format!("does not parse: {error}")))
    };
    tree.sources.iter().filter_map(failing).collect()
}

/// `unsafe` is allowed only in the tiers that share memory with the kernel or another process, and in the one that C calls; not even in
/// tests elsewhere.
pub(super) fn unsafe_stays_in_its_tiers(tree: &Tree) -> Vec<Finding> {
    let is_outside = |source: &Source| !matches!(tree.tier_of(&source.path), "memory" | "io" | "c-abi");
    let outside = tree.parsed().filter(|(source, _)| is_outside(source));
    let in_file = |(source, facts): (&Source, &Facts)| -> Vec<Finding> {
        let message = "unsafe outside the tiers memory, io and c-abi: give one of their crates a safe call for it and use that";
        facts.unsafes.iter().map(|found| Finding::error(&source.path, found.at.line, message)).collect()
    };
    outside.flat_map(in_file).collect()
}

/// Each unsafe block and impl has its SAFETY comment directly above it, or above the statement that contains it.
pub(super) fn each_unsafe_says_why_it_is_sound(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (source, facts) in tree.parsed() {
        for found in &facts.unsafes {
            let (mark, message) = if found.function {
                ("# Safety", "unsafe fn without a `# Safety` section: say what the caller must hold to")
            } else {
                ("SAFETY:", "unsafe without a remark: put `// SAFETY: why it is sound` directly above it")
            };
            let above = |line| facts.remarks_above(line).any(|remark| remark.contains(mark));
            if !above(found.at.line) && !above(found.statement_line) {
                findings.push(Finding::error(&source.path, found.at.line, message));
            }
        }
    }
    findings
}

/// A file with `unsafe` must allow it explicitly, with a reason.
pub(super) fn unsafe_is_allowed_with_a_reason(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (source, facts) in tree.parsed() {
        let allows: Vec<_> =
            facts.attributes.iter().filter(|(text, _)| text.contains("unsafe_code")).collect();
        if let Some(first) = facts.unsafes.first()
            && allows.is_empty()
        {
            let message = "unsafe in a file that does not opt in: add `#![allow(unsafe_code, reason = \"...\")]` at its top";
            findings.push(Finding::error(&source.path, first.at.line, message));
        }
        for (_, at) in allows.iter().filter(|(text, _)| !text.contains("reason=")) {
            let message =
                "unsafe_code allowed without a reason: write `#[allow(unsafe_code, reason = \"...\")]`";
            findings.push(Finding::error(&source.path, at.line, message));
        }
    }
    findings
}

/// Engines and the tiers below get the time and their input as arguments.
pub(super) fn tiers_keep_off_clocks_threads_and_files(tree: &Tree) -> Vec<Finding> {
    each_name(tree, |source, name, at| {
        if source.test || at.test {
            return None;
        }
        let tier = tree.tier_of(&source.path);
        let hit =
            BANNED.iter().find(|banned| banned.tiers.contains(&tier) && is_or_below(name, banned.name))?;
        Some(format!("{name} in the tier {tier}: {}", hit.instead))
    })
}

/// Setting the clock of a running machine must have no effect: durations and deadlines are of CLOCK_MONOTONIC.
pub(super) fn nothing_depends_on_the_wall_clock(tree: &Tree) -> Vec<Finding> {
    each_name(tree, |source, name, at| {
        let free = source.test
            || at.test
            || matches!(first_of(&source.path), "test" | "xtask")
            || WALL_CLOCK_AT.iter().any(|place| source.path.starts_with(place));
        let wall = |clock: &&str| is_or_below(name, clock) || name.ends_with(&format!("::{clock}"));
        let hit = WALL_CLOCKS.iter().find(|clock| wall(clock)).filter(|_| !free)?;
        Some(format!("{name}: {hit} may be set while we run; twinpath_sys::clock can't"))
    })
}

/// Whether `name` is `banned`, something below it, or ends with it if `banned` is a single word (a function's name).
fn is_or_below(name: &str, banned: &str) -> bool {
    let below = name.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    below || (!banned.contains("::") && name.rsplit("::").next() == Some(banned))
}

pub(super) fn nothing_panics_by_unwrap(tree: &Tree) -> Vec<Finding> {
    each_name(tree, |source, name, at| {
        let product = !source.test && !at.test && first_of(&source.path) != "xtask";
        let message =
            "unwrap() outside tests: return an error, or `expect(\"the invariant\")` where it cannot fail";
        (product && name == ".unwrap").then(|| message.to_owned())
    })
}

pub(super) fn nothing_sleeps_on_a_tick(tree: &Tree) -> Vec<Finding> {
    each_name(tree, |_, name, _| {
        let sleeps = SLEEPS.iter().any(|sleep| name == *sleep || name.ends_with(&format!("::{sleep}")));
        let message = "wait on an fd or an exact deadline (epoll with a timerfd): a short sleep lasts up to a timer tick";
        sleeps.then(|| format!("{name}: {message}"))
    })
}

/// Where a feature of a crate is off, what it alone uses is dead. Where it is on, the compiler looks.
const PART_OF_A_CRATE: &str = "cfg_attr(not(feature=";

/// No code is unfinished, and no warning about dead code is silenced.
pub(super) fn children_wait_for_no_lock_of_a_parent(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.test) {
        let Ok(facts) = &source.facts else { continue };
        let is_free =
            |name: &str| NEVER_WAITED_FOR.iter().any(|(path, free, _)| *path == source.path && *free == name);
        let runs_in_children = RUNS_IN_CHILDREN.iter().any(|place| source.path.starts_with(place));
        for (name, of, at) in &facts.statics {
            if runs_in_children && !at.test && WAITS.contains(&of.as_str()) && !is_free(name) {
                let message = format!(
                    "static {name}: {of}: a child that is forked while another thread has it waits for ever; \
                     use twinpath_sys::fork::OfProcess, or an atomic"
                );
                found.push(Finding { path: source.path.clone(), line: at.line, message });
            }
        }
        for (path, name, _) in NEVER_WAITED_FOR.iter().filter(|(path, ..)| *path == source.path) {
            if !facts.statics.iter().any(|(known, ..)| known == name) {
                let message = format!("NEVER_WAITED_FOR names {name}, which {path} does not have");
                found.push(Finding { path: source.path.clone(), line: 0, message });
            }
        }
    }
    found
}

pub(super) fn nothing_is_unfinished_or_silenced(tree: &Tree) -> Vec<Finding> {
    let mut findings = each_name(tree, |_, name, _| {
        UNFINISHED.iter().find(|(banned, _)| *banned == name).map(|(_, instead)| format!("{name}: {instead}"))
    });
    for (source, facts) in tree.parsed() {
        for (text, at) in &facts.attributes {
            let silences =
                text.starts_with("allow(") || text.starts_with("expect(") || text.starts_with("cfg_attr(");
            if text == "ignore" || text.starts_with("ignore(") {
                let message = "#[ignore]: make the test quick, let it skip and say why, or make a measurement an example";
                findings.push(Finding::error(&source.path, at.line, message));
            } else if !text.starts_with(PART_OF_A_CRATE)
                && silences
                && (text.contains("dead_code") || text.contains("allow(unused"))
            {
                let message = format!("#[{text}]: remove what is not used; git remembers it");
                findings.push(Finding::error(&source.path, at.line, message));
            }
        }
        for (index, line) in facts.lines.iter().enumerate() {
            if let Some(word) = UNFINISHED_WORDS.iter().find(|word| line.contains(**word)) {
                let message = format!("`{word}`: finish it, or say in docs/ what is not done and why");
                findings.push(Finding::error(&source.path, index + 1, message));
            }
        }
    }
    findings
}

/// Functions are short, with a list of exceptions that only shrinks.
pub(super) fn functions_are_short(tree: &Tree) -> Vec<Finding> {
    let all = product_functions(tree);
    let long: Vec<_> = all.iter().filter(|(_, function)| function.lines > FUNCTION_LINES).copied().collect();
    ratchet(&long, all.len(), LONG_FUNCTIONS)
}

/// Every function outside tests.
pub(super) fn product_functions(tree: &Tree) -> Vec<(&Source, &Function)> {
    let mut found = Vec::new();
    for (source, facts) in tree.parsed().filter(|(source, _)| !source.test) {
        found.extend(
            facts.functions.iter().filter(|function| !function.at.test).map(|function| (source, function)),
        );
    }
    found
}

/// Compares the functions that are too `long`, out of `all`, with the `excused` ones.
pub(super) fn ratchet(
    long: &[(&Source, &Function)],
    all: usize,
    excused: &[(&str, &str, &str)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (source, function) in long {
        if excused.iter().any(|(path, name, _)| *path == source.path && *name == function.name) {
            continue;
        }
        let message = format!(
            "fn {} has {} lines of {FUNCTION_LINES}: give its parts names (or state the reason in LONG_FUNCTIONS)",
            function.name, function.lines
        );
        findings.push(Finding::error(&source.path, function.at.line, message));
    }
    for (path, name, _) in excused {
        if !long.iter().any(|(source, function)| *path == source.path && *name == function.name) {
            let message = format!("fn {name} is short now: remove it from LONG_FUNCTIONS");
            findings.push(Finding::error(path, 0, message));
        }
    }
    if long.len() * ONE_LONG_IN > all && !long.is_empty() && all >= ONE_LONG_IN {
        let message =
            format!("{} of {all} functions are too long: at most 1 in {ONE_LONG_IN} may be", long.len());
        findings.push(Finding::error("xtask/src/check/source.rs", 0, message));
    }
    findings
}

/// The first file of a crate begins with a description of the crate.
pub(super) fn crates_say_what_they_are(tree: &Tree) -> Vec<Finding> {
    let roots = tree
        .parsed()
        .filter(|(source, _)| source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs"));
    let silent = roots.filter(|(_, facts)| !facts.line(1).starts_with("//!"));
    let message = "no header: begin with `//!` lines that say what the crate is and what it never does";
    silent.map(|(source, _)| Finding::error(&source.path, 1, message)).collect()
}

/// Every file of the product begins with a sentence on what it is for.
pub(super) fn files_say_what_they_are_for(tree: &Tree) -> Vec<Finding> {
    let silent = tree.parsed().filter(|(source, facts)| !source.test && !facts.line(1).starts_with("//!"));
    let message = "no first comment: begin with a `//!` sentence that says what the file is for";
    silent.map(|(source, _)| Finding::error(&source.path, 1, message)).collect()
}

/// One finding per name for which `judge` has a message.
fn each_name(tree: &Tree, judge: impl Fn(&Source, &str, Place) -> Option<String>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (source, facts) in tree.parsed() {
        for (name, at) in &facts.names {
            if let Some(message) = judge(source, name, *at) {
                findings.push(Finding::error(&source.path, at.line, message));
            }
        }
    }
    findings.dedup();
    findings
}
