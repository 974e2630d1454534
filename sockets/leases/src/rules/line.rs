//! Rules as one line, in the environment of a program: fields with blanks between them, rules with semicolons.

use std::fmt::Write as _;
use std::str::FromStr as _;

use twinpath_worker::idle::Mode;

use crate::rules::file::{at_bind, range};
use crate::rules::{Rule, Rules};

/// A line that was not written by [`Rules::to_line`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no part of a rule: is the library of the same version as the program that starts it?")]
pub struct LineError(String);

impl Rules {
    /// The rules as one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut line = String::new();
        for rule in &self.rules {
            let path = if rule.is_kernel { "kernel" } else { "fast" };
            // Writing into a string does not fail.
            let _ = write!(line, "path={path} mode={}", rule.mode);
            if let Some(program) = &rule.program {
                let _ = write!(line, " program={program}");
            }
            if let Some((first, last)) = rule.ports {
                let _ = write!(line, " port={first}-{last}");
            }
            if let Some(address) = rule.address {
                let _ = write!(line, " address={address}");
            }
            if let Some(interface) = &rule.interface {
                let _ = write!(line, " interface={interface}");
            }
            if rule.chosen_ports {
                line.push_str(" chosen-ports=true");
            }
            if rule.at_bind {
                line.push_str(" lease=at-bind");
            }
            line.push(';');
        }
        line
    }

    /// What [`Rules::to_line`] has written.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn from_line(line: &str) -> Result<Self, LineError> {
        let rules = line.split_terminator(';').map(|rule| {
            let mut read = Rule::default();
            for field in rule.split_whitespace() {
                read_field(&mut read, field).ok_or_else(|| LineError(field.to_owned()))?;
            }
            Ok(read)
        });
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }
}

fn read_field(rule: &mut Rule, field: &str) -> Option<()> {
    let (key, value) = field.split_once('=')?;
    match key {
        "path" => rule.is_kernel = value == "kernel",
        "mode" => rule.mode = Mode::from_str(value).ok()?,
        "program" => rule.program = Some(value.to_owned()),
        "port" => rule.ports = Some(range(value).ok()?),
        "address" => rule.address = Some(value.parse().ok()?),
        "interface" => rule.interface = Some(value.to_owned()),
        "lease" => rule.at_bind = at_bind(value)?,
        "chosen-ports" => rule.chosen_ports = value == "true",
        _ => return None,
    }
    Some(())
}
