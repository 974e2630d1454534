//! Programs that cannot take the library, started by one that has it: they start, and say what they say alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use twinpath_rules::{ASAN_VARIABLE, PRELOAD_VARIABLE, asan_options, preload};
use twinpath_test_skip::{skip, skip_without};
use twinpath_worker::idle::Mode;

use crate::link::{output_of, run};
use crate::{library, rule, with_library};

/// It asks itself by UDP.
const SOURCE: &str = "\
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	socklen_t len = sizeof own;
	char got[8] = \"\";
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	own.sin_addr.s_addr = htonl(0x7f000001);
	if (bind(fd, (struct sockaddr *)&own, len) < 0 || getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return 1;
	if (sendto(fd, \"hello\", 5, 0, (struct sockaddr *)&own, len) != 5 || recv(fd, got, sizeof got, 0) != 5)
		return 2;
	puts(got);
	return 0;
}
";

/// The program, built with the compiler's options; `None` if it cannot be built so here.
fn built(folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.join("hello.c"), folder.join("hello"));
    std::fs::write(&source, SOURCE).unwrap();
    let output = Command::new("cc").args(options).arg(&source).arg("-o").arg(&program).output().unwrap();
    output.status.success().then_some(program)
}

/// A shell with the library, as `twinpath run` starts it, starts the program. Returns what the library said.
fn by_shell(folder: &Path, program: &Path) -> String {
    let explain = folder.join("explain");
    let mut shell = Command::new("sh");
    let mut command = with_library(&mut shell, rule(Mode::Adaptive), &explain);
    command = command.env(PRELOAD_VARIABLE, preload(&library(), None)).env(ASAN_VARIABLE, asan_options(None));
    // Not the last command, which the shell may become.
    let output = output_of(command.arg("-c").arg(format!("{}; exit $?", program.display())));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice(), &*said), (Some(0), &b"hello\n"[..], ""));
    std::fs::read_to_string(explain).unwrap_or_default()
}

#[test]
fn a_program_with_a_sanitizer_that_a_shell_starts_is_left_alone() {
    for (option, checks) in
        [("-fsanitize=address", "AddressSanitizer"), ("-fsanitize=thread", "ThreadSanitizer")]
    {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = built(folder.path(), &[option]) else {
            skip(format_args!("cc knows no {option} here"));
            continue;
        };
        let said = by_shell(folder.path(), &program);
        let line = format!("everything stays with the kernel: the program is built with {checks}\n");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn a_program_that_a_shell_starts_has_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), &[]).unwrap();
    let said = by_shell(folder.path(), &program);
    assert!(said.contains("by the kernel: no rule matches\n") || said.contains("UDP 127.0.0.1:"), "{said}");
}

#[test]
fn a_program_with_the_c_library_musl_that_a_shell_starts_does_without() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hello");
    std::fs::write(folder.path().join("hello.c"), SOURCE).unwrap();
    let tests = std::env::current_exe().unwrap();
    // Unpacked by `make test`.
    let mut unpacked = tests.ancestors().map(|folder| folder.join("test-peers/usr/lib/x86_64-linux-musl"));
    let Some(musl) = unpacked.find(|folder| folder.is_dir()) else {
        return skip_without("musl of Debian's musl-dev");
    };
    let peers = musl.ancestors().nth(3).unwrap();
    let include = peers.join("usr/include/x86_64-linux-musl");
    let mut compiler = Command::new("cc");
    compiler.args(["-nostdinc", "-nostdlib", "-fno-stack-protector", "-isystem"]).arg(include);
    compiler.arg(format!("-Wl,-dynamic-linker,{}", peers.join("lib/ld-musl-x86_64.so.1").display()));
    compiler.args(["Scrt1.o", "crti.o"].map(|start| musl.join(start))).arg(folder.path().join("hello.c"));
    compiler.arg("-L").arg(peers.join("lib/x86_64-linux-musl")).args(["-l:libc.so"]).arg(musl.join("crtn.o"));
    run(compiler.arg("-o").arg(&program));
    assert_eq!(by_shell(folder.path(), &program), "");
}
