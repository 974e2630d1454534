//! What is exported to whom (exports(5) has the same terms).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use twinpath_rpc::nfs3_types::nfs3::nfsstat3;

use crate::caller::{Caller, NOBODY_AT_ALL};

/// Ports below this one need a privilege to bind.
const UNPRIVILEGED_PORT: u16 = 1024;
/// Length of the longest network in text, bytes, in whole words.
const NETWORK_MAX: usize = 52;
/// User and group of nobody, by custom.
const NOBODY: u32 = 65_534;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The addresses that have the first `prefix` bits of `address`. `None`: it has not as many.
    #[must_use]
    pub const fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        if prefix > bits { None } else { Some(Self { address, prefix }) }
    }

    /// Whether an address is in it. An IPv4 address that is written as IPv6 is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

/// Which callers become the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Root.
    #[default]
    Root,
    /// All.
    All,
    /// None.
    None,
}

/// A directory that clients may mount.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its number in handles: it stays the same across restarts.
    pub number: u32,
    /// Its path, absolute, without a slash at its end.
    pub path: Vec<u8>,
    /// Who may mount it; empty: everybody.
    pub clients: Vec<Network>,
    /// Whether nothing may be changed.
    pub is_read_only: bool,
    /// Whether calls have to come from a privileged port.
    pub is_secure: bool,
    /// Whether changes are answered before they are durable.
    pub is_async: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// The anonymous user.
    pub anon_uid: u32,
    /// The anonymous group.
    pub anon_gid: u32,
}

/// Why a client may not use an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no such export, or none for it: it is not told which.
    NoExport,
    /// Its port is not privileged.
    Port,
}

impl Denied {
    /// The answer to a call of NFS.
    #[must_use]
    pub const fn status(self) -> nfsstat3 {
        match self {
            Self::NoExport => nfsstat3::NFS3ERR_STALE,
            Self::Port => nfsstat3::NFS3ERR_PERM,
        }
    }
}

impl Export {
    /// An export with the defaults: read-only, root squashed, secure, synchronous, for everybody.
    #[must_use]
    pub const fn new(number: u32, path: Vec<u8>) -> Self {
        Self {
            number,
            path,
            clients: Vec::new(),
            is_read_only: true,
            is_secure: true,
            is_async: false,
            squash: Squash::Root,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
        }
    }

    /// The anonymous user of this export.
    #[must_use]
    pub const fn anonymous(&self) -> Caller {
        Caller::new(self.anon_uid, self.anon_gid)
    }

    /// Whose rights a caller has in this export. A user or group 2^32 - 1 is anonymous: `setfsuid(2)` and `chown(2)`
    /// would keep the former one.
    #[must_use]
    pub fn caller(&self, claimed: Option<&Caller>) -> Caller {
        let Some(claimed) = claimed else { return self.anonymous() };
        let gid = |gid: u32| match (self.squash, gid) {
            (_, NOBODY_AT_ALL) | (Squash::Root, 0) => self.anon_gid,
            (_, gid) => gid,
        };
        let groups = claimed.groups().iter().map(|group| gid(*group));
        match (self.squash, claimed.uid) {
            (Squash::All, _) | (_, NOBODY_AT_ALL) => self.anonymous(),
            (Squash::Root, 0) => Caller::with_groups(self.anon_uid, gid(claimed.gid), groups),
            (_, uid) => Caller::with_groups(uid, gid(claimed.gid), groups),
        }
    }

    /// Whether a client may know of it.
    #[must_use]
    pub fn is_for(&self, address: IpAddr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|network| network.contains(address))
    }

    /// Whether a client may use it.
    ///
    /// # Errors
    /// It may not.
    pub fn admit(&self, peer: SocketAddr) -> Result<(), Denied> {
        if !self.is_for(peer.ip()) {
            return Err(Denied::NoExport);
        }
        if self.is_secure && peer.port() >= UNPRIVILEGED_PORT {
            return Err(Denied::Port);
        }
        Ok(())
    }
}

/// Why exports cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// Two have one number.
    #[error("two exports have the number {0} (fsid): each needs one of its own, as handles name it")]
    Number(u32),
    /// Two have one path.
    #[error("{0} is exported twice")]
    Path(String),
    /// A path that no client can name.
    #[error("{0:?} is no path of an export: it takes an absolute path without . and ..")]
    Form(String),
    /// The anonymous user or group is none.
    #[error("{0}: 4294967295 is no user or group; anonuid and anongid take another one")]
    Anonymous(String),
}

/// All exports.
#[derive(Clone, Debug, Default)]
pub struct Exports(Vec<Export>);

impl Exports {
    /// Exports that are served together.
    ///
    /// # Errors
    /// They cannot be.
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        for (at, export) in exports.iter().enumerate() {
            let mut parts = export.path.split(|byte| *byte == b'/').skip(1);
            let is_absolute = export.path.starts_with(b"/");
            let is_root = export.path == b"/";
            let is_plain = parts.all(|part| !part.is_empty() && part != b"." && part != b"..");
            if !is_absolute || !(is_root || is_plain) || export.path.contains(&0) {
                return Err(ExportError::Form(text(&export.path)));
            }
            if export.anon_uid == NOBODY_AT_ALL || export.anon_gid == NOBODY_AT_ALL {
                return Err(ExportError::Anonymous(text(&export.path)));
            }
            let others = &exports[..at];
            if others.iter().any(|other| other.number == export.number) {
                return Err(ExportError::Number(export.number));
            }
            if others.iter().any(|other| other.path == export.path) {
                return Err(ExportError::Path(text(&export.path)));
            }
        }
        Ok(Self(exports))
    }

    /// The export of a number, if the client may use it.
    ///
    /// # Errors
    /// It may not, or there is none.
    pub fn find(&self, number: u32, peer: SocketAddr) -> Result<&Export, Denied> {
        let export = self.0.iter().find(|export| export.number == number).ok_or(Denied::NoExport)?;
        export.admit(peer)?;
        Ok(export)
    }

    /// The place of the export of a number among all of them.
    #[must_use]
    pub fn place_of(&self, number: u32) -> Option<u32> {
        self.0.iter().position(|export| export.number == number).map(|place| place as u32)
    }

    /// Length of the longest list of them, bytes: for each its path, and its networks.
    pub(crate) fn listed_max(&self) -> usize {
        let each = self.0.iter().map(|export| {
            12 + export.path.len().next_multiple_of(4) + export.clients.len() * (8 + NETWORK_MAX)
        });
        4 + each.sum::<usize>()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }

    /// The export that a path is in, and the names from its root to the path. The longest one wins, also if the client
    /// may not use it: it is not mounted by another export's rules. Slashes more than one count as one.
    #[must_use]
    pub fn of_path<'a>(&self, path: &'a [u8]) -> Option<(&Export, impl Iterator<Item = &'a [u8]> + use<'a>)> {
        fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
        }
        if !path.starts_with(b"/") {
            return None;
        }
        let within = |export: &&Export| {
            let mut rest = names(path);
            names(&export.path).all(|name| rest.next() == Some(name))
        };
        let export = self.0.iter().filter(within).max_by_key(|export| names(&export.path).count())?;
        Some((export, names(path).skip(names(&export.path).count())))
    }
}

#[cfg(test)]
mod tests;
