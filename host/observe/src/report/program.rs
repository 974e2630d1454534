//! The part of the report about programs to which the owner of an interface gives rings.

use twinpath_inspect::counts;

counts! {
    /// A program that is connected to the owner of an interface.
    #[derive(PartialEq, Eq)]
    pub struct Program {
        /// Process id; 0 if the owner cannot see the process.
        pub pid: i32,
        /// Its user.
        pub user: u32,
        /// Its name, which it may choose.
        pub name: String,
        /// The addresses that its sockets with a lease are bound to.
        pub sockets: Vec<String>,
    } and {
        /// Frames put into the rings of a program.
        by_ring: u64 => counter("twinpath_program_frames"), column("by the ring");
    }
}
