//! Directories that are exported, as they are written: `/srv/data:rw,client=10.0.0.0/8`. The options have the names of
//! exports(5).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_claims::Prefix;

/// Which callers become the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squashed {
    /// Root: `root_squash`.
    #[default]
    Root,
    /// All: `all_squash`.
    All,
    /// None: `no_root_squash`.
    None,
}

/// A directory that is exported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExportText {
    /// Its path.
    pub path: PathBuf,
    /// Whether clients may change it: `rw`, or `ro`, the default.
    pub is_writable: bool,
    /// Who becomes anonymous.
    pub squashed: Squashed,
    /// The anonymous user: `anonuid=N`.
    pub anon_uid: Option<u32>,
    /// The anonymous group: `anongid=N`.
    pub anon_gid: Option<u32>,
    /// Whether calls may come from ports that need no privilege: `insecure`, or `secure`, the default.
    pub is_insecure: bool,
    /// Whether changes are answered before they are durable: `async`, or `sync`, the default.
    pub is_async: bool,
    /// Its number in handles: `fsid=N`.
    pub fsid: Option<u32>,
    /// Who may mount it: `client=PREFIX`, again for each; empty: everybody.
    pub clients: Vec<Prefix>,
}

/// The names of all options.
const OPTIONS: [&str; 13] = [
    "ro",
    "rw",
    "root_squash",
    "all_squash",
    "no_root_squash",
    "anonuid",
    "anongid",
    "secure",
    "insecure",
    "sync",
    "async",
    "fsid",
    "client",
];

/// The text is no export.
#[derive(Debug, thiserror::Error)]
pub enum ExportTextError {
    /// It does not begin with an absolute path.
    #[error(
        "`{0}` is no export: write an absolute path, and options behind a colon, as in /srv/data:rw,client=10.0.0.0/8"
    )]
    Path(String),
    /// An option that does not exist.
    #[error(
        "`{option}` of `{export}` is no option of an export: there are {}",
        OPTIONS.join(", ")
    )]
    Option {
        /// The option.
        option: String,
        /// The whole text.
        export: String,
    },
    /// A value that an option cannot have.
    #[error("`{option}` of `{export}`: {why}")]
    Value {
        /// The option.
        option: String,
        /// The whole text.
        export: String,
        /// Why not.
        why: String,
    },
}

impl ExportText {
    /// An export with the defaults.
    fn new(path: &str) -> Self {
        Self {
            path: PathBuf::from(path),
            is_writable: false,
            squashed: Squashed::Root,
            anon_uid: None,
            anon_gid: None,
            is_insecure: false,
            is_async: false,
            fsid: None,
            clients: Vec::new(),
        }
    }

    /// Its number in handles: the one that is given, or one that depends on the path alone, so that handles hold when
    /// other exports come and go.
    #[must_use]
    pub fn number(&self) -> u32 {
        // FNV-1a, 32 bits.
        let of_path = self.path.as_os_str().as_encoded_bytes().iter();
        let of_path =
            of_path.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        self.fsid.unwrap_or(of_path)
    }

    /// Applies one option. `None`: there is no such option.
    fn set(&mut self, option: &str) -> Option<Result<(), String>> {
        let number = |text: &str| match text.parse::<u32>() {
            Ok(u32::MAX) | Err(_) => Err("give a number from 0 to 4294967294".to_owned()),
            Ok(number) => Ok(Some(number)),
        };
        let set = |to: &mut Option<u32>, text| number(text).map(|number| *to = number);
        match option.split_once('=') {
            Some(("anonuid", text)) => return Some(set(&mut self.anon_uid, text)),
            Some(("anongid", text)) => return Some(set(&mut self.anon_gid, text)),
            Some(("fsid", text)) => return Some(set(&mut self.fsid, text)),
            Some(("client", text)) => {
                let prefix = text.parse().map_err(|error| format!("{error}"));
                return Some(prefix.map(|prefix| self.clients.push(prefix)));
            }
            Some(_) => return None,
            None => {}
        }
        match option {
            "ro" => self.is_writable = false,
            "rw" => self.is_writable = true,
            "root_squash" => self.squashed = Squashed::Root,
            "all_squash" => self.squashed = Squashed::All,
            "no_root_squash" => self.squashed = Squashed::None,
            "secure" => self.is_insecure = false,
            "insecure" => self.is_insecure = true,
            "sync" => self.is_async = false,
            "async" => self.is_async = true,
            _ => return None,
        }
        Some(Ok(()))
    }
}

