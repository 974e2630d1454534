//! Programs in C, compiled and linked as a user would, over a virtual link between two network namespaces.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod link;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use twinpath_test_rig::root_or_skip;

use crate::link::{Echo, Link, PATIENCE, output_of, run};

/// The library as it is installed, and programs that were linked with it.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tests = std::env::current_exe().unwrap();
        // Cargo builds the archive beside the tests, with a name that depends on how it is built.
        let archive = std::fs::read_dir(tests.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "a"))
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("libtwinpath_c-"))
            .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
            .expect("cargo builds the archive with the tests");
        let mut install = Command::new(here.join("install.sh"));
        run(install.env("PREFIX", "/usr").env("DESTDIR", folder.path()).arg(archive));
        Self { folder }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("usr/lib/libtwinpath.so.0")
    }

    /// What pkg-config says of the installed library.
    fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let usr = self.folder.path().join("usr");
        let mut asked = Command::new("pkg-config");
        asked
            .env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig"))
            .arg(format!("--define-variable=prefix={}", usr.display()));
        let output = asked.args(arguments).arg("twinpath").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    fn compile(&self, source: &str, is_static: bool) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = here.join(source);
        let program = self.folder.path().join(source.file_stem().unwrap());
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]).arg(source);
        if is_static {
            // With this library's archive, and the C library shared: what finds names of hosts needs that.
            compiler.args(self.flags(&["--cflags"])).arg(self.folder.path().join("usr/lib/libtwinpath.a"));
            compiler
                .args(self.flags(&["--libs", "--static"]).into_iter().filter(|flag| flag != "-ltwinpath"));
        } else {
            compiler.args(self.flags(&["--cflags", "--libs"]));
            compiler.arg(format!("-Wl,-rpath,{}", self.folder.path().join("usr/lib").display()));
        }
        run(compiler.arg("-o").arg(&program));
        program
    }
}

/// A child that is killed if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn semantics_are_those_of_the_c_library() {
    if !root_or_skip() {
        return;
    }
    let (built, link) = (Built::new(), Link::new());
    let program = built.compile("tests/c/semantics.c", false);
    let _echo = Echo::new(&link);
    let output = output_of(link.within(Command::new(program).arg("in0")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.stdout.as_slice(), &*said), (&b"passed\n"[..], ""));
}

#[test]
fn the_library_reads_and_writes_no_memory_that_it_does_not_have() {
    if !root_or_skip() {
        return;
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return twinpath_test_rig::skip("there is no valgrind: apt-get install valgrind");
    }
    let (built, link) = (Built::new(), Link::new());
    let program = built.compile("tests/c/semantics.c", false);
    let _echo = Echo::new(&link);
    let run = || {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--fair-sched=yes"]).arg(&program).arg("in0");
        let output = output_of(link.within(&mut command));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    };
    // If a signal comes just before valgrind makes a `pselect6`, it makes the call again, and takes its own copy of the
    // mask for the program's.
    let is_valgrinds = |said: &str| said.contains("pselect6(sig)") && said.contains("in arena \"core\"");
    let mut runs = std::iter::repeat_with(run).take(5).skip_while(|(_, said)| is_valgrinds(said));
    let (output, said) = runs.next().expect("valgrind's own fault does not come five times");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"passed\n"[..]), "{said}");
}

#[test]
fn the_classic_server_serves_udp_tcp_and_a_pipe_in_one_loop() {
    if !root_or_skip() {
        return;
    }
    let (built, link) = (Built::new(), Link::new());
    let program = built.compile("examples/server.c", true);
    let mut command = Command::new(program);
    command.args(["in0", "7010"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Running(link.within(&mut command).spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "UDP with a fast path");
    let mut pipe = server.0.stdin.take().unwrap();
    pipe.write_all(b"hello\n").unwrap();
    assert_eq!(said.next().unwrap(), "read: hello");
    let peer = link.peers.run(|| std::net::UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = [0; 8];
    for number in 0..2_000u32 {
        if number % 100 == 0 {
            let stream = link.peers.run(|| TcpStream::connect("10.9.0.1:7010").unwrap()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            streams.push(stream);
        }
        peer.send_to(&number.to_ne_bytes(), "10.9.0.1:7010").unwrap();
        assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &number.to_ne_bytes()[..]));
        let stream = &mut streams[number as usize / 100];
        stream.write_all(&number.to_ne_bytes()).unwrap();
        stream.read_exact(&mut buffer[..4]).unwrap();
        assert_eq!(buffer[..4], number.to_ne_bytes());
    }
    drop(pipe);
    let last = said.next().unwrap();
    assert!(last.starts_with("UDP: "), "{last}");
    assert!(server.0.wait().unwrap().success());
}

/// The symbols are versioned, and there are no others.
#[test]
fn the_library_exports_what_the_header_declares() {
    let built = Built::new();
    let output = Command::new("objdump").arg("-T").arg(built.library()).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = listing
        .lines()
        .filter(|line| line.contains(" g ") && line.contains(".text"))
        .map(|line| line.split_whitespace().last().unwrap())
        .collect();
    exported.sort_unstable();
    assert!(
        listing.lines().filter(|line| line.contains("twinpath_")).all(|line| line.contains("TWINPATH_0"))
    );
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/twinpath.h")).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.ends_with(");") && line.contains("twinpath_"))
        .map(|line| &line[line.find("twinpath_").unwrap()..line.find('(').unwrap()])
        .collect();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}
