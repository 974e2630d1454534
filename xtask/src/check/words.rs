//! Rules about documents: lines have a readable length, and files that they name exist.

use super::{Finding, Tree};

/// Maximum columns of a line of Markdown.
const MARKDOWN_COLUMNS: usize = 120;

/// Markdown can be read in a terminal. The row of a table cannot be cut, so tables are excepted; so is a line that
/// is one word, such as a long link.
pub(super) fn markdown_lines_are_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            let row = line.trim_start().starts_with('|');
            if columns > MARKDOWN_COLUMNS && !row && line.split_whitespace().count() > 1 {
                let message = format!("{columns} columns of {MARKDOWN_COLUMNS}: break the line");
                findings.push(Finding::error(path, index + 1, message));
            }
        }
    }
    findings
}

/// A source file that a document names in backticks exists: by its path from the root, or from the folder of the document. A name alone
/// would be true of too many files.
pub(super) fn named_files_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let documents =
        tree.texts.iter().filter(|(path, _)| path.ends_with(".md") && !path.starts_with("docs/decisions/"));
    for (path, text) in documents {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_source(name)) {
                if !tree.paths.contains(name) && !tree.paths.contains(&format!("{folder}/{name}")) {
                    let message = format!("`{name}`: there is no such file; give its path from the root");
                    findings.push(Finding::error(path, index + 1, message));
                }
            }
        }
    }
    findings
}

fn is_source(name: &str) -> bool {
    let ends = [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end));
    ends && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter))
}
