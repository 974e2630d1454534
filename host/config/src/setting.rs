//! A configuration key with its value, as reports have it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A configuration key of an instance, with its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// As `worker.mode`, or `service[1].udp` if there are several services.
    pub key: String,
    /// As in the configuration file; `null` if the key has none.
    pub value: Value,
    /// The value without a file and options.
    pub default: Value,
    /// The behaviour if the key has no value, such as `learnt`; empty if it always has one.
    pub unset: String,
    /// The unit, such as `ms`; empty if the key has none.
    pub unit: String,
    /// The values that it can have, in words.
    pub values: String,
    /// The help text.
    pub help: String,
    /// Where the value comes from: `default`, `file`, `command line`, `set` (changed by `twinpath set` since), or
    /// `program`, which is the program that uses the library.
    pub source: String,
    /// How it can be changed while the instance runs: `set`, `set, reload`, `reload` or `restart`.
    pub changed_by: String,
}

impl Setting {
    /// The value in words.
    #[must_use]
    pub fn value_in_words(&self) -> String {
        self.in_words(&self.value)
    }

    /// The default in words.
    #[must_use]
    pub fn default_in_words(&self) -> String {
        self.in_words(&self.default)
    }

    fn in_words(&self, value: &Value) -> String {
        match value {
            Value::Null => self.unset.clone(),
            Value::String(text) => text.clone(),
            Value::Array(list) if list.is_empty() => self.unset.clone(),
            Value::Array(list) => list.iter().map(|item| self.in_words(item)).collect::<Vec<_>>().join(", "),
            other => other.to_string(),
        }
    }
}
