//! `plain program` and `plain ask`: programs of Debian as they are, alone or under `twinpath run`, and the clients that ask them.
//!
//! `make lab LAB=sockets` unpacks their packages, and installs nothing.

mod ask;
mod closed;
mod hammer;
mod paced;
mod serve;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;

pub(crate) use self::ask::AskReport;
pub(super) use self::ask::{AskArgs, ask};
pub(crate) use self::hammer::HammerReport;
pub(super) use self::hammer::{HammerArgs, hammer};
pub(super) use self::serve::{ServerArgs, serve};

/// Where the packages are unpacked, beside the directory of this program.
const UNPACKED: &str = "conformance/programs/packages";
/// The places of programs and libraries in a package.
const PROGRAMS_IN: [&str; 2] = ["usr/sbin", "usr/bin"];
const LIBRARIES_IN: &str = "usr/lib/x86_64-linux-gnu";

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
    /// iperf3, whose client sends a stream over TCP
    Iperf3,
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

/// The path of a program, and the libraries that it needs.
fn find(name: &str) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let unpacked = own.parent().and_then(|folder| folder.parent()).map(|target| target.join(UNPACKED));
    let places = unpacked.iter().map(|unpacked| (unpacked.clone(), Some(unpacked.join(LIBRARIES_IN))));
    places
        .chain([(PathBuf::from("/"), None)])
        .flat_map(|(root, libraries)| {
            PROGRAMS_IN.map(|place| (root.join(place).join(name), libraries.clone()))
        })
        .find(|(file, _)| file.is_file())
        .with_context(|| {
            format!("{name} was not found: run `make lab LAB=sockets` or `LAB=rpc`, which fetch what it belongs to")
        })
}

/// A command that runs a program as it is.
fn command(name: &str) -> anyhow::Result<Command> {
    let (file, libraries) = find(name)?;
    let mut command = Command::new(file);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    Ok(command)
}
