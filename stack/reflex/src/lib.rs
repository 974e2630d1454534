//! Kept replies: replies that may be repeated without the service, while nothing that they were made from has
//! changed.
//!
//! A [`Shape`] says which bytes of a request do not matter, and which of them the reply repeats. A [`Name`] stands
//! for the state from which a reply was made. Its generation is a word of memory shared with the program that
//! repeats replies, and [`withdraw`] increments it. A [`Publication`] carries the [`Version`] that was read before
//! the state. So a reply made from older state is void, whenever it is published. [`Table`] is the reference model:
//! the program in the kernel finds the same entries as the model, and no others. [`kept_table`] is the same in
//! memory that workers and programs share.
//!
//! Never here: a guess. A request that differs in one byte that matters has no kept reply.

mod hash;
pub mod kept_table;
mod layouts;
mod limits;
pub mod mirror;
mod name;
mod not_replied;
mod place;
pub mod ports;
mod publication;
mod shape;
mod table;
mod why_not;

pub use hash::{HashKeys, hash};
pub use limits::{HOLD_MAX, REPLY_MAX, REQUEST_MAX, REQUEST_WORDS, SHAPES_MAX, VARYING_MAX};
pub use name::{GENERATIONS, Generations, Name, Version, generations, withdraw, withdraw_all};
pub use not_replied::NotReplied;
pub use place::{Choice, SLOTS, SlotState, choose};
pub use publication::Publication;
pub use shape::{Shape, Varying};
pub use table::{ENTRIES_DEFAULT, ENTRIES_MAX, Kept, Table};
pub use why_not::{NotKept, WhyNot};
