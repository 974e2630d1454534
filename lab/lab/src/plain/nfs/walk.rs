//! `plain nfs-walk`: makes the calls of a kernel client's cold `ls -last -R`, one outstanding, and verifies every
//! reply.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use hdrhistogram::Histogram;
use nfs3_client::{MountClient, Nfs3Client};
use nfs3_types::mount::dirpath;
use nfs3_types::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
    ACCESS3args, GETATTR3args, LOOKUP3args, Nfs3Option, Nfs3Result, READDIRPLUS3args, cookieverf3,
    diropargs3, entryplus3, fattr3, filename3, ftype3, nfs_fh3,
};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;
use serde::{Deserialize, Serialize};
use twinpath_clients::measure::print;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_sys::clock;

use super::transport::{Latency, Transport, done};
use super::tree::{Node, Tree};
use super::{MOUNT_PORT, WalkArgs};

/// Size of a READDIRPLUS reply in bytes, as requested by the Linux client: eight pages, an eighth of it for names.
const PAGE_BYTES: u32 = 32 << 10;
const NAME_BYTES: u32 = PAGE_BYTES / 8;
/// The access rights that a kernel client asks for under `ls`.
const RIGHTS: u32 =
    ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE | ACCESS3_EXECUTE;
/// Longer latencies count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The result of a walk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WalkReport {
    /// Names found, each of them expected.
    pub(crate) names: u64,
    pub(crate) calls: u64,
    /// READDIRPLUS calls among them.
    pub(crate) pages: u64,
    /// From the first call to the last reply; connecting and mounting come before.
    pub(crate) wall_s: f64,
    /// CPU time of the client over that time, user and system.
    pub(crate) cpu_s: f64,
    /// Latency of the calls.
    pub(crate) call_us: RttUs,
    /// Highest value of a bucket in ns, and its count.
    pub(crate) histogram: Vec<(u64, u64)>,
}

