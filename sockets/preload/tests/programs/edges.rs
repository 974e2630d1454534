//! A socket at its edges: what the program prints without the library is right by definition.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use twinpath_leases::rules::{EXPLAIN_VARIABLE, OWNER_VARIABLE, Rule};
use twinpath_owner::ProgramLimits;
use twinpath_test_rig::{root_or_skip, within};
use twinpath_worker::idle::Mode;

use crate::link::{Link, output_of, run};
use crate::{own_with, received, rule, with_library};

/// The other side, in its namespace, until it is dropped.
struct Peer(Child);

impl Peer {
    fn new(link: &Link, program: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("peer").stdout(Stdio::piped());
        within(&link.peers, &mut command);
        let mut peer = command.spawn().unwrap();
        let said = BufReader::new(peer.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert_eq!(said, "ready");
        Self(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compiled(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]);
    // What no program should pass is passed on purpose.
    compiler.args(["-Wno-nonnull", "-Wno-stringop-overflow", "-Wno-stringop-overread"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    program
}

fn said(link: &Link, command: &mut Command) -> String {
    let output = output_of(link.within(command));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Runs parts of the program, which say the same in all modes.
fn says_the_same(program: &str, parts: &[&str]) {
    says_the_same_by(program, parts, rule);
}

/// As [`says_the_same`], by the rule for each mode.
fn says_the_same_by(program: &str, parts: &[&str], rule: fn(Mode) -> Rule) {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let (program, listen) = (compiled(folder.path(), program), folder.path().join("programs"));
    let _peer = Peer::new(&link, &program);
    // Programs may come and go as fast as they want.
    let limits = ProgramLimits { programs_per_user: 60, sockets_per_program: 16, ..ProgramLimits::default() };
    own_with(&link, &listen, limits);
    for part in parts {
        let plain = said(&link, Command::new(&program).arg(part));
        assert!(!plain.is_empty(), "no part of it is named {part}");
        for mode in [Mode::Poll, Mode::Adaptive] {
            let explain = folder.path().join(format!("{part}-{mode}"));
            let mut command = Command::new(&program);
            with_library(command.arg(part), rule(mode), &explain).env(OWNER_VARIABLE, &listen);
            let with_library = said(&link, &mut command);
            assert_eq!(with_library, plain, "{part}, {mode}: {}", std::fs::read_to_string(&explain).unwrap());
            let (by_ring, by_kernel) = received(&explain);
            println!("{part}, {mode}: {by_ring} by the ring, {by_kernel} by the kernel");
            assert!(
                by_ring > 0 || mode != Mode::Poll,
                "{part}: {}",
                std::fs::read_to_string(&explain).unwrap()
            );
        }
    }
}

#[test]
fn ready_is_what_a_call_receives() {
    says_the_same("edges", &["bad", "lengths"]);
}

#[test]
fn children_of_all_kinds_have_the_kernels_socket() {
    says_the_same("edges", &["children", "set"]);
}

#[test]
fn a_lease_that_ends_in_use_leaves_its_datagrams_in_order_and_costs_nothing_then() {
    says_the_same("edges", &["ends", "stamps", "options"]);
}

#[test]
fn calls_go_on_with_the_socket_that_they_have_begun_with() {
    says_the_same("edges", &["closed"]);
}

#[test]
fn the_end_of_a_socket_and_its_errors_end_calls_as_in_the_kernel() {
    says_the_same("edges", &["shutdown", "error"]);
}

#[test]
fn what_the_kernel_refuses_is_refused_and_times_are_kept() {
    says_the_same("limits", &["odd", "times", "memory", "pointers"]);
}

#[test]
fn names_that_cannot_be_written_end_a_call_for_several_messages() {
    says_the_same("limits", &["names"]);
}

#[test]
fn control_data_of_any_length_are_sent_or_refused_as_by_the_kernel() {
    says_the_same("limits", &["lengths"]);
}

#[test]
fn edges_of_both_sides_are_told_as_by_the_kernel() {
    says_the_same("limits", &["edges"]);
}

#[test]
fn calls_use_little_of_a_stack() {
    says_the_same("limits", &["stack"]);
}

#[test]
fn a_lease_begins_on_a_stack_of_its_own() {
    says_the_same_by("limits", &["beginning"], |mode| Rule { at_bind: false, ..rule(mode) });
}

/// A handler of a signal that ran while the thread is on another stack would count as one elsewhere.
#[test]
fn handlers_of_signals_run_on_the_stack_of_their_thread_while_leases_begin() {
    says_the_same("handlers", &["stacks"]);
}

/// Without `--explain`, by which closing a socket takes another way.
#[test]
fn a_child_that_shares_memory_closes_nothing_of_its_parents() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let (program, listen) = (compiled(folder.path(), "vforked"), folder.path().join("programs"));
    own_with(&link, &listen, ProgramLimits::default());
    let mut command = Command::new(&program);
    with_library(&mut command, rule(Mode::Poll), &folder.path().join("explain"))
        .env_remove(EXPLAIN_VARIABLE)
        .env(OWNER_VARIABLE, &listen);
    assert_eq!(said(&link, &mut command), "has a ring: 1\n");
}

/// While their leases are asked for and given: an owner that held a socket meanwhile held its port.
fn ports_are_free(part: &str) {
    says_the_same_by("ports", &[part], |mode| Rule { at_bind: false, ..rule(mode) });
}

#[test]
fn the_port_of_a_socket_is_free_once_that_is_closed() {
    ports_are_free("closed");
}

#[test]
fn the_port_of_a_socket_is_free_however_that_is_closed() {
    ports_are_free("otherwise");
}

#[test]
fn what_comes_for_a_group_after_a_socket_was_closed_is_another_ones() {
    ports_are_free("groups");
}

#[test]
fn the_port_of_a_program_is_free_when_it_has_ended() {
    ports_are_free("again");
}

#[test]
fn control_data_are_cut_where_the_kernel_cuts_them() {
    says_the_same("edges", &["control"]);
}
