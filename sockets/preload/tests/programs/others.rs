//! Programs that cannot take the library, started by one that has it: they start, and say what they say alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use twinpath_leases::rules::{ASAN_VARIABLE, PRELOAD_VARIABLE, asan_options, preload};
use twinpath_test_rig::{root_or_skip, skip, skip_without};
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

/// It closes what it does not know, has a socket, and then another root and no rights.
const CONFINED: &str = "\
#define _GNU_SOURCE
#include <grp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **arguments)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	int fd;
	close_range(3, ~0U, 0);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	own.sin_addr.s_addr = htonl(0x7f000001);
	/* The number is the one that it has without the library. */
	if (count != 2 || fd != 3 || bind(fd, (struct sockaddr *)&own, sizeof own) < 0)
		return 1;
	if (chroot(arguments[1]) < 0 || chdir(\"/\") < 0 || setgroups(0, 0) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
		return 2;
	return 0;
}
";

#[test]
fn what_is_explained_is_written_though_the_program_can_open_nothing_or_is_told_to_be_lost() {
    if !root_or_skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("confined.c"), folder.path().join("confined"));
    std::fs::write(&source, CONFINED).unwrap();
    run(Command::new("cc").args(["-O2", "-Wall", "-Werror"]).arg(&source).arg("-o").arg(&program));
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let said = |explain: &Path| {
        let mut command = Command::new(&program);
        let output = output_of(with_library(command.arg(&root), rule(Mode::Adaptive), explain));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };
    let explain = folder.path().join("explain");
    assert_eq!(said(&explain), "");
    let text = std::fs::read_to_string(&explain).unwrap();
    assert!(text.contains("by the kernel: "), "{text}");
    assert!(std::fs::read_dir(&root).unwrap().next().is_none(), "nothing is written to the other root");
    let told = said(Path::new("/dev/full"));
    let (_, told) = told.split_once("]: ").unwrap_or_else(|| panic!("something is said: {told}"));
    assert!(told.ends_with(" lines of --explain could not be written to /dev/full (error 28)\n"), "{told}");
}
