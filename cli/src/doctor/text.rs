//! The findings as text, for one screen.

use std::fmt::Write as _;

use super::Findings;
use super::interface::Interface;
use crate::wrap::wrapped;

/// Maximum number of interfaces shown without being named.
const INTERFACES_MAX: usize = 10;

pub(super) fn render(findings: &Findings) -> String {
    let host = &findings.host;
    let machine = if host.is_virtual { ", a virtual machine" } else { "" };
    let cpus = if host.cpus == 1 { "CPU" } else { "CPUs" };
    let mut text = format!(
        "twinpath {} on Linux {} ({}), {} {cpus}{machine}",
        findings.version, host.kernel, host.architecture, host.cpus
    );
    text.push_str("\n\nthis host, for this user:");
    for ability in &host.abilities {
        let can = if ability.can { "yes" } else { "no" };
        let note = wrapped(&format!("{}: {}", ability.name, ability.note), 6);
        let _ = write!(text, "\n  {can:3} {}", note.trim_start());
    }
    if !host.to_tune.is_empty() {
        let line = format!("not as advised: {} (`twinpath tune`)", host.to_tune.join(", "));
        let _ = write!(text, "\n{}", wrapped(&line, 2));
    }
    text.push_str("\n\nthe path of a service on each interface, unless --path says otherwise:");
    for interface in findings.interfaces.iter().take(INTERFACES_MAX) {
        text.push_str(&of_interface(interface));
    }
    if let Some(more @ 1..) = findings.interfaces.len().checked_sub(INTERFACES_MAX) {
        let _ = write!(text, "\n  and {more} more: name those of interest");
    }
    if !findings.down.is_empty() {
        let down = findings.down.iter().take(INTERFACES_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if findings.down.len() > INTERFACES_MAX { ", ..." } else { "" };
        let _ = write!(text, "\n  down, and not looked at: {down}{more}");
    }
    if !findings.running.is_empty() {
        let _ = write!(
            text,
            "\n\n{}",
            wrapped(&format!("running: {} (`twinpath show`)", findings.running.join(", ")), 0)
        );
    }
    if let Some(left @ 1..) = findings.left_behind {
        let _ = write!(
            text,
            "\n\nleft at interfaces by killed instances: {left} programs; `twinpath tidy` removes them"
        );
    }
    if !findings.not_known.is_empty() {
        text.push_str("\n\ncould not be looked at:");
        let all = findings.not_known.iter().map(|not| (not.what.as_str(), not.why.as_str()));
        for (whats, why) in by_reason(all) {
            let _ = write!(text, "\n{}", wrapped(&format!("{whats}: {why}"), 2));
        }
    }
    match host.newer.as_slice() {
        [] => text.push_str("\n\nnewer kernels would bring nothing that is missed here"),
        newer => {
            text.push_str("\n\nnewer kernels would bring:");
            for newer in newer {
                let line = format!("{}, since Linux {}: {}", newer.feature, newer.since, newer.brings);
                let _ = write!(text, "\n{}", wrapped(&line, 2));
            }
        }
    }
    text
}

/// One line about the path that it would get, and one for each thing that prevents a better one.
fn of_interface(interface: &Interface) -> String {
    let Interface { name, kind, path, why, .. } = interface;
    let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
    let down = match (interface.up, interface.carrier) {
        (false, _) => ", down",
        (true, false) => ", without a carrier",
        (true, true) => "",
    };
    let mut text = format!("\n{}", wrapped(&format!("{name}{kind}{down}: {path}: {why}"), 2));
    let mut line = |line: String| text.push_str(&format!("\n{}", wrapped(&line, 6)));
    for obstacle in &interface.obstacles {
        line(format!("in the way: {obstacle}"));
    }
    // If there is a fast path, the reasons against the others matter little.
    if path == "kernel" && !interface.loopback {
        let all = interface.why_not.iter().map(|not| (not.path.as_str(), not.reason.as_str()));
        by_reason(all).into_iter().for_each(|(paths, reason)| line(format!("not {paths}: {reason}")));
    }
    if !interface.to_tune.is_empty() {
        line(format!("not as advised: {} (`twinpath tune {name}`)", interface.to_tune.join(", ")));
    }
    text
}

/// Names with their reasons; names with the same reason are grouped.
fn by_reason<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, &'a str)> {
    let mut reasons: Vec<(String, &str)> = Vec::new();
    for (name, reason) in all {
        match reasons.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => {
                names.push_str(", ");
                names.push_str(name);
            }
            None => reasons.push((name.to_owned(), reason)),
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::WhyNot;

    use super::*;
    use crate::doctor::NotKnown;
    use crate::doctor::host::{Ability, Host, Newer};

    fn interface(name: &str, path: &str) -> Interface {
        let not = |path: &str, reason: &str| WhyNot { path: path.to_owned(), reason: reason.to_owned() };
        Interface {
            name: name.to_owned(),
            kind: "veth".to_owned(),
            up: true,
            carrier: true,
            path: path.to_owned(),
            why: "for a reason".to_owned(),
            why_not: vec![
                not("xdp-native", "it lacks a right"),
                not("xdp-generic", "it lacks a right"),
                not("packet", "it cannot"),
            ],
            ..Interface::default()
        }
    }

    fn findings(interfaces: Vec<Interface>) -> Findings {
        let ability = Ability { name: "packet path", can: false, note: "a right is missing".to_owned() };
        let newer = Newer { since: "6.6", feature: "BPF links at tc", brings: "no program stays" };
        let host = Host { cpus: 1, abilities: vec![ability], newer: vec![newer], ..Host::default() };
        Findings {
            version: "1",
            host,
            interfaces,
            down: vec!["eth9".to_owned()],
            running: Vec::new(),
            left_behind: Some(2),
            not_known: Vec::new(),
        }
    }

    #[test]
    fn a_failed_look_is_not_shown_as_nothing_found() {
        let not_known = vec![
            NotKnown::new("settings of a", "it is forbidden"),
            NotKnown::new("running instances", "others may write to the folder"),
            NotKnown::new("settings of b", "it is forbidden"),
        ];
        let text = render(&Findings { left_behind: None, not_known, ..findings(Vec::new()) });
        let lines = "could not be looked at:\n  settings of a, settings of b: it is forbidden\n  running instances: others";
        assert!(text.contains(lines) && !text.contains("left at interfaces"), "{text}");
    }

    #[test]
    fn reasons_are_told_where_there_is_no_fast_path_and_once_each() {
        let obstacle =
            Interface { obstacles: vec!["rp_filter is strict".to_owned()], ..interface("b", "packet") };
        let text = render(&findings(vec![interface("a", "kernel"), obstacle]));
        for line in [
            "  no  packet path: a right is missing",
            "  a (veth): kernel: for a reason",
            "      not xdp-native, xdp-generic: it lacks a right",
            "      not packet: it cannot",
            "  b (veth): packet: for a reason\n      in the way: rp_filter is strict\n",
            "  down, and not looked at: eth9",
            "`twinpath tidy`",
            "  BPF links at tc, since Linux 6.6: no program stays",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
        assert_eq!(text.matches("not packet").count(), 1);
    }

    #[test]
    fn a_thousand_interfaces_fit_on_a_screen() {
        let many = (0..1000).map(|number| interface(&format!("v{number}"), "packet")).collect();
        let text = render(&findings(many));
        assert!(text.contains("and 990 more") && text.lines().count() < 40, "{text}");
    }
}
