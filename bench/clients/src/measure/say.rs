//! Prints results to standard output, and formats errors as one sentence.

use std::error::Error;
use std::fmt;
use std::io::Write;

use crate::measure::MeasureError;

/// Prints one text and a line feed to standard output.
///
/// # Errors
/// Standard output is closed.
pub fn print(text: impl fmt::Display) -> Result<(), MeasureError> {
    writeln!(std::io::stdout(), "{text}").map_err(MeasureError::Print)
}

/// The error and its causes as one sentence; a cause whose text is part of its effect's is not repeated.
#[must_use]
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut effect = error;
    while let Some(cause) = effect.source() {
        let words = cause.to_string();
        if !told.contains(&words) {
            told = format!("{told}: {words}");
        }
        effect = cause;
    }
    told
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("the bench ended")]
        Bench(#[source] Box<Failed>),
        #[error("cannot send: {0}")]
        Send(#[source] io::Error),
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = Failed::Bench(Box::new(Failed::Send(io::Error::other("no route"))));
        assert_eq!(in_words(&error), "the bench ended: cannot send: no route");
    }
}
