//! Reads from a program's file whether it can use the preload library.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Why a program runs without the library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing would load it, or it would change nothing; programs started by this one may have it.
    NotLoaded(&'static str),
    /// The program does not start with it, or prints messages that it would not print otherwise.
    CannotLoad(String),
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(why) => to.write_str(why),
            Self::CannotLoad(why) => to.write_str(why),
        }
    }
}

/// Why a library cannot replace the C library's calls in a program. `None` if it can, as far as the file
/// shows, or if it is not an ELF file.
pub(crate) fn left_alone(file: &File) -> Option<Why> {
    let mut start = vec![0; 4096];
    let len = file.read_at(&mut start, 0).ok()?;
    start.truncate(len);
    if start.get(..4) != Some(b"\x7fELF") {
        return None;
    }
    if start.get(4..6) != Some(&OWN_KIND) || number(&start, 18, 2) != Some(OWN_MACHINE) {
        return Some(Why::CannotLoad("is of another machine than this one's 64 bits".to_owned()));
    }
    let parts = parts(&start)?;
    let Some(interpreter) = parts.iter().find(|part| part.kind == INTERPRETER) else {
        return Some(Why::NotLoaded("is linked statically"));
    };
    let loader = interpreter.read(file, PART_MAX);
    if let Some(loader) = other_loader(&loader) {
        return Some(Why::CannotLoad(format!("has another C library than glibc: {loader} loads it")));
    }
    if let Some(sanitizer) = names(&parts, file).as_deref().and_then(sanitizer) {
        return Some(Why::CannotLoad(format!("is checked by {sanitizer}, which has to be loaded first")));
    }
    let mut notes = parts.iter().filter(|part| part.kind == NOTE);
    let is_go = notes.any(|part| is_of_go(&part.read(file, PART_MAX)));
    is_go.then_some(Why::NotLoaded("is written in Go, whose sockets do without the C library"))
}

/// 64 bits, little-endian.
const OWN_KIND: [u8; 2] = [2, 1];
/// The machine type that this program is built for, as in ELF files.
const OWN_MACHINE: usize = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Types of program headers: loaded segments, dynamic section, interpreter, and notes.
const LOADED: usize = 1;
const DYNAMIC: usize = 2;
const INTERPRETER: usize = 3;
const NOTE: usize = 4;

/// Maximum number of bytes read of notes, and of the interpreter's name.
const PART_MAX: usize = 4096;
/// Maximum number of bytes read of a file's names. Large programs have about 100 KiB.
const NAMES_MAX: usize = 64 << 20;

/// A segment of a program's file.
struct Part {
    kind: usize,
    at: u64,
    address: u64,
    len: usize,
}

impl Part {
    /// Its first bytes.
    fn read(&self, file: &File, most: usize) -> Vec<u8> {
        read(file, self.at, self.len.min(most))
    }
}

fn read(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = file.read_at(&mut bytes, at).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

/// A little-endian number of this many bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The program headers of a 64-bit ELF file, from its first bytes; `None` if they are not all there.
fn parts(start: &[u8]) -> Option<Vec<Part>> {
    let (table, len, count) = (number(start, 32, 8)?, number(start, 54, 2)?, number(start, 56, 2)?);
    let part = |entry: usize| {
        let at = table.checked_add(entry * len)?;
        let field = |offset: usize, len| number(start, at.checked_add(offset)?, len);
        let (kind, len) = (field(0, 4)?, field(32, 8)?);
        Some(Part { kind, at: field(8, 8)? as u64, address: field(16, 8)? as u64, len })
    };
    (0..count).map(part).collect()
}

/// The interpreter, given as its path with a zero at the end, if it is not glibc's.
fn other_loader(path: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(path.split(|byte| *byte == 0).next()?);
    let name = path.rsplit('/').next()?;
    (!name.starts_with("ld-linux")).then(|| path.clone().into_owned())
}

/// The names that the dynamic loader reads: needed libraries, and defined and undefined symbols.
fn names(parts: &[Part], file: &File) -> Option<Vec<u8>> {
    // Types of entries: the address of the names, and their total length.
    const NAMES: usize = 5;
    const NAMES_LEN: usize = 10;
    let dynamic = parts.iter().find(|part| part.kind == DYNAMIC)?.read(file, NAMES_MAX);
    let value = |wanted| {
        let entry = dynamic.chunks_exact(16).find(|entry| number(entry, 0, 8) == Some(wanted))?;
        number(entry, 8, 8)
    };
    let (address, len) = (value(NAMES)? as u64, value(NAMES_LEN)?);
    let mut loaded = parts.iter().filter(|part| part.kind == LOADED);
    let at = loaded.find_map(|part| {
        let inside = address.checked_sub(part.address).filter(|inside| *inside < part.len as u64)?;
        part.at.checked_add(inside)
    })?;
    Some(read(file, at, len.min(NAMES_MAX)))
}

/// The sanitizer that the compiler has built into a program, found by a name in its file: that of the
/// sanitizer's library, or of one of its functions in the program itself.
fn sanitizer(names: &[u8]) -> Option<&'static str> {
    let all: [(&str, &[u8], &[u8]); 5] = [
        ("AddressSanitizer", b"libasan.so", b"__asan_init"),
        ("ThreadSanitizer", b"libtsan.so", b"__tsan_init"),
        ("LeakSanitizer", b"liblsan.so", b"__lsan_init"),
        ("HWAddressSanitizer", b"libhwasan.so", b"__hwasan_init"),
        ("MemorySanitizer", b"libclang_rt.msan", b"__msan_init"),
    ];
    names.split(|byte| *byte == 0).find_map(|name| {
        let is_it =
            |(_, library, function): &&(_, &[u8], &[u8])| name.starts_with(library) || name == *function;
        all.iter().find(is_it).map(|(sanitizer, ..)| *sanitizer)
    })
}

