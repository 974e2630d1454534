//! Tests of the program on real packets: namespaces joined by veth pairs, with the kernel's own clients and servers as
//! peers.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod bad_input;
mod bench;
mod bench_stream;
mod bridge;
mod capture;
mod changes;
mod claims;
mod commands;
mod connections;
mod doctor;
mod drain;
mod exactly;
mod fail_open;
mod foreign_programs;
mod goals;
mod left_behind;
mod luck;
mod machine;
mod metrics;
mod once;
mod other_users;
mod output;
mod paths;
mod reflex;
mod reload;
mod rig;
mod rings;
mod rpc;
mod sandbox;
mod serving;
mod several;
mod show_config;
mod sockets;
mod stand_by;
mod start;
mod streams;
mod switch;
mod take_over;
mod top;
mod trouble;
mod tune;
mod twin_services;

use twinpath_test_rig::root_or_skip;
