//! Configuration keys: the properties that the file, the command line, docs/config.md and `twinpath show
//! config` use.
//!
//! The macro `section` defines the keys of one table, each in one entry:
//!
//! ```text
//! /// How long connections may take to end when the instance stops
//! drain_ms: u32 = 5_000 => range(0, 600_000), unit("ms"), option("drain-ms", "MS", SERVE), change(Change::Reload);
//! ```
//!
//! The doc comment is the help text. What follows `=>` are methods of [`Key`].

use crate::values::Command;

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The table that it is in, such as `worker`.
    pub table: &'static str,
    /// Its name in that table, with its unit as a suffix, such as `fail_open_ms`.
    pub name: &'static str,
    /// Both, as `worker.fail_open_ms`.
    pub path: &'static str,
    /// The unit: `ms`, `workers`; empty if the key has none.
    pub unit: &'static str,
    /// The behaviour if the key has no value, such as `learnt`; empty if it always has one.
    pub unset: &'static str,
    /// The option that sets it on the command line.
    pub option: Option<CliOption>,
    /// How many values the option takes.
    pub takes: Takes,
    /// The value in the example file.
    pub example: Example,
    /// How it can be changed while an instance runs.
    pub change: Change,
    /// Why services cannot have their own value, for keys of a table that they can otherwise override.
    pub of_instance: Option<&'static str>,
    help: &'static str,
    range: Option<(u64, u64)>,
    power_of_two: bool,
    zero: &'static str,
    advice: &'static str,
    values: &'static str,
    values_of_type: fn() -> String,
    read: fn(&[String]) -> Result<Option<u64>, String>,
}

/// An option of the command line.
#[derive(Clone, Copy, Debug)]
pub struct CliOption {
    /// Its name without the dashes.
    pub long: &'static str,
    /// The name of its value in help texts.
    pub value: &'static str,
    /// The commands that have it.
    pub of: &'static [Command],
    /// Options that cannot be given together with it, by their names without the dashes.
    pub conflicts: &'static [&'static str],
}

/// How many values the option of a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// None: the option means `true`.
    Nothing,
    /// One value.
    One,
    /// One value each time that the option is given.
    Several,
}

/// The value of a key in the example file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// Its default.
    Default,
    /// This value, in TOML.
    Value(&'static str),
    /// This value, in a comment, because it contradicts other values of the file.
    Comment(&'static str),
}

/// How a key of a running instance can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By a restart.
    Restart,
    /// By a reload, which restarts the services concerned.
    ReloadAnew,
    /// By a reload.
    Reload,
    /// By `twinpath set`, or a reload.
    Set,
    /// `twinpath port`, or a reload.
    Port,
}

impl Change {
    /// The same as text, for an instance with a file to reload or without one.
    #[must_use]
    pub const fn by(self, has_file: bool) -> &'static str {
        match (self, has_file) {
            (Self::Set, true) => "set, reload",
            (Self::Set, false) => "set",
            (Self::Port, true) => "port, reload",
            (Self::Port, false) => "port",
            (Self::Reload | Self::ReloadAnew, true) => "reload",
            (Self::Restart, _) | (_, false) => "restart",
        }
    }
}

/// A value that a key can have.
pub(super) trait KeyValue: Sized {
    /// How many values its option takes.
    const TAKES: Takes = Takes::One;

    /// Reads the texts that the option was given, one for each time.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong, and what to write instead.
    fn read(texts: &[String]) -> Result<Self, String>;

    /// The value as a number, for the check of the range.
    fn number(&self) -> Option<u64> {
        None
    }

    /// The possible values in Markdown, if the type determines them.
    fn values() -> String {
        String::new()
    }
}

/// Values that override those of a table.
pub(super) trait Override {
    /// Sets a key of the table from the texts that its option was given.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong, and what to write instead.
    fn set(&mut self, name: &str, texts: &[String]) -> Result<(), String>;

    /// The names of the keys that have a value.
    fn named(&self) -> Vec<&'static str>;

    /// Takes out the values of the keys with these names.
    fn remove(&mut self, names: &[&str]);
}

impl Key {
    /// A key with values of this type; the methods below set its other properties.
    pub(super) const fn of<T: KeyValue>(
        table: &'static str,
        name: &'static str,
        path: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            table,
            name,
            path,
            unit: "",
            unset: "",
            option: None,
            takes: T::TAKES,
            example: Example::Default,
            change: Change::Restart,
            of_instance: None,
            help,
            range: None,
            power_of_two: false,
            zero: "",
            advice: "",
            values: "",
            values_of_type: T::values,
            read: |texts| T::read(texts).map(|value| value.number()),
        }
    }

    /// Sets the unit.
    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the least and the greatest value.
    pub(super) const fn range(mut self, least: u64, most: u64) -> Self {
        self.range = Some((least, most));
        self
    }

    /// Allows only powers of two.
    pub(super) const fn power_of_two(mut self) -> Self {
        self.power_of_two = true;
        self
    }

    /// Allows 0, which is outside of the range, with this meaning.
    pub(super) const fn zero(mut self, meaning: &'static str) -> Self {
        self.zero = meaning;
        self
    }

    /// Sets the advice that follows the message about a value outside of the range.
    pub(super) const fn advice(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// Sets the possible values in Markdown, if neither the type nor the range determines them.
    pub(super) const fn values_are(mut self, values: &'static str) -> Self {
        self.values = values;
        self
    }

    /// Sets what applies if the key has no value.
    pub(super) const fn unset(mut self, meaning: &'static str) -> Self {
        self.unset = meaning;
        self
    }

    /// Sets the option.
    pub(super) const fn option(
        mut self,
        long: &'static str,
        value: &'static str,
        of: &'static [Command],
    ) -> Self {
        self.option = Some(CliOption { long, value, of, conflicts: &[] });
        self
    }

    /// Sets the options that cannot be given together with its own.
    pub(super) const fn conflicts(mut self, options: &'static [&'static str]) -> Self {
        if let Some(option) = &mut self.option {
            option.conflicts = options;
        }
        self
    }

    /// Sets the value in the example file.
    pub(super) const fn example(mut self, value: &'static str) -> Self {
        self.example = Example::Value(value);
        self
    }

    /// Sets the value in a comment of the example file.
    pub(super) const fn comment(mut self, value: &'static str) -> Self {
        self.example = Example::Comment(value);
        self
    }

    /// Sets how the key can be changed while an instance runs.
    pub(super) const fn change(mut self, change: Change) -> Self {
        self.change = change;
        self
    }

    /// Excludes values of single services, for this reason.
    pub(super) const fn of_instance(mut self, why: &'static str) -> Self {
        self.of_instance = Some(why);
        self
    }
}

