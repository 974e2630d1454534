//! The tests of `tcp.rs`, each through io_uring: nobody can tell the difference.

#[path = "tcp.rs"]
mod tcp;
