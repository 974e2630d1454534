//! What tests stand on: reporting that one cannot run here, namespaces, links between them, programs started in them, and
//! waiting with a deadline.
//!
//! Nothing has to be cleaned up. A namespace lives as long as the test holds it, and takes its links with it. A program ends with its
//! [`Started`], also when the test panics, and at the latest with the thread that started it.
//!
//! A function that cannot do what it is asked panics and says why, as a test has nothing else to do then.

mod command;
mod link;
mod skip;
mod wait;

pub use self::command::{Started, Words, command, ip, ip_here, kill, run, run_here, start, within};
pub use self::link::{End, batch, ifindex, loopback, move_link, name_of, pair, quiet};
pub use self::skip::{few_or_all, root_or_skip, skip, skip_without};
pub use self::wait::{Lateness, PATIENCE, until, until_within};
