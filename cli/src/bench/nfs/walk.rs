//! A listing of a tree, page after page; and finding files by their names.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use twinpath_clients::{Measured, ThreadMeasured, Transport};
use twinpath_load::{Summary, block_sum};
use twinpath_rpc::client::Auth;
use twinpath_rpc::client::nfs::{Attributes, Entry, Listed, Page};
use twinpath_rpc::nfs3_types::nfs3::{
    ACCESS3_LOOKUP, ACCESS3_READ, ACCESS3args, ACCESS3resfail, ACCESS3resok, GETATTR3args, GETATTR3resok,
    LOOKUP3args, LOOKUP3resfail, LOOKUP3resok, NFS_PROGRAM, NFS3_COOKIEVERFSIZE, Nfs3Option,
    READDIRPLUS3args, cookieverf3, diropargs3, fattr3, filename3, ftype3, nfs_fh3,
};
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Void};
use twinpath_socket_load::socket::Source;
use twinpath_socket_load::{Progress, Stop};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::session::{NFS, Peer, Session};

/// Bytes of a page, and of the names and cookies in it, that a Linux client asks for.
const PAGE_BYTES: u32 = 32 << 10;
const NAME_BYTES: u32 = PAGE_BYTES / 8;

/// A file that was found.
pub(super) struct Found {
    pub(super) handle: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) size: u64,
}

/// How far a directory has been listed.
#[derive(Default)]
struct Place {
    cookie: u64,
    verifier: [u8; NFS3_COOKIEVERFSIZE],
}

/// Listings of a directory and of all below it.
#[derive(Debug)]
pub(crate) struct Walk {
    root: Vec<u8>,
    at: SocketAddr,
    transport: Transport,
    source: Source,
    auth: Auth,
    patience: Duration,
    names: AtomicU64,
}

impl Walk {
    pub(super) fn new(root: Vec<u8>, peer: &Peer<'_>) -> Self {
        let Peer { at, transport, source, auth, patience } = *peer;
        Self { root, at, transport, source, auth: auth.clone(), patience, names: AtomicU64::new(0) }
    }

    /// Names that the last listing found.
    pub(crate) fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// Makes one listing. A round trip is that of one call.
    ///
    /// # Errors
    /// A call failed, or a name came twice.
    pub(crate) fn run(&self, stop: &Stop, progress: &Progress) -> anyhow::Result<Measured> {
        let Self { at, transport, source, patience, .. } = *self;
        let peer = Peer { at, transport, source, auth: &self.auth, patience };
        let mut listing = Listing {
            session: Session::connect(&peer)?,
            summary: Summary::empty(),
            names: 0,
            seen: Vec::new(),
            progress,
        };
        let (cpu, began) = (clock::thread_cpu_time(), clock::now());
        let mut waiting = vec![self.root.clone()];
        while let Some(directory) = waiting.pop()
            && !stop.is_requested()
        {
            listing.directory(&directory, &mut waiting)?;
        }
        let Listing { mut summary, names, .. } = listing;
        summary.elapsed = clock::now().since(began);
        self.names.store(names, Ordering::Relaxed);
        let cpu_time = clock::thread_cpu_time().saturating_sub(cpu);
        let thread = ThreadMeasured { summary, cpu_time, transfers: None, complaint: None, broken: None };
        Ok(Measured {
            threads: vec![thread],
            path: "kernel".to_owned(),
            allocations_per_packet: None,
            notes: Vec::new(),
        })
    }
}

/// One listing.
struct Listing<'a> {
    session: Session,
    summary: Summary,
    names: u64,
    /// Sums of the names in a directory.
    seen: Vec<u64>,
    progress: &'a Progress,
}

impl Listing<'_> {
    /// Lists a directory, and adds those in it to `waiting`. As a kernel client does, it asks for its rights first, and for
    /// each name whose attributes did not come.
    fn directory(&mut self, directory: &[u8], waiting: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
        let began = clock::now();
        let args = ACCESS3args { object: handle(directory), access: ACCESS3_READ | ACCESS3_LOOKUP };
        self.session.nfs::<ACCESS3resok, ACCESS3resfail>(NFS_PROGRAM::NFSPROC3_ACCESS, &args)?;
        self.count(began);
        self.seen.clear();
        let mut place = Place::default();
        let mut unknown = Vec::new();
        loop {
            let began = clock::now();
            let seen = &mut self.seen;
            let eof = page(&mut self.session, directory, &mut place, |entry| {
                seen.push(block_sum(entry.name));
                match (entry.attributes.map(is_directory), entry.handle) {
                    (Some(false), _) => {}
                    (Some(true), Some(handle)) => waiting.push(handle.to_vec()),
                    _ => unknown.push(entry.name.to_vec()),
                }
            })?;
            self.count(began);
            if eof {
                break;
            }
        }
        for name in unknown {
            let began = clock::now();
            let found = look_up(&mut self.session, directory, &name)?;
            self.count(began);
            if found.is_directory {
                waiting.push(found.handle);
            }
        }
        self.names += self.seen.len() as u64;
        self.seen.sort_unstable();
        ensure!(self.seen.windows(2).all(|pair| pair[0] != pair[1]), "READDIRPLUS gave a name twice");
        Ok(())
    }

    fn count(&mut self, began: Instant) {
        self.summary.sent += 1;
        self.summary.received += 1;
        self.summary.histogram.saturating_record(clock::now().nanos_since(began));
        self.progress.add(1);
    }
}

