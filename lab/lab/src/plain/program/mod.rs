//! `plain program` and `plain ask`: programs of Debian as they are, alone or under `twinpath run`, and the clients that ask them.
//!
//! `make lab LAB=sockets` unpacks their packages, and installs nothing.

mod ask;
mod datagrams;
mod hammer;
mod memcached;
mod serve;

use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;

use crate::foreign::Packages;

pub(crate) use self::ask::AskReport;
pub(super) use self::ask::{AskArgs, ask};
pub(crate) use self::hammer::HammerReport;
pub(super) use self::hammer::{HammerArgs, hammer};
pub(super) use self::serve::{ServerArgs, serve};

const PACKAGES: Packages = Packages {
    unpacked: "conformance/programs/packages",
    programs_in: &["usr/sbin", "usr/bin"],
    fetched_by: "`make lab LAB=sockets`",
};

/// A server, or what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// memcached over UDP, one thread
    Memcached,
    /// The same with as many threads as it has by default: four
    MemcachedThreads,
    /// A name server: nsd, asked by dnsperf
    Nsd,
    /// The library's example of a memcached, on the interface of `--on`
    OwnMemcached,
    /// The library's example of a name server, likewise
    OwnDns,
    /// redis-server, asked by redis-benchmark
    Redis,
}

/// Where cargo puts the library's examples, beside this program: `cargo build --release --examples -p twinpath`.
const EXAMPLES_IN: &str = "examples";

/// A command that runs an example of the library.
fn example(name: &str) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let file = own.with_file_name(EXAMPLES_IN).join(name);
    anyhow::ensure!(
        file.is_file(),
        "cannot find {}: run `make lab LAB=reflex`, which builds it",
        file.display()
    );
    Ok(Command::new(file))
}

/// A command that runs a program as it is.
fn command(name: &str) -> anyhow::Result<Command> {
    let found = PACKAGES.program(name)?;
    let mut command = Command::new(&found.file);
    if let Some(libraries) = found.library_path() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    Ok(command)
}
