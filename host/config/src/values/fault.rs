//! Mistakes in a configuration, and the lines that they are in.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key, as `worker.cpus` or `service[1].udp`, counted from 0.
    pub key: String,
    /// What is wrong and what to do.
    pub sentence: String,
}

impl Fault {
    /// A fault of a key.
    pub fn new(key: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { key: key.into(), sentence: sentence.into() }
    }
}

impl From<(&'static str, String)> for Fault {
    fn from((key, sentence): (&'static str, String)) -> Self {
        Self::new(key, sentence)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.sentence),
            key => write!(f, "{key}: {}", self.sentence),
        }
    }
}

/// A fault and the line that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file and the line in it, from 1; `None` if it is in no file.
    pub place: Option<(PathBuf, usize)>,
    /// The key and what is wrong; the key is empty if the whole file is wrong.
    pub fault: Fault,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((file, line)) => write!(f, "{}:{line}: {}", file.display(), self.fault),
            None => self.fault.fmt(f),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Everything that is wrong, in the order of lines; one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Mistake>),
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