/// Asks for a page, and passes on its entries but `.` and `..`. Returns whether it was the last one.
fn page(
    session: &mut Session,
    directory: &[u8],
    place: &mut Place,
    mut each: impl FnMut(&Entry<'_>),
) -> anyhow::Result<bool> {
    let args = READDIRPLUS3args {
        dir: handle(directory),
        cookie: place.cookie,
        cookieverf: cookieverf3(place.verifier),
        dircount: NAME_BYTES,
        maxcount: PAGE_BYTES,
    };
    let mut packed = Vec::with_capacity(128);
    args.pack(&mut packed).context("cannot encode a call")?;
    let procedure = NFS_PROGRAM::NFSPROC3_READDIRPLUS;
    let listed = session.call(NFS, procedure as u32, &packed, |results| {
        let mut page = Page::new(results)?;
        place.verifier = page.verifier;
        let before = place.cookie;
        loop {
            match page.next()? {
                Listed::Entry(entry) => {
                    place.cookie = entry.cookie;
                    if !matches!(entry.name, b"." | b"..") {
                        each(&entry);
                    }
                }
                Listed::End { eof } => {
                    ensure!(eof || place.cookie != before, "a page before the last one has no entry");
                    return Ok(eof);
                }
            }
        }
    });
    listed.context("READDIRPLUS")
}

/// The names in a directory with their handles: a bounded number of them.
pub(super) fn entries(
    session: &mut Session,
    directory: &[u8],
    most: usize,
) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut place, mut names) = (Place::default(), Vec::new());
    while names.len() < most {
        let eof = page(session, directory, &mut place, |entry| names.push(entry.name.to_vec()))?;
        if eof {
            break;
        }
    }
    names.truncate(most);
    names
        .into_iter()
        .map(|name| {
            let found = look_up(session, directory, &name)?;
            Ok((name, found.handle))
        })
        .collect()
}

/// The file at a path from the root, without following symbolic links; the root itself without a path.
pub(super) fn find(session: &mut Session, root: &[u8], path: Option<&Path>) -> anyhow::Result<Found> {
    let args = GETATTR3args { object: handle(root) };
    let GETATTR3resok { obj_attributes } =
        session.nfs::<GETATTR3resok, Void>(NFS_PROGRAM::NFSPROC3_GETATTR, &args)?;
    let mut found = described(root.to_vec(), &obj_attributes);
    for component in path.into_iter().flat_map(Path::components) {
        let Component::Normal(name) = component else { continue };
        found = look_up(session, &found.handle, name.as_bytes())
            .with_context(|| format!("cannot find {}", name.display()))?;
    }
    Ok(found)
}

/// A name in a directory, with its attributes.
pub(super) fn look_up(session: &mut Session, directory: &[u8], name: &[u8]) -> anyhow::Result<Found> {
    let args = LOOKUP3args { what: diropargs3 { dir: handle(directory), name: filename3::from(name) } };
    let found = session.nfs::<LOOKUP3resok, LOOKUP3resfail>(NFS_PROGRAM::NFSPROC3_LOOKUP, &args)?;
    let attributes = match found.obj_attributes {
        Nfs3Option::Some(attributes) => attributes,
        Nfs3Option::None => {
            let args = GETATTR3args { object: found.object.clone() };
            session.nfs::<GETATTR3resok, Void>(NFS_PROGRAM::NFSPROC3_GETATTR, &args)?.obj_attributes
        }
    };
    Ok(described(found.object.data.to_vec(), &attributes))
}

fn described(handle: Vec<u8>, attributes: &fattr3) -> Found {
    Found { handle, is_directory: attributes.type_ == ftype3::NF3DIR, size: attributes.size }
}

/// Whether encoded attributes are those of a directory: they begin with the type (RFC 1813, 2.6).
fn is_directory(attributes: &Attributes) -> bool {
    attributes[..4] == (ftype3::NF3DIR as u32).to_be_bytes()
}

fn handle(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}
