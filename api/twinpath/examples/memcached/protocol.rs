//! Parses the commands of memcached's text protocol that are served (doc/protocol.txt of memcached).
//!
//! Mistakes are answered as memcached 1.6 answers them.

use std::str::FromStr;

use crate::store::{VALUE_MAX, When};

/// Maximum length of a key, bytes.
const KEY_MAX: usize = 250;

/// Maximum length of a command's line, bytes; a get may be longer, for its keys.
const LINE_MAX: usize = 2048;
pub(crate) const GET_LINE_MAX: usize = 64 * 1024;

/// A larger length is a mistake in the command.
const BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// A command. `quiet`: the client expects no reply.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    Get {
        /// Valid keys with spaces between them, at least one.
        keys: &'a [u8],
        /// The reply includes each value's CAS number.
        with_cas: bool,
    },
    Store {
        when: When,
        key: &'a [u8],
        flags: u32,
        exptime: i64,
        value: &'a [u8],
        quiet: bool,
    },
    /// A request to store a value that is too large. The value and its line end, `bytes` bytes in all,
    /// follow and must be skipped.
    TooLarge {
        key: &'a [u8],
        bytes: usize,
        quiet: bool,
    },
    Count {
        key: &'a [u8],
        adds: bool,
        delta: u64,
        quiet: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i64,
        quiet: bool,
    },
    Delete {
        key: &'a [u8],
        quiet: bool,
    },
    FlushAll {
        quiet: bool,
    },
    /// Recognized, but changes nothing.
    Verbosity {
        quiet: bool,
    },
    Version,
    Quit,
}

/// What the start of the input is.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    /// A command, and how many bytes it takes.
    Whole { command: Command<'a>, len: usize },
    /// The start of a command.
    Partial,
    /// A mistake in a command, or an unknown one, with the error to send; empty if the client expects no
    /// reply.
    Wrong { what: &'static str, len: usize },
    /// The start of the next command cannot be found after this.
    Broken,
}

pub(crate) const ERROR: &str = "ERROR\r\n";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const BAD_DATA: &str = "CLIENT_ERROR bad data chunk\r\n";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";

/// Parses one command from the start of `input`.
pub(crate) fn parse(input: &[u8]) -> Parsed<'_> {
    let line_max = if input.starts_with(b"get") { GET_LINE_MAX } else { LINE_MAX };
    let Some(end) = input.iter().take(line_max).position(|byte| *byte == b'\n') else {
        return if input.len() < line_max { Parsed::Partial } else { Parsed::Broken };
    };
    let (line, len) = (&input[..end], end + 1);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut rest = line;
    let name = next_word(&mut rest).unwrap_or_default();
    let command = match name {
        b"get" => get(rest, false),
        b"gets" => get(rest, true),
        b"set" => return store(When::Always, input, rest, len),
        b"add" => return store(When::Absent, input, rest, len),
        b"replace" => return store(When::Present, input, rest, len),
        b"cas" => return store(When::Unchanged(0), input, rest, len),
        _ => other(name, &words(rest)),
    };
    match command {
        Ok(command) => Parsed::Whole { command, len },
        Err(what) => Parsed::Wrong { what, len },
    }
}

/// Takes the next word, and skips the spaces around it.
pub(crate) fn next_word<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let begin = line.iter().position(|byte| *byte != b' ')?;
    let rest = &line[begin..];
    let (word, rest) = rest.split_at(rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len()));
    *line = rest;
    Some(word)
}

fn words(mut line: &[u8]) -> Vec<&[u8]> {
    std::iter::from_fn(|| next_word(&mut line)).collect()
}

