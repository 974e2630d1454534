//! Reads a file: finds all mistakes in it, not only the first.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::de::{DeArray, DeTable, DeValue};

use super::{Config, Fault, Mistake};

/// Maximum number of mistakes reported: a file with more is probably the wrong file.
const MISTAKES_MAX: usize = 64;

/// A file that was read.
pub(super) struct Read {
    /// The readable part of the configuration; other keys have their defaults.
    pub(super) config: Config,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) unread: Unread,
}

/// The parts of a file that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// All of it: it is not TOML.
    Everything,
    /// These keys.
    Keys(Vec<String>),
}

impl Unread {
    /// Whether this key could not be read, or the table that it is in.
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
/// The library that reads TOML into values stops at the first mistake. So each key with a mistake is
/// removed, and the rest is read again.
pub(super) fn read(text: &str, file: &Path) -> Read {
    let mistake = |error: &toml::de::Error, key: &str| mistake(text, file, error, key);
    let (mut document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mistakes = errors.iter().take(MISTAKES_MAX).map(|error| mistake(error, "")).collect();
        return Read { config: Config::default(), mistakes, unread: Unread::Everything };
    }
    read_document(&mut document, mistake)
}

/// Like [`read`], for a file that also has a table `[program]` for the program; its default if there is
/// none.
pub(super) fn read_with_program<T: DeserializeOwned + Default>(text: &str, file: &Path) -> (Read, T) {
    let mistake = |error: &toml::de::Error, key: &str| mistake(text, file, error, key);
    let (mut document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return (read(text, file), T::default());
    }
    let program = document.get_mut().remove("program").map_or_else(
        || Ok(T::default()),
        |program| serde_path_to_error::deserialize(toml::de::ValueDeserializer::from(program)),
    );
    let mut read = read_document(&mut document, mistake);
    let wrong = program.as_ref().err();
    read.mistakes.extend(wrong.map(|error| mistake(error.inner(), &format!("program.{}", error.path()))));
    (read, program.unwrap_or_default())
}

fn mistake(text: &str, file: &Path, error: &toml::de::Error, key: &str) -> Mistake {
    Mistake {
        place: Some((file.to_owned(), error.span().map_or(1, |span| line_at(text, span.start)))),
        fault: Fault::new(key, advice(key, error.message())),
    }
}

fn read_document(
    document: &mut toml::Spanned<DeTable<'_>>,
    mistake: impl Fn(&toml::de::Error, &str) -> Mistake,
) -> Read {
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

/// Removes the innermost key of a path; returns whether there was one.
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

/// The line, from 1, of a key such as `worker.cpus`, `service[1].udp` or `switch.port[1].vlan`.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    // A fault of a whole table has no line.
    key.contains('.').then_some(())?;
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut line = None;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, Some(index.trim_end_matches(']').parse::<usize>().ok()?)),
            None => (part, None),
        };
        let (found, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        line = Some(line_at(text, found.span().start));
        let value = match (value.get_ref(), index) {
            (DeValue::Array(list), Some(index)) => list.get(index)?.get_ref(),
            // The only one of several that there may be.
            (DeValue::Array(list), None) if parts.peek().is_some() => list.first()?.get_ref(),
            (value, _) => value,
        };
        if parts.peek().is_some() {
            table = value.as_table()?;
        }
    }
    line
}

/// The keys that a text gives, as `worker.cpus` or `service[1].udp`.
pub(super) fn keys_of(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    if let Ok(document) = DeTable::parse(text) {
        for (name, value) in document.get_ref() {
            match value.get_ref() {
                DeValue::Array(tables) => list_tables(name.get_ref(), tables, &mut keys),
                value => list_keys(name.get_ref(), value, &mut keys),
            }
        }
    }
    keys
}

fn list_keys(name: &str, value: &DeValue<'_>, keys: &mut BTreeSet<String>) {
    match value {
        DeValue::Table(table) => {
            for (inner, value) in table {
                list_keys(&format!("{name}.{}", inner.get_ref()), value.get_ref(), keys);
            }
        }
        DeValue::Array(tables) if tables.first().is_some_and(|first| first.get_ref().is_table()) => {
            list_tables(name, tables, keys);
        }
        _ => {
            keys.insert(name.to_owned());
        }
    }
}

fn list_tables(name: &str, tables: &DeArray<'_>, keys: &mut BTreeSet<String>) {
    let is_one = tables.len() == 1;
    for (at, table) in tables.iter().enumerate() {
        let index = if is_one { String::new() } else { format!("[{at}]") };
        list_keys(&format!("{name}{index}"), table.get_ref(), keys);
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The message of the library in one line, with advice if the message does not say what to do.
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
