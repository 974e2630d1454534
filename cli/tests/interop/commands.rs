//! Tests of the program's list of commands, and of those that have moved.

use std::process::{Command, Output};

fn twinpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpath")).args(arguments).output().expect("twinpath runs")
}

#[test]
fn help_offers_bench_and_no_lab() {
    let help = String::from_utf8(twinpath(&["--help"]).stdout).unwrap();
    let offered = |command: &str| help.lines().any(|line| line.trim_start().starts_with(command));
    assert!(offered("bench ") && offered("serve "), "{help}");
    assert!(!offered("lab") && !offered("plain"), "{help}");
}

#[test]
fn what_another_program_has_is_said_to_be_there_in_one_sentence() {
    for (arguments, there) in [
        (
            &["lab", "quick", "--check", "--only", "pool-mib"][..],
            "`twinpath-lab quick --check --only pool-mib`",
        ),
        (&["lab", "--help"], "`twinpath-lab --help`"),
        (
            &["plain", "udp-echo", "--listen", "127.0.0.1:0"],
            "`twinpath-lab plain udp-echo --listen 127.0.0.1:0`",
        ),
    ] {
        let output = twinpath(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(there) && said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
    }
}