impl Key {
    /// Whether a switch has it.
    #[must_use]
    pub fn is_of_switch(&self) -> bool {
        self.table.starts_with("switch")
            || self.option.is_some_and(|option| option.of.contains(&Command::Switch))
    }

    /// The help text: one line without a full stop, with the unit and the meaning of 0.
    #[must_use]
    pub fn help(&self) -> String {
        let unit = if ["us", "ms", "s", "%"].contains(&self.unit) { self.unit } else { "" };
        let separator = if unit.is_empty() { "" } else { ", " };
        let zero = if self.zero.is_empty() { String::new() } else { format!("; 0: {}", self.zero) };
        format!("{}{separator}{unit}{zero}", self.help.trim())
    }

    /// The values that it can have, in Markdown.
    #[must_use]
    pub fn values(&self) -> String {
        match (self.values, self.range) {
            ("", Some(_)) => self.range_in_words(),
            ("", None) => (self.values_of_type)(),
            (values, _) => values.to_owned(),
        }
    }

    /// Reads the texts that the option was given.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong, and what to write instead.
    pub fn read(&self, texts: &[String]) -> Result<Option<u64>, String> {
        (self.read)(texts)
    }

    /// The message about a number that is outside of the range.
    #[must_use]
    pub fn range_fault(&self, number: u64) -> Option<String> {
        let (least, most) = self.range?;
        let is_zero = number == 0 && !self.zero.is_empty();
        let fits = (least..=most).contains(&number) && (!self.power_of_two || number.is_power_of_two());
        if is_zero || fits {
            return None;
        }
        let advice = |separator| match self.advice {
            "" => String::new(),
            advice => format!("{separator}{advice}"),
        };
        if least == 0 {
            return Some(format!("{number} {} is more than {most}{}", self.unit, advice(": ")));
        }
        // The unit is added unless the key's name ends with it.
        let unit = if self.name.ends_with(self.unit) { "" } else { &format!(" {}", self.unit) };
        Some(format!("{number}{unit}: give {}{}", self.range_in_words(), advice(", ")))
    }

    fn range_in_words(&self) -> String {
        let Some((least, most)) = self.range else { return String::new() };
        let power = if self.power_of_two { "a power of two, " } else { "" };
        let zero = if self.zero.is_empty() { String::new() } else { format!(", or 0 for {}", self.zero) };
        format!("{power}{least} to {most}{zero}")
    }
}

/// Defines the table of a section: the struct that the file is read into, with its defaults; the same with every value
/// optional, for what overrides them; and the [`Key`] of each.
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident, $Overrides:ident in $table:literal {
            $(
                $(#[doc = $help:literal])+
                $name:ident: $Type:ty = $default:expr => $($property:ident($($argument:expr),*)),*;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $($(#[doc = $help])+ pub $name: $Type,)+
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl $Section {
            /// The keys of the table, in the order of the fields.
            pub const KEYS: &'static [$crate::key::Key] = &[
                $($crate::key::Key::of::<$Type>(
                    $table,
                    stringify!($name),
                    concat!($table, ".", stringify!($name)),
                    concat!($($help),+),
                )$(.$property($($argument),*))*,)+
            ];

            /// Replaces the values that are overridden.
            pub(super) fn apply(&mut self, overrides: &$Overrides) {
                $(if let Some(value) = &overrides.$name {
                    self.$name.clone_from(value);
                })+
            }

            /// Numbers outside of the range of their key.
            fn range_faults(&self) -> Vec<$crate::Wrong> {
                let numbers = [$($crate::key::KeyValue::number(&self.$name),)+];
                let keys = Self::KEYS.iter().zip(numbers);
                keys.filter_map(|(key, number)| Some((key.path, key.range_fault(number?)?))).collect()
            }
        }

        #[doc = concat!("Values that win over those of `[", $table, "]`: of the command line, or of one service.")]
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Overrides {
            $($(#[doc = $help])+ pub $name: Option<$Type>,)+
        }

        impl $crate::key::Override for $Overrides {
            fn set(&mut self, name: &str, texts: &[String]) -> Result<(), String> {
                match name {
                    $(stringify!($name) => {
                        self.$name = Some($crate::key::KeyValue::read(texts)?);
                    })+
                    _ => return Err(format!("[{}] has no key {name}", $table)),
                }
                Ok(())
            }

            fn named(&self) -> Vec<&'static str> {
                let named = [$((stringify!($name), self.$name.is_some()),)+];
                named.into_iter().filter(|(_, is_named)| *is_named).map(|(name, _)| name).collect()
            }

            fn remove(&mut self, names: &[&str]) {
                $(if names.contains(&stringify!($name)) {
                    self.$name = None;
                })+
            }
        }
    };
}

pub(super) use section;
