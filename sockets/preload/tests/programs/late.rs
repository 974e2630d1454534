//! The library with the hooks is loaded when a program makes its first UDP socket, also where that is awkward.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use twinpath_leases::rules::RULES_VARIABLE;
use twinpath_preloader::given::{FUNCTION, LAYOUT, OTHER};
use twinpath_preloader::hooks::{NAMES, OF_THE_OTHER};
use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Link, output_of, run};
use crate::{HOOKS, PROGRAMS, library, own, rule, with_library};

/// At the start. Those of functions of the C library are looked up at their first calls.
const RELOCATIONS_MAX: usize = 8;

/// What the program does before it makes its socket.
const ALL: [&str; 14] = [
    "plain",
    "full",
    "cleared",
    "chroot",
    "prctl",
    "syscall",
    "fork",
    "_Fork",
    "vfork",
    "handler",
    "held",
    "epoll",
    "thread",
    "allocator",
];

/// What it does with a plugin before.
const PLUGINS: [&str; 5] = ["plugin_alone", "plugin_thread", "plugin_nested", "plugin_end", "plugin_pool"];

const TRIES: u16 = 30;

#[test]
fn the_first_socket_has_the_fast_path_wherever_it_is_made() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let program = built(folder.path());
    for (what, port) in ALL.into_iter().zip((7120..).step_by(2)) {
        let explain = folder.path().join(format!("explain-{what}"));
        let mut command = Command::new(&program);
        command.arg(what).arg(port.to_string()).arg(folder.path());
        let output = output_of(link.within(with_library(&mut command, rule(Mode::Poll), &explain)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout.as_slice(), &*said), (&b"0\n1\n"[..], ""), "{what}");
        let text = std::fs::read_to_string(&explain).unwrap();
        // That of the handler is the kernel's, and nothing is known of it.
        let port = if what == "handler" { port + 1 } else { port };
        // The owner of this test listens at a path, which is outside of the new root.
        assert!(
            what == "chroot" || text.contains(&format!("UDP 0.0.0.0:{port}: fast path on in0")),
            "{what}: {text}"
        );
    }
}

/// The dynamic loader's lock is another thread's meanwhile, which waits for the one that makes the socket.
#[test]
fn a_thread_for_which_a_constructor_waits_makes_the_first_socket() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let program = built(folder.path());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/plugin.c");
    let mut compiler = Command::new("cc");
    run(compiler.args(["-shared", "-fPIC"]).arg(source).arg("-o").arg(folder.path().join("plugin.so")));
    for (what, port) in PLUGINS.into_iter().zip(7190..) {
        let mut command = Command::new(&program);
        command.arg(what).arg(port.to_string()).arg(folder.path());
        let explain = folder.path().join(format!("explain-{what}"));
        let output = output_of(link.within(with_library(&mut command, rule(Mode::Poll), &explain)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout.as_slice(), &*said), (&b"0\n1\n"[..], ""), "{what}, {:?}", output.status);
    }
}

/// A child that is forked meanwhile waits for no thread of its parent. Each start of the program is one try.
#[test]
fn children_that_are_forked_while_the_library_is_loaded_go_on() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let program = built(folder.path());
    for (what, port) in ["race", "race_Fork", "race_clone"].into_iter().cycle().zip(7150..7150 + TRIES) {
        let mut command = Command::new(&program);
        command.arg(what).arg(port.to_string()).arg(folder.path());
        let explain = folder.path().join("explain");
        let output = output_of(link.within(with_library(&mut command, rule(Mode::Poll), &explain)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout.as_slice(), &*said), (&b"0\n1\n"[..], ""), "{what}, {:?}", output.status);
    }
}

/// As in a program that was started with another environment.
#[test]
fn nothing_is_loaded_without_rules() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let program = built(folder.path());
    let explain = folder.path().join("explain");
    let mut command = Command::new(&program);
    with_library(command.args(["plain", "7119", "/"]), rule(Mode::Poll), &explain).env_remove(RULES_VARIABLE);
    let output = output_of(link.within(&mut command));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"0\n0\n"[..], &b""[..]));
}

/// The program was started before an upgrade, and makes its first socket after it.
#[test]
fn a_library_of_another_version_is_left_alone() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let program = built(folder.path());
    let mut small = std::fs::read(library()).unwrap();
    let of_layout = |small: &[u8]| small.windows(8).position(|bytes| bytes == LAYOUT.to_ne_bytes());
    assert!(of_layout(&small).is_some());
    while let Some(at) = of_layout(&small) {
        small[at] ^= 1;
    }
    let former = folder.path().join("former.so");
    std::fs::write(&former, small).unwrap();
    std::fs::copy(library().with_file_name(HOOKS), folder.path().join(HOOKS)).unwrap();
    let explain = folder.path().join("explain");
    let mut command = Command::new(&program);
    with_library(command.args(["plain", "7118", "/"]), rule(Mode::Poll), &explain).env("LD_PRELOAD", former);
    let output = output_of(link.within(&mut command));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.stdout.as_slice(), &*said), (&b"0\n1\n"[..], ""));
    let text = std::fs::read_to_string(&explain).unwrap();
    assert!(text.lines().count() == 1 && text.contains(": another version was installed since"), "{text}");
}

