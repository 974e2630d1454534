//! Fuzzes configuration files: an error names a line, and a file that is accepted reads back as it was written.

use std::path::Path;

use twinpath_config::{Config, ConfigError, EXAMPLE, Endpoint, Mistake};
use twinpath_sys::affinity::parse_cpu_list;

use crate::fuzz;

fn check(text: &str) {
    match Config::parse(text, Path::new("service.toml")) {
        Ok(config) => {
            for fault in config.validate() {
                assert!(
                    !fault.sentence.is_empty() && fault.key.contains("service") | fault.key.contains('.'),
                    "{fault:?}"
                );
            }
            let written = toml::to_string(&config).expect("a configuration is TOML");
            let again = Config::parse(&written, Path::new("written.toml")).expect("what we write we read");
            assert_eq!(again, config, "{written}");
        }
        Err(ConfigError::Invalid(mistakes)) => {
            assert!(!mistakes.is_empty());
            for Mistake { place, fault } in mistakes {
                let line = place.expect("a place").1;
                assert!((1..=text.lines().count() + 1).contains(&line), "line {line} of {text:?}");
                assert!(!fault.sentence.is_empty());
            }
        }
        Err(other) => panic!("nothing is read here: {other}"),
    }
}

#[test]
fn texts() {
    fuzz!("config__texts", |input: &[u8]| check(&String::from_utf8_lossy(input)));
}

/// Values for the keys; each is valid for some key.
const VALUES: [&str; 16] = [
    "0",
    "1",
    "-1",
    "65535",
    "65536",
    "18446744073709551616",
    "1.5",
    "true",
    "\"\"",
    "\"eth0\"",
    "\"poll\"",
    "\"xdp\"",
    "[0, 1]",
    "[1, 1]",
    "{ udp = 7 }",
    "\"",
];

/// The example file; for each three bytes of input one line is removed, duplicated, or given another value.
#[test]
fn damaged_examples() {
    fuzz!("config__damaged_examples", |input: &[u8]| {
        let mut lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
        for [line, what, value] in input.as_chunks::<3>().0 {
            let line = usize::from(*line) % lines.len();
            match what % 3 {
                0 => lines[line].clear(),
                1 => lines.push(lines[line].clone()),
                _ => {
                    let key = lines[line].split('=').next().unwrap_or_default();
                    lines[line] = format!("{key}= {}", VALUES[usize::from(*value) % VALUES.len()]);
                }
            }
        }
        check(&lines.join("\n"));
    });
}

#[test]
fn cpu_lists() {
    fuzz!("config__cpu_lists", |input: &[u8]| {
        if let Ok(cpus) = parse_cpu_list(&String::from_utf8_lossy(input)) {
            assert!(!cpus.is_empty() && cpus.len() <= 1024, "{} CPUs", cpus.len());
        }
    });
}

#[test]
fn controllers() {
    fuzz!("config__controllers", |input: &[u8]| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        if let Ok(Endpoint::Tcp(address)) = text.parse::<Endpoint>() {
            let (host, port) = address.rsplit_once(':').expect("there is always a port");
            assert!(!host.is_empty() && port.parse::<u16>().is_ok(), "{text:?}");
        }
    });
}
