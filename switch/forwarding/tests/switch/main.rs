//! A switch and its controllers, by the bytes between them.

mod changes;
mod clauses;
mod controller;
mod edges;
mod naive;
mod sessions;
mod streams;
mod wrong;
