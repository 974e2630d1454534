//! The sandbox of a running instance. Once started, the instance gives up privileges that it does not need
//! again, access to other files, and system calls that only an attacker would make. So an attacker gains
//! little from a fault in it.
//!
//! The control thread enters it before workers start. It applies to that thread and all threads that it
//! starts afterwards. In the `twinpath` program this is the whole process; in a program that uses the
//! library, other threads are not confined. It cannot be left.
//!
//! Features that a kernel does not support are left out and reported ([`report::Sandbox`]). They do not
//! prevent serving.

#[cfg(not(feature = "sandbox"))]
mod absent;
#[cfg(feature = "sandbox")]
mod calls;
mod capabilities;
#[cfg(feature = "sandbox")]
mod files;

use std::path::PathBuf;

use twinpath_config::Sandbox;
use twinpath_observe::report;

#[cfg(not(feature = "sandbox"))]
use self::absent::{calls, files};

/// The needs that differ between instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The path of its command socket, which is removed at the end.
    pub socket: PathBuf,
    /// The folder of former values, if it makes latency requests for single CPUs.
    pub former_values: Option<PathBuf>,
    /// Whether it calls rpcbind, from a port below 1024.
    pub rpcbind: bool,
    /// The file of its configuration, if it may be reloaded, which may add ports below 1024.
    pub configuration: Option<PathBuf>,
    /// Whether it creates TAP interfaces.
    pub tap: bool,
    /// Whether it opens sockets in other network namespaces.
    pub namespaces: bool,
    /// A folder in which it creates and removes sockets.
    pub sockets: Option<PathBuf>,
    /// Sockets that it has created, and removes at the end or creates again.
    pub listeners: Vec<PathBuf>,
    /// A folder in a BPF file system with objects that outlive the process.
    pub kept: Option<PathBuf>,
    /// Whether it looks up names of hosts.
    pub resolver: bool,
    /// Directories whose files it serves, by their handles and with the rights of callers. Each is the root of a mount.
    pub exports: Vec<PathBuf>,
}

/// Confines the calling thread and those that it starts from now on. Returns a description.
pub fn enter(setting: Sandbox, needs: &Needs) -> report::Sandbox {
    let mut said = report::Sandbox { setting: setting.name().to_owned(), ..report::Sandbox::default() };
    if setting == Sandbox::Off {
        let off = || "off, as asked".to_owned();
        (said.files, said.calls) = (off(), off());
        if !needs.exports.is_empty() {
            capabilities::keep_to_quotas();
        }
        said.capabilities = capabilities::held(needs);
        return said;
    }
    // First: without it, a process that is not root may use neither of the other two.
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
    // Last: it refuses calls that the earlier steps make.
    said.calls = in_force(calls::confine(needs));
    said
}

/// Whether the kernel can restrict a process's access to files. Asking confines nothing.
#[must_use]
pub fn has_landlock() -> bool {
    files::is_there()
}

#[cfg(test)]
mod tests;
