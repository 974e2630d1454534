//! An engine beside a peer whose every segment a test writes, at times that the test sets: what acknowledgements change,
//! and when timers fire.

mod acknowledging;
mod steps;
mod timing;
mod user_timeout;

use twinpath_wire::tcp::Flags;

use super::rig::*;
use super::*;
