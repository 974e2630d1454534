//! What a running instance gives up once it has started, so that a fault in it is worth little to an attacker: rights that it
//! will not need again, files that are none of its business, and system calls that only an attacker would make.
//!
//! It is entered by the control thread, before workers start, and holds for that thread and all that it starts from then on.
//! For the program that is the whole process; a library's host keeps its other threads as they are. There is no way back.
//!
//! What a kernel lacks is left out and told ([`report::Sandbox`]); nothing of it is a reason not to serve.

mod calls;
mod capabilities;
mod files;

use std::path::PathBuf;

use twinpath_config::Sandbox;
use twinpath_report as report;

/// What differs between instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Where its command socket is: removed in the end.
    pub socket: PathBuf,
    /// Where former values are kept, if it makes latency requests for single CPUs.
    pub former_values: Option<PathBuf>,
    /// It speaks to rpcbind, from a port below 1024.
    pub rpcbind: bool,
    /// The file of its configuration, if it may be read again: ports below 1024 may come with that.
    pub configuration: Option<PathBuf>,
    /// It makes TAP interfaces.
    pub tap: bool,
}

/// Confines the calling thread and those that it starts from now on. Says what is in force.
pub fn enter(setting: Sandbox, needs: &Needs) -> report::Sandbox {
    let mut said = report::Sandbox { setting: setting.name().to_owned(), ..report::Sandbox::default() };
    if setting == Sandbox::Off {
        let off = || "off, as asked".to_owned();
        (said.files, said.calls) = (off(), off());
        said.capabilities = capabilities::held(needs);
        return said;
    }
    // First: without it, neither of the others is granted to a process that is not root.
    said.no_new_privs = rustix::thread::set_no_new_privs(true).is_ok();
    let in_force = |outcome: Result<String, String>| match outcome {
        Ok(said) => said,
        Err(lacking) => {
            tracing::warn!("sandbox: {lacking}");
            lacking
        }
    };
    said.files = in_force(files::confine(needs));
    said.capabilities = capabilities::keep(needs);
    // Last: the steps before it make calls that it refuses.
    said.calls = in_force(calls::confine());
    said
}

#[cfg(test)]
mod tests;