/// Walks, and prints the result.
pub(crate) fn walk(args: &WalkArgs) -> anyhow::Result<ExitCode> {
    let tree = Tree::new(&args.shape)?;
    let (client, root, latency) = mount(args.target, &args.export)?;
    let histogram = Histogram::new_with_bounds(100, LATENCY_MAX_NS, 3).context("no histogram")?;
    let limit = args.calls.unwrap_or(u64::MAX);
    let mut walk = Walk { client, latency, histogram, limit, names: 0, pages: 0 };
    let (cpu, begun) = (clock::process_cpu_time(), Instant::now());
    walk.tree(&tree, root)?;
    let wall_s = begun.elapsed().as_secs_f64();
    let cpu_s = clock::process_cpu_time().saturating_sub(cpu).as_secs_f64();
    ensure!(
        walk.is_over() || walk.names == args.shape.names() as u64,
        "{} of {} names were found",
        walk.names,
        args.shape.names()
    );
    let report = WalkReport {
        names: walk.names,
        calls: walk.histogram.len(),
        pages: walk.pages,
        wall_s,
        cpu_s,
        call_us: RttUs::of(&walk.histogram).context("not one call was made")?,
        histogram: buckets(&walk.histogram),
    };
    print(serde_json::to_string(&report)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Mounts, and reads the attributes of the root, which shows that the server serves. Returns the root's handle.
pub(super) fn first_calls(target: SocketAddr, export: &Path) -> anyhow::Result<Vec<u8>> {
    let (mut client, root, _) = mount(target, export)?;
    let handle = root.data.to_vec();
    attributes(done(client.getattr(&GETATTR3args { object: root }))?, "GETATTR")?;
    Ok(handle)
}

type Client = Nfs3Client<Transport>;

fn mount(target: SocketAddr, export: &Path) -> anyhow::Result<(Client, nfs_fh3, Latency)> {
    let mount_at = SocketAddr::new(target.ip(), MOUNT_PORT);
    let transport = Transport::connect(mount_at)
        .with_context(|| format!("cannot connect to the mount service at {mount_at}"))?;
    let root_user = || opaque_auth::auth_unix(&auth_unix::default());
    let mut mounts = MountClient::new_with_auth(transport, root_user(), opaque_auth::default());
    let path = dirpath(Opaque::borrowed(export.as_os_str().as_bytes()));
    let mounted = done(mounts.mnt(path))?
        .map_err(|error| anyhow!("cannot mount {} from {mount_at}: {error}", export.display()))?;
    let transport = Transport::connect(target)
        .with_context(|| format!("cannot connect to the NFS server at {target}"))?;
    let latency = transport.latency();
    let client = Nfs3Client::new_with_auth(transport, root_user(), opaque_auth::default());
    Ok((client, nfs_fh3 { data: Opaque::owned(mounted.fhandle.0.to_vec()) }, latency))
}

struct Walk {
    client: Client,
    latency: Latency,
    histogram: Histogram<u64>,
    /// Most calls to make.
    limit: u64,
    names: u64,
    pages: u64,
}

impl Walk {
    /// Depth first, like `ls -R`: all of a directory, then its subdirectories.
    fn tree(&mut self, tree: &Tree, root: nfs_fh3) -> anyhow::Result<()> {
        let mut waiting = vec![(0, root)];
        while let Some((number, handle)) = waiting.pop() {
            let expected = &tree.directories[number];
            self.directory(&handle)?;
            let entries = self.entries(&handle, expected)?;
            for entry in entries {
                if self.is_over() {
                    return Ok(());
                }
                let node = expected[entry.name.as_ref()];
                let object = self.name(&handle, entry, node)?;
                if let Node::Directory(number) = node {
                    waiting.push((number, object));
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.histogram.len() >= self.limit
    }

    /// The calls for a directory before it is read.
    fn directory(&mut self, handle: &nfs_fh3) -> anyhow::Result<()> {
        let reply = done(self.client.getattr(&GETATTR3args { object: handle.clone() }))?;
        self.count();
        ensure!(attributes(reply, "GETATTR")?.type_ == ftype3::NF3DIR, "a directory is none");
        self.access(handle, ACCESS3_READ | ACCESS3_LOOKUP)
    }

    /// Reads all pages of a directory, and verifies that each expected name occurs exactly once, and no other.
    fn entries(
        &mut self,
        handle: &nfs_fh3,
        expected: &BTreeMap<Vec<u8>, Node>,
    ) -> anyhow::Result<Vec<entryplus3<'static>>> {
        let mut found: Vec<entryplus3<'static>> = Vec::with_capacity(expected.len());
        let (mut cookie, mut cookieverf) = (0, cookieverf3::default());
        loop {
            let dir = handle.clone();
            let args =
                READDIRPLUS3args { dir, cookie, cookieverf, dircount: NAME_BYTES, maxcount: PAGE_BYTES };
            let page = match done(self.client.readdirplus(&args))?.context("READDIRPLUS")? {
                Nfs3Result::Ok(page) => page,
                Nfs3Result::Err((status, _)) => return Err(anyhow!("READDIRPLUS: {status}")),
            };
            self.count();
            self.pages += 1;
            let entries = page.reply.entries.into_inner();
            ensure!(page.reply.eof || !entries.is_empty(), "READDIRPLUS gave an empty page before the end");
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            cookieverf = page.cookieverf;
            found.extend(entries.into_iter().filter(|entry| !matches!(entry.name.as_ref(), b"." | b"..")));
            ensure!(found.len() <= expected.len(), "READDIRPLUS gave more names than there are");
            if page.reply.eof {
                break;
            }
        }
        let mut names: Vec<_> = found.iter().map(|entry| entry.name.as_ref()).collect();
        names.sort_unstable();
        ensure!(
            names.iter().copied().eq(expected.keys().map(Vec::as_slice)),
            "READDIRPLUS gave other names than those of the directory"
        );
        Ok(found)
    }

    /// All calls for one name.
    fn name(
        &mut self,
        directory: &nfs_fh3,
        entry: entryplus3<'static>,
        node: Node,
    ) -> anyhow::Result<nfs_fh3> {
        let Nfs3Option::Some(object) = entry.name_handle else {
            return Err(anyhow!("READDIRPLUS gave no handle"));
        };
        let name = filename3::from(entry.name.as_ref());
        let args = LOOKUP3args { what: diropargs3 { dir: directory.clone(), name } };
        match done(self.client.lookup(&args))?.context("LOOKUP")? {
            Nfs3Result::Ok(found) => ensure!(found.object == object, "LOOKUP gave another file"),
            Nfs3Result::Err((status, _)) => return Err(anyhow!("LOOKUP: {status}")),
        }
        self.count();
        let reply = done(self.client.getattr(&GETATTR3args { object: object.clone() }))?;
        self.count();
        verify(&attributes(reply, "GETATTR")?, node)?;
        self.access(&object, RIGHTS)?;
        self.names += 1;
        Ok(object)
    }

    fn access(&mut self, handle: &nfs_fh3, rights: u32) -> anyhow::Result<()> {
        let args = ACCESS3args { object: handle.clone(), access: rights };
        match done(self.client.access(&args))?.context("ACCESS")? {
            Nfs3Result::Ok(granted) => {
                ensure!(granted.access & ACCESS3_READ != 0, "ACCESS: root may not read");
            }
            Nfs3Result::Err((status, _)) => return Err(anyhow!("ACCESS: {status}")),
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        self.histogram.saturating_record(self.latency.last_ns());
    }
}

fn attributes(
    reply: Result<nfs3_types::nfs3::GETATTR3res, nfs3_client::RpcError>,
    call: &'static str,
) -> anyhow::Result<fattr3> {
    match reply.context(call)? {
        Nfs3Result::Ok(found) => Ok(found.obj_attributes),
        Nfs3Result::Err((status, _)) => Err(anyhow!("{call}: {status}")),
    }
}

fn verify(found: &fattr3, node: Node) -> anyhow::Result<()> {
    match node {
        Node::File(size) => {
            ensure!(found.type_ == ftype3::NF3REG && found.size == size, "GETATTR gave another file's");
        }
        Node::Directory(_) => ensure!(found.type_ == ftype3::NF3DIR, "GETATTR gave no directory's"),
    }
    Ok(())
}
