//! The commands of memcached's text protocol that are served (doc/protocol.txt of memcached).

use crate::store::VALUE_MAX;

/// Most bytes of a key.
const KEY_MAX: usize = 250;

/// Most bytes of a command's line.
const LINE_MAX: usize = 2048;

/// Exptimes beyond this many seconds are points of time, which are not served: setting the clock would move them.
const RELATIVE_MAX: i64 = 30 * 24 * 3600;

/// A command.
pub(crate) enum Command<'a> {
    Get {
        /// Valid keys with white space between them, at least one.
        keys: &'a [u8],
    },
    Set {
        key: &'a [u8],
        flags: u32,
        /// How long it is stored: 0 for ever, negative not at all.
        seconds: i64,
        value: &'a [u8],
        quiet: bool,
    },
    Delete {
        key: &'a [u8],
        quiet: bool,
    },
    FlushAll {
        quiet: bool,
    },
    Version,
    Quit,
}

impl<'a> Command<'a> {
    /// The key of a get of one key.
    pub(crate) fn only_key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Get { keys } if !keys.iter().any(u8::is_ascii_whitespace) => Some(keys),
            _ => None,
        }
    }
}

/// What begins the input.
pub(crate) enum Parsed<'a> {
    /// A command, and how many bytes it takes.
    Whole { command: Command<'a>, len: usize },
    /// The start of one.
    Partial,
    /// A line that is no command, with the answer to it.
    Wrong { what: &'static str, len: usize },
    /// Something after which nothing can be found.
    Broken,
}

const ERROR: &str = "ERROR\r\n";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
const TOO_LATE: &str = "CLIENT_ERROR give an exptime of at most 30 days, in seconds from now\r\n";
const BAD_DATA: &str = "CLIENT_ERROR bad data chunk\r\n";

/// Takes a command from the start of `input`.
pub(crate) fn parse(input: &[u8]) -> Parsed<'_> {
    let Some(end) = input.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if input.len() < LINE_MAX { Parsed::Partial } else { Parsed::Broken };
    };
    let (line, len) = (input[..end].trim_ascii(), end + 1);
    let whole = |command| Parsed::Whole { command, len };
    let wrong = |what| Parsed::Wrong { what, len };
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default();
    if name == b"get" {
        let keys = line[name.len()..].trim_ascii();
        return if words.next().is_none() {
            wrong(ERROR)
        } else if keys.split(u8::is_ascii_whitespace).all(|key| key.len() <= KEY_MAX) {
            whole(Command::Get { keys })
        } else {
            wrong(BAD_LINE)
        };
    }
    let words: Vec<&[u8]> = words.collect();
    let (words, quiet) = match words.as_slice() {
        [words @ .., b"noreply"] => (words, true),
        words => (words, false),
    };
    match (name, words) {
        (b"set", [key, flags, seconds, bytes]) => match (number(flags), number(seconds), number(bytes)) {
            (Some(flags), Some(seconds), Some(bytes)) if key.len() <= KEY_MAX && bytes <= VALUE_MAX => {
                let what = (seconds > RELATIVE_MAX).then_some(TOO_LATE);
                set(input, len, bytes, what, |value| Command::Set { key, flags, seconds, value, quiet })
            }
            // Whether the value follows is not known.
            _ => Parsed::Broken,
        },
        (b"delete", [key]) if key.len() <= KEY_MAX => whole(Command::Delete { key, quiet }),
        (b"flush_all", []) => whole(Command::FlushAll { quiet }),
        (b"version", []) => whole(Command::Version),
        (b"quit", []) => whole(Command::Quit),
        (b"delete" | b"flush_all", _) => wrong(BAD_LINE),
        _ => wrong(ERROR),
    }
}

/// A set whose line takes `line_len` bytes of the input, and whose value has `bytes`; `wrong` says why it is refused.
fn set<'a>(
    input: &'a [u8],
    line_len: usize,
    bytes: usize,
    wrong: Option<&'static str>,
    command: impl FnOnce(&'a [u8]) -> Command<'a>,
) -> Parsed<'a> {
    let rest = &input[line_len..];
    let Some((value, after)) = rest.split_at_checked(bytes) else { return Parsed::Partial };
    let len = line_len + bytes + 2;
    match (after, wrong) {
        ([b'\r', b'\n', ..], Some(what)) => Parsed::Wrong { what, len },
        ([b'\r', b'\n', ..], None) => Parsed::Whole { command: command(value), len },
        ([] | [b'\r'], _) => Parsed::Partial,
        _ => Parsed::Wrong { what: BAD_DATA, len: len.min(input.len()) },
    }
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
