//! What services of NFS have of this host: directories, the secret of handles, the write verifier, the replies of calls
//! that must run once. It outlives a reload.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::anyhow;
use twinpath_config::{Config, ExportText, Sandbox, Service, Squashed};
use twinpath_nfs::{
    Bounds, Export, Exports, HandleSecret, Mounts, Network, Server, Sizes, Squash, WriteVerifier,
};
use twinpath_nfs_files::{Directory, HostExports, handle_secret};
use twinpath_rpc::{DuplicateLimits, Duplicates, Program};
use twinpath_sys::freed_memory;

/// The most data of a call over UDP, bytes, as for the kernel's server (`RPCSVC_MAXPAYLOAD_UDP` of
/// linux/sunrpc/svc.h): with more, a lost fragment costs too much.
const DATAGRAM_DATA_MAX: u32 = 32 << 10;
/// The most of a directory in one reply, bytes.
const DIRECTORY_MAX: u32 = 64 << 10;
/// How many of the longest calls of one connection to one export have memory at a time.
const LONGEST_OF_PEER: u64 = 8;
/// The same of all connections to one export, per worker.
const LONGEST_OF_EXPORT: u64 = 64;
/// Freed memory that the process keeps, bytes: that of as many of the longest calls as one export may have.
const FREED_KEPT: u32 = 64 << 20;
/// How many mounts are remembered, for `showmount -a` alone.
const MOUNTS_MAX: usize = 64;

/// What services of NFS share, also with those of a former configuration.
#[derive(Default)]
pub(super) struct NfsHost(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    secret: Option<HandleSecret>,
    verifier: Option<Arc<WriteVerifier>>,
    directories: HashMap<PathBuf, Arc<Directory>>,
    former: Option<Arc<HostExports>>,
    mounts: Option<Arc<Mounts>>,
    /// The kept replies of each service, by its name, while one of its programs is there.
    duplicates: HashMap<String, Weak<Duplicates>>,
    /// The limits of those that were there before: they change once the configuration is in force.
    asked: Vec<(Arc<Duplicates>, DuplicateLimits)>,
}

impl NfsHost {
    /// The programs that serve the exports of a service.
    pub(super) fn programs(
        &self,
        config: &Config,
        service: &Service,
    ) -> anyhow::Result<Vec<Box<dyn Program>>> {
        let mut shared = self.shared();
        let is_first = shared.secret.is_none();
        if is_first {
            // Data of calls goes from the workers to other threads. Where the allocator does not know this, it is slower.
            freed_memory::keep(FREED_KEPT);
        }
        let exports = Exports::new(service.exports.iter().map(export).collect())?;
        let secret = match &shared.secret {
            Some(secret) => secret.clone(),
            None => handle_secret(&config.nfs.state_directory)?,
        };
        let is_confined = !is_first && config.control.sandbox != Some(Sandbox::Off);
        let mut directories = Vec::new();
        for asked in &service.exports {
            let directory = shared.directory(asked, is_confined)?;
            directories.push((asked.number(), directory));
        }
        let roots = directories.iter().map(|(number, directory)| (*number, directory.identity().to_vec()));
        let signing = secret.for_roots(roots);
        let new = || Arc::new(WriteVerifier::new(fastrand::u64(..)));
        let verifier = Arc::clone(shared.verifier.get_or_insert_with(new));
        let files = Arc::new(HostExports::new(directories, shared.former.as_deref(), &verifier)?);
        let server = Server { exports, secret: signing, verifier };
        let mounts = shared.mounts.get_or_insert_with(|| Arc::new(Mounts::new(MOUNTS_MAX)));
        let mounts = Arc::clone(mounts);
        (shared.secret, shared.former) = (Some(secret), Some(Arc::clone(&files)));
        let pool = config.pool.limits();
        let longest = u64::from(config.nfs.record_bytes());
        let bounds = Bounds {
            export: pool.requests,
            peer: pool.connection_requests,
            datagrams: pool.datagram_requests,
            export_bytes: LONGEST_OF_EXPORT * longest,
            peer_bytes: LONGEST_OF_PEER * longest,
        };
        Ok(twinpath_nfs_files::programs(server, files, mounts, sizes(config), bounds))
    }

    /// The kept replies of the service with this name. A client repeats a call also after the reload that came behind it.
    pub(super) fn duplicates(&self, name: &str, limits: DuplicateLimits) -> Arc<Duplicates> {
        let mut shared = self.shared();
        if let Some(kept) = shared.duplicates.get(name).and_then(Weak::upgrade) {
            shared.asked.push((Arc::clone(&kept), limits));
            return kept;
        }
        let new = Arc::new(Duplicates::new(limits, fastrand::u64(..)));
        shared.duplicates.retain(|_, kept| kept.strong_count() > 0);
        shared.duplicates.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// A configuration is being read: what former ones asked for, and never got, is forgotten.
    pub(super) fn begin(&self) {
        self.shared().asked.clear();
    }

    /// The configuration that was read last is in force.
    pub(super) fn in_force(&self) {
        let asked = std::mem::take(&mut self.shared().asked);
        asked.iter().for_each(|(kept, limits)| kept.set_limits(*limits));
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A reload that failed halfway leaves open directories, which the next one uses.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// An open directory. It stays the same when another one gets its path.
    fn directory(&mut self, asked: &ExportText, is_confined: bool) -> anyhow::Result<Arc<Directory>> {
        if let Some(open) = self.directories.get(&asked.path) {
            return Ok(Arc::clone(open));
        }
        if is_confined {
            let path = asked.path.display();
            return Err(anyhow!(
                "cannot export {path} while it runs: the sandbox leaves it the directories that it had at its start. Restart \
                 for that, or set control.sandbox to off"
            ));
        }
        let open = Arc::new(Directory::open(&asked.path)?);
        if !open.has_own_mount() {
            tracing::warn!(
                "{} is exported without a mount of its own, which takes CAP_SYS_ADMIN: only the signatures of handles keep \
                 clients inside it, and a sandbox may refuse files after a restart until they are looked up by name",
                asked.path.display()
            );
        }
        self.directories.insert(asked.path.clone(), Arc::clone(&open));
        Ok(open)
    }
}

/// An export as the server has it.
fn export(asked: &ExportText) -> Export {
    let usual = Export::new(asked.number(), asked.path.as_os_str().as_encoded_bytes().to_vec());
    let clients = asked.clients.iter().filter_map(|client| Network::new(client.address(), client.len()));
    Export {
        clients: clients.collect(),
        is_read_only: !asked.is_writable,
        is_secure: !asked.is_insecure,
        is_async: asked.is_async,
        squash: match asked.squashed {
            Squashed::Root => Squash::Root,
            Squashed::All => Squash::All,
            Squashed::None => Squash::None,
        },
        anon_uid: asked.anon_uid.unwrap_or(usual.anon_uid),
        anon_gid: asked.anon_gid.unwrap_or(usual.anon_gid),
        ..usual
    }
}

/// The most data of a call, over UDP and over TCP.
fn sizes(config: &Config) -> [Sizes; 2] {
    let (read_max, write_max) = (config.nfs.read_bytes, config.nfs.write_bytes);
    let stream = Sizes { read_max, write_max, directory_max: DIRECTORY_MAX };
    let datagram = Sizes {
        read_max: read_max.min(DATAGRAM_DATA_MAX),
        write_max: write_max.min(DATAGRAM_DATA_MAX),
        directory_max: DATAGRAM_DATA_MAX,
    };
    [datagram, stream]
}