/// One that was installed since the program was started.
#[test]
fn hooks_of_another_version_are_not_called() {
    const OTHERS: &str = "
        #include <stdlib.h>
        unsigned long twinpath_preload(void) { return 1; }
        int socket(int domain, int kind, int protocol) { abort(); }
        int bind(int fd, const void *address, unsigned len) { abort(); }
        int close(int fd) { abort(); }
    ";
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let program = built(folder.path());
    let (small, source) = (folder.path().join("small.so"), folder.path().join("others.c"));
    std::fs::copy(library(), &small).unwrap();
    std::fs::write(&source, OTHERS).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-fno-builtin", "-w"]).arg(&source);
    run(compiler.arg("-o").arg(folder.path().join(HOOKS)));
    let explain = folder.path().join("explain");
    let mut command = Command::new(&program);
    with_library(command.args(["plain", "7117", "/"]), rule(Mode::Poll), &explain).env("LD_PRELOAD", small);
    let output = output_of(link.within(&mut command));
    let said = String::from_utf8_lossy(&output.stderr);
    // It has been loaded.
    assert_eq!((output.stdout.as_slice(), &*said), (&b"0\n1\n"[..], ""), "{:?}", output.status);
}

/// Each exec pays for what is in the small library, and each call of a hook that it lacks would pass the other library by.
#[test]
fn the_small_library_is_small_and_has_all_hooks() {
    let (small, other) = (library(), library().with_file_name(HOOKS));
    let names: Vec<String> = NAMES
        .iter()
        .map(|name| name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect())
        .collect();
    let hooks: BTreeSet<_> = names.iter().take(OF_THE_OTHER).cloned().collect();
    let mut of_other = hooks;
    of_other.insert(OTHER.to_str().unwrap().to_owned());
    assert_eq!(exported_by(&other), of_other);
    let mut all: BTreeSet<_> = names.iter().cloned().collect();
    all.insert(FUNCTION.to_str().unwrap().to_owned());
    assert_eq!(exported_by(&small), all);
    assert!(std::fs::metadata(&small).unwrap().len() < 64 << 10);
    let dynamic = read_by_readelf("--dynamic", &small);
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(matches!(needed.as_slice(), [only] if only.contains("[libc.so.6]")), "{needed:?}");
    let relocations = read_by_readelf("--relocs", &small);
    let (at_start, _) = relocations.split_once(".plt'").unwrap_or((&relocations, ""));
    let count = at_start.lines().filter(|line| line.contains(" R_")).count();
    assert!(count <= RELOCATIONS_MAX, "{at_start}");
}

/// What a child touches costs a page fault for each place, so it lies in few places.
#[test]
fn what_a_child_runs_and_changes_lies_together() {
    let library = library().with_file_name(HOOKS);
    let sections = read_by_readelf("--sections", &library);
    // Without names, lengths and addresses are left: the first words are the number, the name, the kind, the address, the place, the length.
    let lens = |name: &str| {
        let line = sections.lines().find_map(|line| line.split_once(name))?.1;
        usize::from_str_radix(line.split_whitespace().nth(3)?, 16).ok()
    };
    let of_children = [".text_of_children ", ".data_of_children "].map(|name| lens(name).unwrap_or(0));
    // Two windows of a file that a fault maps, and a page.
    assert!((1 << 10..1 << 17).contains(&of_children[0]), "{sections}");
    assert!((64..1 << 12).contains(&of_children[1]), "{sections}");
    assert!(lens(".text_of_panics ").is_some_and(|len| len > 1 << 14), "{sections}");
}

fn exported_by(library: &Path) -> BTreeSet<String> {
    let symbols = read_by_readelf("--dyn-syms", library);
    let symbols = symbols.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let exported = symbols.filter_map(|symbol| match symbol[..] {
        [_, _, _, "FUNC", "GLOBAL", "DEFAULT", section, name] if section != "UND" => Some(name.to_owned()),
        _ => None,
    });
    exported.collect()
}

fn read_by_readelf(option: &str, library: &Path) -> String {
    let output = output_of(Command::new("readelf").args([option, "--wide"]).arg(library));
    String::from_utf8(output.stdout).unwrap()
}

fn built(folder: &Path) -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/late.c");
    let program = folder.join("late");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-rdynamic"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    program
}