const fn if_loud(what: &'static str, quiet: bool) -> &'static str {
    if quiet { "" } else { what }
}

fn number<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn get(keys: &[u8], with_cas: bool) -> Result<Command<'_>, &'static str> {
    let mut rest = keys;
    let (mut any, mut valid) = (false, true);
    while let Some(key) = next_word(&mut rest) {
        (any, valid) = (true, valid && key.len() <= KEY_MAX);
    }
    match (any, valid) {
        (false, _) => Err(ERROR),
        (true, false) => Err(BAD_LINE),
        (true, true) => Ok(Command::Get { keys, with_cas }),
    }
}

/// Parses a command that stores the value after its line. `line_len` is the length of that line in the
/// input; `words_of` is the line after the command's name.
fn store<'a>(when: When, input: &'a [u8], words_of: &'a [u8], line_len: usize) -> Parsed<'a> {
    let wrong = |what| Parsed::Wrong { what, len: line_len };
    let words = words(words_of);
    let is_cas = matches!(when, When::Unchanged(_));
    let (given, more) = words.split_at_checked(4 + usize::from(is_cas)).unwrap_or_default();
    let ([key, flags, exptime, bytes, cas @ ..], [] | [_]) = (given, more) else { return wrong(ERROR) };
    let quiet = more == [b"noreply"];
    let cas = cas.first().map_or(Some(0), |cas| number(cas));
    let (Some(flags), Some(exptime), Some(bytes), Some(cas)) =
        (number(flags), number(exptime), number::<u32>(bytes), cas)
    else {
        return wrong(if_loud(BAD_LINE, quiet));
    };
    if key.len() > KEY_MAX || bytes > BYTES_MAX {
        return wrong(if_loud(BAD_LINE, quiet));
    }
    let bytes = bytes as usize;
    if bytes > VALUE_MAX {
        return Parsed::Whole { command: Command::TooLarge { key, bytes: bytes + 2, quiet }, len: line_len };
    }
    let len = line_len + bytes + 2;
    let Some(value) = input.get(line_len..len) else { return Parsed::Partial };
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return Parsed::Wrong { what: if_loud(BAD_DATA, quiet), len };
    };
    let when = if is_cas { When::Unchanged(cas) } else { when };
    Parsed::Whole { command: Command::Store { when, key, flags, exptime, value, quiet }, len }
}

/// A command of one line.
fn other<'a>(name: &[u8], words: &[&'a [u8]]) -> Result<Command<'a>, &'static str> {
    let quiet = words.last() == Some(&&b"noreply"[..]);
    if let (b"delete" | b"incr" | b"decr" | b"touch", [key, ..]) = (name, words)
        && key.len() > KEY_MAX
    {
        return Err(if_loud(BAD_LINE, quiet));
    }
    match (name, words) {
        (b"delete", [key] | [key, b"0" | b"noreply"] | [key, b"0", b"noreply"]) => {
            Ok(Command::Delete { key, quiet: quiet && words.len() > 1 })
        }
        (b"delete", [_, _] | [_, _, _]) => Err(if_loud(BAD_DELETE, quiet)),
        (b"incr" | b"decr", [key, delta] | [key, delta, _]) => {
            let delta = number(delta).ok_or(if_loud(BAD_DELTA, quiet))?;
            Ok(Command::Count { key, adds: name == b"incr", delta, quiet })
        }
        (b"touch", [key, exptime] | [key, exptime, _]) => {
            let exptime = number(exptime).ok_or(if_loud(BAD_TIME, quiet))?;
            Ok(Command::Touch { key, exptime, quiet })
        }
        // A delayed flush is not served.
        (b"flush_all", [] | [b"0" | b"noreply"] | [b"0", b"noreply"]) => Ok(Command::FlushAll { quiet }),
        (b"flush_all", [_] | [_, _]) => Err(if_loud(BAD_TIME, quiet)),
        (b"verbosity", [_] | [_, _]) => Ok(Command::Verbosity { quiet }),
        (b"version", _) => Ok(Command::Version),
        (b"quit", _) => Ok(Command::Quit),
        _ => Err(ERROR),
    }
}

impl<'a> Command<'a> {
    /// The key of a get of one key.
    pub(crate) fn only_key(&self) -> Option<&'a [u8]> {
        let Self::Get { mut keys, with_cas: false } = *self else { return None };
        next_word(&mut keys).filter(|_| next_word(&mut keys).is_none())
    }
}
