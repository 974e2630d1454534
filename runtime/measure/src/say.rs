//! Results on standard output, and errors as one sentence.

use std::error::Error;
use std::fmt;
use std::io::Write;

use crate::MeasureError;

/// One text and a line feed on standard output.
///
/// # Errors
/// A reader that went away is an error, not a panic.
pub fn print(text: impl fmt::Display) -> Result<(), MeasureError> {
    writeln!(std::io::stdout(), "{text}").map_err(MeasureError::Print)
}

/// The error and its causes as one sentence; a cause that its effect already tells is not told again.
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