impl FromStr for ExportText {
    type Err = ExportTextError;

    /// The options begin behind the first colon that an option follows, or nothing.
    fn from_str(text: &str) -> Result<Self, ExportTextError> {
        let is_option = |rest: &str| {
            let first = rest.split([',', '=']).next().unwrap_or_default();
            rest.is_empty() || OPTIONS.contains(&first)
        };
        let mut colons = text.match_indices(':').map(|(at, _)| (&text[..at], &text[at + 1..]));
        let parts = colons.clone().find(|(_, rest)| is_option(rest)).or_else(|| colons.next());
        let (path, options) = parts.unwrap_or((text, ""));
        let trimmed = path.trim_end_matches('/');
        let mut export = Self::new(if trimmed.is_empty() { "/" } else { trimmed });
        if !path.starts_with('/') {
            return Err(ExportTextError::Path(text.to_owned()));
        }
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (option, export_text) = (option.to_owned(), text.to_owned());
            match export.set(&option) {
                Some(Ok(())) => {}
                Some(Err(why)) => return Err(ExportTextError::Value { option, export: export_text, why }),
                None => return Err(ExportTextError::Option { option, export: export_text }),
            }
        }
        Ok(export)
    }
}

impl fmt::Display for ExportText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let squashed = match self.squashed {
            Squashed::Root => "",
            Squashed::All => ",all_squash",
            Squashed::None => ",no_root_squash",
        };
        let mode = if self.is_writable { "rw" } else { "ro" };
        write!(f, "{}:{mode}{squashed}", self.path.display())?;
        for (name, value) in [("anonuid", self.anon_uid), ("anongid", self.anon_gid), ("fsid", self.fsid)] {
            value.map_or(Ok(()), |value| write!(f, ",{name}={value}"))?;
        }
        for (name, is_set) in [("insecure", self.is_insecure), ("async", self.is_async)] {
            if is_set {
                write!(f, ",{name}")?;
            }
        }
        self.clients.iter().try_for_each(|client| write!(f, ",client={client}"))
    }
}

impl TryFrom<String> for ExportText {
    type Error = ExportTextError;

    fn try_from(text: String) -> Result<Self, ExportTextError> {
        text.parse()
    }
}

impl From<ExportText> for String {
    fn from(export: ExportText) -> Self {
        export.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_read_as_it_is_written() {
        for text in [
            "/srv/data:ro",
            "/:rw,no_root_squash",
            "/a:b:rw,all_squash,anonuid=7,anongid=0,fsid=9,insecure,async,client=10.0.0.0/8,client=fd00::/8",
        ] {
            assert_eq!(text.parse::<ExportText>().expect(text).to_string(), text);
        }
        let plain: ExportText = "/srv/data/".parse().expect("a path");
        assert_eq!((plain.to_string().as_str(), plain.clients.len()), ("/srv/data:ro", 0));
        assert_eq!(plain, "/srv/data:sync,secure,root_squash, ro".parse().expect("the defaults"));
        let host: ExportText = "/srv:client=192.0.2.1".parse().expect("a host");
        assert_eq!(host.to_string(), "/srv:ro,client=192.0.2.1/32");
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        for (text, part) in [
            ("srv", "is no export: write an absolute path"),
            ("", "is no export"),
            ("/srv:sloppy", "`sloppy` of `/srv:sloppy` is no option"),
            ("/srv:rw,sloppy", "`sloppy` of `/srv:rw,sloppy` is no option"),
            ("/srv:uid=1", "`uid=1` of `/srv:uid=1` is no option"),
            ("/srv:anonuid=4294967295", "give a number from 0 to 4294967294"),
            ("/srv:fsid=x", "give a number"),
            ("/srv:client=10.0.0.0/33", "`client=10.0.0.0/33` of"),
        ] {
            let error = text.parse::<ExportText>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_number_depends_on_the_path_or_is_given() {
        let number = |text: &str| text.parse::<ExportText>().expect(text).number();
        assert_eq!(number("/srv/data"), number("/srv/data/:rw"));
        assert_ne!(number("/srv/data"), number("/srv/other"));
        assert_eq!(number("/srv/data:fsid=3"), 3);
    }
}
