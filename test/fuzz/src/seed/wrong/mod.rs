//! Messages of controllers with one field wrong each, and what switches answer: the twin of controllers.
//!
//! A [`Layout`] is a valid message, field by field as the specification draws it (OpenFlow 1.3.5, chapter 7), written down
//! apart from the codec. [`Layout::cases`] makes each field wrong in turn: numbers, lengths of every level, padding, and
//! the end of the message at every field. [`ask`] has a switch answer one of them.

mod asked;
mod differences;
mod known;
mod messages;
mod parts;

pub use asked::{Answers, Switch, ask, greet};
pub use known::{Difference, committed, differences, known};
pub use messages::{greetings, messages};
pub use parts::{Case, Layout};
