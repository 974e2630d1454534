//! Rules about files as text: links, machine paths.

use super::{Finding, Tree};

/// Written in two parts so that this file does not contain what it looks for.
const MACHINE: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine: use a path relative to the checkout"),
    (concat!("/ho", "me/"), "a path of one machine: use a path relative to the checkout, or $HOME"),
    (concat!("/ro", "ot/"), "a path of one machine: use a path relative to the checkout, or $HOME"),
    (concat!("index.crates", ".io"), "a registry's host: cargo knows where its registry is"),
    (concat!("static.crates", ".io"), "a registry's host: cargo knows where its registry is"),
    (concat!("replace", "-with"), "a registry's mirror: it belongs into the user's own cargo configuration"),
];

/// A relative link leads to a tracked file or folder, and its `#part` to a heading.
pub(super) fn links_resolve(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            let (file, part) = target.split_once('#').unwrap_or((&target, ""));
            let Some(place) = resolve(path, file) else {
                findings.push(Finding::error(path, line, format!("link to {target} leaves the checkout")));
                continue;
            };
            if !tree.exists(&place) {
                findings.push(Finding::error(path, line, format!("link to {target}: there is no {place}")));
            } else if let Some(text) = tree.texts.get(&place)
                && !part.is_empty()
                && place.ends_with(".md")
                && !headings(text).any(|heading| heading == part)
            {
                findings.push(Finding::error(
                    path,
                    line,
                    format!("link to {target}: {place} has no such heading"),
                ));
            }
        }
    }
    findings
}

/// Relative links of a Markdown text with their lines; code is skipped.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        // Every other part is between backticks.
        for part in prose.split('`').step_by(2) {
            for (start, _) in part.match_indices("](") {
                let rest = &part[start + 2..];
                let Some(target) = rest.split(')').next().and_then(|target| target.split_whitespace().next())
                else {
                    continue;
                };
                if !target.contains("://") && !target.starts_with("mailto:") {
                    found.push((line, target.to_owned()));
                }
            }
        }
    }
    found
}

/// The lines outside fenced code, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Headings as the anchors that renderers make of them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Where a link from the file `from` to `target` leads; `None` above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Committed files work on any machine.
pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        for (index, line) in text.lines().enumerate() {
            if let Some((found, instead)) = MACHINE.iter().find(|(word, _)| line.contains(word)) {
                findings.push(Finding::error(path, index + 1, format!("`{found}`: {instead}")));
            }
        }
    }
    findings
}
