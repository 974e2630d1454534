//! Datagrams in a ring that somebody else is to read: the owner hands them over to the kernel's socket.

use std::path::Path;
use std::process::Command;

use twinpath_leases::rules::OWNER_VARIABLE;
use twinpath_owner::ProgramLimits;
use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Echo, Link, output_of, run};
use crate::{own_with, rule, with_library};

#[test]
fn what_is_in_a_ring_goes_to_the_next_reader() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let _echo = Echo::new(&link);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/left.c");
    let (program, listen) = (folder.path().join("left"), folder.path().join("programs"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    // Each process that binds is a program of the owner's.
    let limits = ProgramLimits {
        programs: 60,
        programs_per_user: 60,
        sockets_per_user: 256,
        ..ProgramLimits::default()
    };
    own_with(&link, &listen, limits);
    let readers: [(&str, &[u16]); 6] = [
        ("forked", &[7081]),
        ("passed", &[7082]),
        ("closed", &[7083]),
        ("killed", &[7084]),
        ("sets", &[7085, 7086, 7087, 7088, 7089, 7090]),
        ("replaced", &[7080]),
    ];
    let mut wrong = Vec::new();
    for mode in [Mode::Poll, Mode::Adaptive] {
        for (how, ports) in readers {
            let explain = folder.path().join(format!("{mode}-{how}"));
            let mut command = Command::new(&program);
            with_library(command.arg(how), rule(mode), &explain).env(OWNER_VARIABLE, &listen);
            let output = output_of(link.within(&mut command));
            let text = std::fs::read_to_string(&explain).unwrap_or_default();
            if (output.stdout.as_slice(), output.stderr.as_slice()) != (b"passed\n", b"") {
                wrong.push(format!("{how}, {mode}: {}", String::from_utf8_lossy(&output.stderr)));
            }
            let has_path = |port: &&u16| text.contains(&format!("UDP 0.0.0.0:{port}: fast path on in0"));
            wrong.extend(ports.iter().filter(|port| !has_path(port)).map(|port| format!("{port}: {text}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
