//! Rules as a user writes them.

use std::net::IpAddr;
use std::str::FromStr as _;

use serde::Deserialize;
use twinpath_worker::idle::Mode;

use crate::rules::{Rule, Rules};

/// What is wrong with a file of rules.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is no TOML, or has other keys than there are.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A value.
    #[error("rule {number}: {what}")]
    Value {
        /// Counted from 1.
        number: usize,
        /// What is wrong, and what can be written.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    program: Option<String>,
    port: Option<Port>,
    address: Option<IpAddr>,
    #[serde(default)]
    chosen_ports: bool,
    path: Option<String>,
    interface: Option<String>,
    mode: Option<String>,
    lease: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Port {
    One(u16),
    Range(String),
}

impl Rules {
    /// Reads a file of rules: tables named `rule`, each with any of `program`, `port` (a number, or a range as `"5000-5010"`),
    /// `address`, `chosen-ports`, `path` (`"fast"` or `"kernel"`), `interface`, `mode` and `lease` (`"earned"` or
    /// `"at-bind"`).
    ///
    /// # Errors
    /// [`FileError`]
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let file: File = toml::from_str(text)?;
        let rules =
            file.rule.into_iter().enumerate().map(|(at, written)| {
                written.rule().map_err(|what| FileError::Value { number: at + 1, what })
            });
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }
}

impl Written {
    fn rule(self) -> Result<Rule, String> {
        let is_kernel = match self.path.as_deref() {
            None | Some("fast") => false,
            Some("kernel") => true,
            Some(other) => return Err(format!("path \"{other}\": write \"fast\" or \"kernel\"")),
        };
        let ports = self.port.map(|port| match port {
            Port::One(port) => Ok((port, port)),
            Port::Range(text) => range(&text),
        });
        let mode = self.mode.map(|mode| {
            Mode::from_str(&mode)
                .map_err(|_| format!("mode \"{mode}\": write \"adaptive\", \"poll\" or \"interrupt\""))
        });
        let lease = self.lease.map(|lease| {
            at_bind(&lease).ok_or_else(|| format!("lease \"{lease}\": write \"earned\" or \"at-bind\""))
        });
        let rule = Rule {
            program: self.program,
            ports: ports.transpose()?,
            address: self.address,
            chosen_ports: self.chosen_ports,
            is_kernel,
            interface: self.interface,
            mode: mode.transpose()?.unwrap_or_default(),
            at_bind: lease.transpose()?.unwrap_or_default(),
        };
        rule.check_names()?;
        Ok(rule)
    }
}

impl Rule {
    /// Names can be written as fields of a line.
    ///
    /// # Errors
    /// Which one cannot, and why, as text.
    pub fn check_names(&self) -> Result<(), String> {
        for name in [&self.program, &self.interface].into_iter().flatten() {
            if name.is_empty()
                || name.contains(|letter: char| letter.is_whitespace() || "/;=".contains(letter))
            {
                return Err(format!("name \"{name}\": a name without blanks, and without / ; ="));
            }
        }
        Ok(())
    }
}

/// Whether `bind` waits for the lease.
pub(crate) fn at_bind(text: &str) -> Option<bool> {
    match text {
        "earned" => Some(false),
        "at-bind" => Some(true),
        _ => None,
    }
}

/// `5000` or `5000-5010`.
pub(crate) fn range(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("port \"{text}\": write a number, or a range as \"5000-5010\"");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok((first, last)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use crate::rules::{Bound, Rules};

    #[test]
    fn the_first_rule_that_matches_decides() {
        let text = r#"
            [[rule]]
            program = "dig"
            path = "kernel"
            chosen-ports = true

            [[rule]]
            port = "5000-5010"
            interface = "eth0"
            mode = "poll"

            [[rule]]
            address = "192.0.2.1"
            chosen-ports = true
            lease = "at-bind"
        "#;
        let rules = Rules::parse(text).expect("rules");
        let of = |program, local: &str, is_chosen| {
            let bound = Bound { local: local.parse().expect("an address"), is_chosen };
            rules.of(program, bound).and_then(|rule| rules.rules.iter().position(|other| other == rule))
        };
        assert_eq!(of("dig", "0.0.0.0:5001", false), Some(0));
        assert_eq!(of("server", "0.0.0.0:5010", false), Some(1));
        assert_eq!(of("server", "0.0.0.0:5010", true), None);
        assert_eq!(of("server", "0.0.0.0:5011", false), None);
        assert_eq!(of("server", "[::ffff:192.0.2.1]:5010", true), Some(2));
        assert_eq!(Rules::from_line(&rules.to_line()), Ok(rules));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let said = |text| Rules::parse(text).expect_err("it is wrong").to_string();
        assert_eq!(
            said("[[rule]]\n[[rule]]\npath = \"quick\""),
            "rule 2: path \"quick\": write \"fast\" or \"kernel\""
        );
        assert_eq!(
            said("[[rule]]\nport = \"9-3\""),
            "rule 1: port \"9-3\": write a number, or a range as \"5000-5010\""
        );
        assert!(said("[[rule]]\nprt = 3").contains("unknown field `prt`"));
        assert!(said("[[rule]]\nlease = \"x\"").starts_with("rule 1: lease \"x\": write"));
        assert!(said("[[rule]]\nmode = \"x\"").starts_with("rule 1: mode \"x\": write"));
        assert!(said("[[rule]]\nprogram = \"a b\"").starts_with("rule 1: name \"a b\""));
    }
}
