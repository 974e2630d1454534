//! What the engine answers to a peer whose every segment a test writes.

mod answering;
mod ending;
mod hostile;
mod kernel;
mod opening;
mod receiving;
mod sending;
mod snapshot;
mod urgent;
mod user_timeout;

use twinpath_wire::tcp::{Flags, Writer};

use super::rig::*;
use super::*;
