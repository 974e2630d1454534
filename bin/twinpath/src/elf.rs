//! What the file of a program says of itself.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Why a library cannot take the place of the C library's calls in a program; `None` if it can, as far as the file says, or if it is no
/// ELF file of 64 bits.
pub(crate) fn left_alone(file: &File) -> Option<&'static str> {
    let mut start = vec![0; 4096];
    let len = file.read_at(&mut start, 0).ok()?;
    start.truncate(len);
    let parts = parts(&start)?;
    if !parts.iter().any(|part| part.kind == INTERPRETER) {
        return Some("is linked statically");
    }
    let mut notes = parts.iter().filter(|part| part.kind == NOTE);
    let is_go = notes.any(|part| is_of_go(&part.read(file)));
    is_go.then_some("is written in Go, whose sockets do without the C library")
}

/// Kinds of parts of an ELF file: the dynamic loader that it asks for, and notes.
const INTERPRETER: usize = 3;
const NOTE: usize = 4;

/// A part of a program's file.
struct Part {
    kind: usize,
    at: u64,
    len: usize,
}

impl Part {
    /// Its first bytes; notes are short.
    fn read(&self, file: &File) -> Vec<u8> {
        let mut bytes = vec![0; self.len.min(4096)];
        let len = file.read_at(&mut bytes, self.at).unwrap_or(0);
        bytes.truncate(len);
        bytes
    }
}

/// A number of that many bytes, little-endian.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The parts that an ELF file of 64 bits has, by its first bytes; `None` if it is none, or if they are not all there.
fn parts(start: &[u8]) -> Option<Vec<Part>> {
    // Class, and little-endian.
    if start.get(..6) != Some(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, len, count) = (number(start, 32, 8)?, number(start, 54, 2)?, number(start, 56, 2)?);
    let part = |entry: usize| {
        let at = table.checked_add(entry * len)?;
        let kind = number(start, at, 4)?;
        Some(Part { kind, at: number(start, at + 8, 8)? as u64, len: number(start, at + 32, 8)? })
    };
    (0..count).map(part).collect()
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
    use super::{INTERPRETER, is_of_go, parts};

    #[test]
    fn this_program_is_linked_dynamically_and_a_script_is_no_program() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let has_loader = |start: &[u8]| parts(start).unwrap().iter().any(|part| part.kind == INTERPRETER);
        assert!(has_loader(&own[..4096]));
        assert!(parts(b"#!/bin/sh\n").is_none());
        assert!(parts(&own[..128]).is_none());
        let mut without = own[..4096].to_vec();
        let at = without[64..].chunks(56).position(|entry| entry[..4] == [3, 0, 0, 0]).unwrap();
        without[64 + at * 56] = 4;
        assert!(!has_loader(&without));
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
}