/// Whether one of the notes is by Go's linker.
fn is_of_go(notes: &[u8]) -> bool {
    let mut at = 0;
    while let (Some(name_len), Some(len)) = (number(notes, at, 4), number(notes, at + 4, 4)) {
        if notes.get(at + 12..at + 16) == Some(b"Go\0\0") {
            return true;
        }
        at += 12 + name_len.next_multiple_of(4) + len.next_multiple_of(4);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::{INTERPRETER, Why, is_of_go, left_alone, names, other_loader, parts, sanitizer};

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn this_program_is_linked_dynamically_and_a_script_is_no_program() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(left_alone(&own), None);
        // All other faults of a file are within its first bytes.
        let own = super::read(&own, 0, 4096);
        assert_eq!(left_alone(&file_of(b"#!/bin/sh\n")), None);
        assert!(parts(&own[..128]).is_none());
        let mut without = own.clone();
        let at = without[64..].chunks(56).position(|entry| entry[..4] == [3, 0, 0, 0]).unwrap();
        without[64 + at * 56] = 4;
        assert_eq!(left_alone(&file_of(&without)), Some(Why::NotLoaded("is linked statically")));
        for (at, byte) in [(4, 1), (5, 2), (18, 3)] {
            let mut other = own.clone();
            other[at] = byte;
            assert!(matches!(left_alone(&file_of(&other)), Some(Why::CannotLoad(_))), "{at}");
        }
        // However a file is truncated, and whatever it contains, it is read without harm.
        for len in 0..600 {
            let _ = left_alone(&file_of(&own[..len]));
        }
        for at in 32..600 {
            let mut other = own.clone();
            other[at] ^= 0xff;
            let _ = left_alone(&file_of(&other));
        }
    }

    #[test]
    fn the_names_of_this_program_are_found() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        let start = super::read(&own, 0, 4096);
        let parts = parts(&start).unwrap();
        assert!(parts.iter().any(|part| part.kind == INTERPRETER));
        let names = names(&parts, &own).unwrap();
        assert!(names.split(|byte| *byte == 0).any(|name| name == b"libc.so.6"));
    }

    #[test]
    fn a_program_in_go_is_known_by_its_note() {
        let note = |name: &[u8; 4], len: u8| {
            let mut note = vec![4, 0, 0, 0, len, 0, 0, 0, 1, 0, 0, 0];
            note.extend(name);
            note.extend(vec![7; usize::from(len).next_multiple_of(4)]);
            note
        };
        let (of_gnu, of_go) = (note(b"GNU\0", 20), note(b"Go\0\0", 83));
        assert!(!is_of_go(&of_gnu));
        assert!(is_of_go(&[of_gnu, of_go.clone()].concat()));
        assert!(!is_of_go(&of_go[..14]));
        assert!(!is_of_go(&[]));
    }

    #[test]
    fn another_c_library_is_known_by_its_loader_and_a_sanitizer_by_the_names_in_the_file() {
        assert_eq!(other_loader(b"/lib64/ld-linux-x86-64.so.2\0"), None);
        assert_eq!(other_loader(b"/nix/store/x/lib/ld-linux-aarch64.so.1\0"), None);
        assert_eq!(other_loader(b"/lib/ld-musl-x86_64.so.1\0").as_deref(), Some("/lib/ld-musl-x86_64.so.1"));
        assert_eq!(sanitizer(b"\0libc.so.6\0libasan.so.8\0"), Some("AddressSanitizer"));
        assert_eq!(sanitizer(b"\0libc.so.6\0__tsan_init\0"), Some("ThreadSanitizer"));
        assert_eq!(sanitizer(b"\0libc.so.6\0__asan_initial\0liblibasan.so\0"), None);
    }
}
