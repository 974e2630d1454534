//! Reading a file: everything in it that cannot be read is found, not only the first.

use std::path::Path;

use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};

use super::{Config, Fault, Mistake};

/// Mistakes told of one file; who makes more has given the wrong file.
const MISTAKES_MAX: usize = 64;

/// What a file says.
pub(super) struct Read {
    /// As far as it can be read; the rest is as without the file.
    pub(super) config: Config,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) unread: Unread,
}

/// What could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not TOML.
    Everything,
    /// These keys.
    Keys(Vec<String>),
}

impl Unread {
    /// Whether that key could not be read, or what it stands in.
    pub(super) fn has(&self, key: &str) -> bool {
        let is = |unread: &String| {
            key.strip_prefix(unread.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match self {
            Self::Everything => true,
            Self::Keys(keys) => keys.iter().any(is),
        }
    }
}

/// Reads a text; `file` is for the messages.
///
/// The library that reads TOML into values stops at the first mistake. So each key that has one is taken out, and the rest is
/// read again.
pub(super) fn read(text: &str, file: &Path) -> Read {
    let mistake = |error: &toml::de::Error, key: &str| Mistake {
        place: Some((file.to_owned(), error.span().map_or(1, |span| line_at(text, span.start)))),
        fault: Fault::new(key, advice(key, error.message())),
    };
    let (mut document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mistakes = errors.iter().take(MISTAKES_MAX).map(|error| mistake(error, "")).collect();
        return Read { config: Config::default(), mistakes, unread: Unread::Everything };
    }
    let (mut mistakes, mut keys) = (Vec::new(), Vec::new());
    while mistakes.len() < MISTAKES_MAX {
        let document_now = toml::de::Deserializer::from(document.clone());
        match serde_path_to_error::deserialize::<_, Config>(document_now) {
            Ok(config) => return Read { config, mistakes, unread: Unread::Keys(keys) },
            Err(error) => {
                let path: Vec<_> = error.path().iter().cloned().collect();
                let name = error.path().to_string();
                let name = if name == "." { String::new() } else { name };
                mistakes.push(mistake(error.inner(), &name));
                keys.push(name);
                if !take_out(document.get_mut(), &path) {
                    break;
                }
            }
        }
    }
    Read { config: Config::default(), mistakes, unread: Unread::Everything }
}

/// Takes the innermost key of a path out; says whether there is one.
fn take_out(table: &mut DeTable<'_>, path: &[Segment]) -> bool {
    let Some((Segment::Map { key }, rest)) = path.split_first() else { return false };
    let inner = match (table.get_mut(key.as_str()).map(|value| value.get_mut()), rest) {
        (Some(DeValue::Table(inner)), _) => take_out(inner, rest),
        (Some(DeValue::Array(list)), [Segment::Seq { index }, rest @ ..]) => {
            match list.get_mut(*index).map(|value| value.get_mut()) {
                Some(DeValue::Table(inner)) => take_out(inner, rest),
                _ => false,
            }
        }
        _ => false,
    };
    inner || table.remove(key.as_str()).is_some()
}

/// The line of a key such as `worker.cpus` or `service[1].udp`, or of what it stands in, from 1.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let (table, key) = key.split_once('.')?;
    let (table, index) = match table.split_once('[') {
        Some((table, index)) => (table, index.trim_end_matches(']').parse().ok()?),
        None => (table, 0),
    };
    let value = document.get_ref().get(table)?.get_ref();
    let mut value = match value {
        DeValue::Array(list) => list.get(index)?.get_ref(),
        value => value,
    };
    let mut line = None;
    for part in key.split('.') {
        let (found, inner) = value.as_table()?.iter().find(|(name, _)| name.get_ref() == part)?;
        line = Some(line_at(text, found.span().start));
        value = inner.get_ref();
    }
    line
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The library's message in one line, with what to do about it where that is not plain.
fn advice(key: &str, message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    if key.starts_with("worker.sockets") && message.starts_with("unknown field") {
        "this key is gone: TCP connections are always served through epoll, as `auto` chose before; delete the line \
         (docs/decisions/0006 says why)"
            .to_owned()
    } else if message.contains("nonzero") {
        format!("{message} (a port is 1 to 65535; leave the key out for none)")
    } else if message.starts_with("unknown field") {
        format!("{message} (docs/config.md lists the keys)")
    } else if message == "wanted string or table" {
        "a word in quotes is expected here (docs/config.md lists those that each key knows)".to_owned()
    } else {
        message
    }
}
