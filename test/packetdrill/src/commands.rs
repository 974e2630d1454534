//! Commands that a script runs reach the world by a socket: one line of words for each, its answer, and the end.
//!
//! The answer is the command's exit code in one line, and then what it prints.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

/// What a command answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The exit code.
    pub(crate) code: u8,
    /// What it prints.
    pub(crate) text: String,
}

/// Answers commands, one after the other, until the process ends.
pub(crate) fn serve(listener: &UnixListener, mut answer: impl FnMut(&[String]) -> Said) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            continue;
        }
        let words: Vec<String> = line.trim_end_matches('\n').split('\u{1f}').map(str::to_owned).collect();
        let said = answer(&words);
        // A command that has gone away needs no answer.
        let _ = write!(stream, "{}\n{}", said.code, said.text);
    }
}
