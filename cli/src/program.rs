//! Finds the file of the program that `twinpath run` starts, and checks whether it can have the library.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::elf::{self, Why};

/// A file whose program runs without the library.
pub(crate) struct LeftAlone {
    file: PathBuf,
    pub(crate) why: Why,
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.file.display(), self.why)
    }
}

/// Why the program, named as in a shell, runs without the library; `None` if it has it, as far as its file
/// shows.
pub(crate) fn left_alone(program: &OsStr) -> Option<LeftAlone> {
    let mut file = found(program)?;
    // The interpreter of a script may be a script itself.
    for _ in 0..SCRIPTS_MAX {
        let Some(next) = interpreter(&file) else { break };
        file = next;
    }
    let mode = file.metadata().ok()?.permissions().mode();
    let why = if mode & 0o6000 != 0 {
        Why::NotLoaded("is run with the rights of its owner or group")
    } else {
        elf::left_alone(&File::open(&file).ok()?)?
    };
    Some(LeftAlone { file, why })
}

/// Maximum number of nested scripts; the kernel's limit is the same.
const SCRIPTS_MAX: usize = 5;
/// Maximum number of bytes that the kernel reads of a script's first line.
const LINE_MAX: u64 = 256;

/// The file of a program, as the shell finds it.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

/// The interpreter in a script's first line; for `env`, the program that it finds.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(script).ok()?.take(LINE_MAX).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let named = PathBuf::from(words.next()?);
    if named.file_name() != Some(OsStr::new("env")) {
        return Some(named);
    }
    // Options, and variables that it sets.
    let is_program = |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    words.find(is_program).map_or(Some(named), found)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;
    use std::process::Command;

    use twinpath_test_rig::skip_without;

    use super::{Why, found, interpreter, left_alone};

    #[test]
    fn programs_that_cannot_have_the_library_are_known_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("none.c"), folder.path().join("none"));
        std::fs::write(&source, "int main(void)\n{\n\treturn 0;\n}\n").unwrap();
        for (options, why) in [
            (&[][..], None),
            (&["-static"], Some("is linked statically")),
            (&["-fsanitize=address"], Some("is checked by AddressSanitizer")),
            (&["-fsanitize=thread"], Some("is checked by ThreadSanitizer")),
            (&["-fsanitize=leak"], Some("is checked by LeakSanitizer")),
            (&["-m32", "-nostdlib", "-static", "-Wl,-e,main"], Some("is of another machine")),
            (
                &["-Wl,-dynamic-linker,/lib/ld-musl-x86_64.so.1"],
                Some("has another C library than glibc: /lib/ld-musl"),
            ),
        ] {
            let mut compiler = Command::new("cc");
            let output = compiler.args(options).arg(&source).arg("-o").arg(&program).output().unwrap();
            if !output.status.success() {
                skip_without(format_args!("a compiler for {options:?}"));
                continue;
            }
            let said =
                left_alone(program.as_os_str()).map(|left_alone| (left_alone.to_string(), left_alone.why));
            let Some(why) = why else {
                assert_eq!(said, None);
                continue;
            };
            let (said, kind) = said.unwrap_or_else(|| panic!("{options:?}"));
            assert!(said.contains(&format!("/none {why}")), "{said}");
            assert_eq!(matches!(kind, Why::CannotLoad(_)), options != ["-static"], "{said}");
        }
    }

    #[test]
    fn a_script_is_as_its_interpreter_is() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let interpreter_of = |text: &str| {
            std::fs::write(&script, text).unwrap();
            interpreter(&script)
        };
        assert_eq!(interpreter_of("#!/bin/sh -e\n"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(interpreter_of("#! /bin/sh"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(interpreter_of("#!/usr/bin/env sh\n"), found(OsStr::new("sh")));
        assert_eq!(interpreter_of("#!/usr/bin/env -S A=b sh -e\n"), found(OsStr::new("sh")));
        assert_eq!(interpreter_of("\x7fELF"), None);
        assert_eq!(interpreter_of("#!\n"), None);
        assert_eq!(interpreter_of(""), None);
        // A script that names itself is not followed for ever.
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(left_alone(script.as_os_str()).is_none());
    }
}
