//! `bench nfs`: mounts an export as any client does, prepares what is read or written, and derives the calls.

mod scratch;
mod session;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustix::process::geteuid;
use twinpath_clients::Transport;
use twinpath_config::PathAsked;
use twinpath_load::{Framing, NfsProcedure};
use twinpath_rpc::client::Auth;
use twinpath_rpc::nfs3_types::mount::mountstat3;
use twinpath_rpc::nfs3_types::nfs3::{
    FSINFO3args, FSINFO3resfail, FSINFO3resok, NFS_PROGRAM, nfs_fh3, nfsstat3,
};
use twinpath_rpc::nfs3_types::xdr_codec::Opaque;
use twinpath_socket_load::socket::Source;

use self::scratch::{Scratch, Sizes};
pub(crate) use self::session::{Peer, Program, Session};
pub(crate) use self::walk::Walk;
use super::measure;
use super::mount::{self, Exported};
use super::options::{CommonArgs, EXIT_CODES};
use super::plan::BenchPlan;
use super::rpc::own_credential;
use super::service::{Nfs, Service};
use super::target::{Target, named_port};

/// The port of NFS, where a server has no rpcbind.
const DEFAULT_PORT: u16 = 2049;
/// Bytes of a READ or WRITE unless said otherwise: over TCP what kernel clients ask for; over UDP what fits a datagram.
const STREAM_SIZE: u32 = 1 << 20;
const DATAGRAM_SIZE: u32 = 32 << 10;
/// The largest: a datagram has 65,507 bytes, with the headers of call or reply.
const DATAGRAM_SIZE_MAX: u32 = 65_507 - 1024;
/// The smallest holds a pattern.
const SIZE_MIN: u32 = 16;
/// A file of this size is read or written unless said otherwise: more than caches of CPUs hold.
const FILE_SIZE: u64 = 64 << 20;
/// Files that GETATTR and LOOKUP ask for in turn.
const FILES_MAX: usize = 1024;

/// Measure an NFS server of version 3: READ, WRITE with COMMIT, GETATTR, LOOKUP, or a listing of all directories, and verify
/// what it answers
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct NfsArgs {
    /// The server: a name or an address, and a port unless its rpcbind says it or it is 2049; IPv6 addresses with a port in
    /// brackets, link-local ones as fe80::1%eth0
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// The export to mount
    #[arg(long, value_name = "PATH")]
    export: PathBuf,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Work::Read)]
    proc: Work,
    /// In the export, the file to read, or the directory to ask about or to list. Without it, READ and WRITE make files of
    /// their own, which they remove at the end, and the others take the export's root
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Bytes of a READ or WRITE [default: 1048576, over UDP 32768; at most what the server takes]
    #[arg(long, short = 'l', value_name = "BYTES")]
    size: Option<u32>,
    /// Bytes of the file that is read or written, one for each thread
    #[arg(long, value_name = "BYTES", default_value_t = FILE_SIZE)]
    file_size: u64,
    /// Number of WRITEs before each COMMIT; the server may keep their data in memory [default: one COMMIT for each pass over the file]
    #[arg(long, value_name = "N")]
    writes_per_commit: Option<u32>,
    /// Where MOUNT is served [default: the target's own port, or else where its rpcbind says]
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Work {
    /// READ of the blocks of a file
    Read,
    /// WRITE of the blocks of a file, and COMMIT
    Write,
    /// GETATTR of files in turn
    Getattr,
    /// LOOKUP of names in turn
    Lookup,
    /// READDIRPLUS of all directories, one page after the other as `ls -lR` has it: each run is one listing
    List,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Getattr => "getattr",
            Self::Lookup => "lookup",
            Self::List => "list",
        }
    }

    fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// Measures, and prints the results.
pub(crate) fn run(args: &NfsArgs) -> anyhow::Result<ExitCode> {
    let mut plan = plan(args)?;
    let auth = own_credential()?;
    let (mut session, root) = mounted(args, &mut plan, &auth).map_err(with_hint)?;
    let Prepared { asked, scratch, walk } = prepare(args, &plan, &auth, &mut session, &root)
        .map_err(with_hint)
        .with_context(|| plan.target.name.clone())?;
    plan.service = service(args, &plan, &auth, asked, walk);
    let measured = measure(&plan);
    // Also after a failure, whose reason comes first.
    let ended = scratch.map_or(Ok(()), |scratch| {
        let verified = match &measured {
            Ok((_, report)) if !report.partial => scratch.verify(&mut session, report.lost == 0),
            _ => Ok(()),
        };
        let removed = scratch.remove(&mut session);
        verified.and(removed)
    });
    let (code, _) = measured?;
    ended?;
    Ok(code)
}

/// Checks the arguments, and resolves the target.
fn plan(args: &NfsArgs) -> anyhow::Result<BenchPlan> {
    let (work, common) = (args.proc, &args.common);
    let transport = if common.udp { Transport::Udp } else { Transport::Tcp };
    ensure!(
        work.moves_data() || args.size.is_none(),
        "--size is for what moves data: add --proc read or --proc write"
    );
    ensure!(
        work != Work::Write || args.file.is_none(),
        "--file names what is there, which is not written over: leave it out, and files are made"
    );
    ensure!(
        args.writes_per_commit.is_none_or(|writes| work == Work::Write && writes > 0),
        "--writes-per-commit is for --proc write, and at least 1"
    );
    if let Some(size) = args.size {
        let most = if transport == Transport::Udp { DATAGRAM_SIZE_MAX } else { STREAM_SIZE };
        ensure!(
            (SIZE_MIN..=most).contains(&size),
            "--size {size} is impossible over {transport}: choose {SIZE_MIN} to {most}"
        );
    }
    if work == Work::List {
        let has_load = common.inflight.is_some()
            || common.rate.is_some()
            || common.count.is_some()
            || common.duration.is_some()
            || common.threads != 1;
        ensure!(!has_load, "a listing asks for one page after the other to its end: -i N repeats it");
    }
    let target = Target::resolve(&args.target, common.port, Some(DEFAULT_PORT))?;
    let auth = Auth::none();
    let placeholder = service_of(args, transport, &auth, vec![NfsProcedure::Null], None, 0.0);
    let mut plan = BenchPlan::new(common, target, transport, placeholder)?;
    ensure!(
        plan.path == PathAsked::Kernel || matches!(work, Work::Getattr | Work::Lookup),
        "--on is for calls and replies that fit a frame: --proc getattr or --proc lookup"
    );
    // As kernel clients do.
    plan.nagle &= common.nagle.is_some();
    if geteuid().is_root() {
        plan.source = Source::Reserved;
    }
    Ok(plan)
}

/// Asks rpcbind where NFS is unless that was said, and MOUNT for the root. Connects to NFS.
fn mounted(args: &NfsArgs, plan: &mut BenchPlan, auth: &Auth) -> anyhow::Result<(Session, Vec<u8>)> {
    let path = args.export.to_str().context("--export: the path is not UTF-8")?;
    let mut peer = peer(plan, auth);
    if args.common.port.is_none()
        && named_port(&args.target).is_none()
        && let Ok(Some(port)) = mount::registered(&peer, session::NFS)
    {
        plan.target.move_to(port);
        peer.at = plan.target.address;
    }
    let root = mount::root_handle(&Exported { peer, port: args.mount_port, path })?;
    let session = Session::connect(&peer).with_context(|| format!("cannot ask {} for NFS", peer.at))?;
    Ok((session, root))
}

/// The server, as far as it is known.
fn peer<'a>(plan: &BenchPlan, auth: &'a Auth) -> Peer<'a> {
    Peer {
        at: plan.target.address,
        transport: plan.transport,
        source: plan.source,
        auth,
        patience: plan.load.loss_timeout,
    }
}

/// What the load asks for.
struct Prepared {
    /// For each thread.
    asked: Vec<NfsProcedure>,
    scratch: Option<Scratch>,
    walk: Option<Arc<Walk>>,
}

fn prepare(
    args: &NfsArgs,
    plan: &BenchPlan,
    auth: &Auth,
    session: &mut Session,
    root: &[u8],
) -> anyhow::Result<Prepared> {
    let prepared = |asked| Prepared { asked, scratch: None, walk: None };
    if args.proc.moves_data() && args.file.is_none() {
        let sizes = sizes(args, plan, session, root)?;
        let scratch = Scratch::create(session, root, plan.threads, plan.seed, sizes)?;
        let asked = match args.proc {
            Work::Read => scratch.reads(),
            _ => scratch.writes(args.writes_per_commit),
        };
        return Ok(Prepared { asked, scratch: Some(scratch), walk: None });
    }
    let found = walk::find(session, root, args.file.as_deref())?;
    Ok(match args.proc {
        Work::Read | Work::Write => {
            let sizes = sizes(args, plan, session, root)?;
            prepared(vec![scratch::known(session, &found, sizes)?])
        }
        Work::Getattr if !found.is_directory => {
            prepared(vec![NfsProcedure::GetAttr { handles: vec![found.handle] }])
        }
        Work::Getattr | Work::Lookup => {
            let names = walk::entries(session, &found.handle, FILES_MAX)?;
            ensure!(!names.is_empty(), "the directory is empty: name another with --file");
            prepared(vec![if args.proc == Work::Lookup {
                NfsProcedure::Lookup { dir: found.handle, names }
            } else {
                NfsProcedure::GetAttr { handles: names.into_iter().map(|(_, handle)| handle).collect() }
            }])
        }
        Work::List => {
            let walk = Arc::new(Walk::new(found.handle, &peer(plan, auth)));
            Prepared { walk: Some(walk), ..prepared(vec![NfsProcedure::Null]) }
        }
    })
}

/// Bytes of a call and of a file, as asked for and as the server takes them (FSINFO: RFC 1813, 3.3.19).
fn sizes(args: &NfsArgs, plan: &BenchPlan, session: &mut Session, root: &[u8]) -> anyhow::Result<Sizes> {
    let fsroot = nfs_fh3 { data: Opaque::owned(root.to_vec()) };
    let info =
        session.nfs::<FSINFO3resok, FSINFO3resfail>(NFS_PROGRAM::NFSPROC3_FSINFO, &FSINFO3args { fsroot })?;
    let usual = if plan.transport == Transport::Udp { DATAGRAM_SIZE } else { STREAM_SIZE };
    let most = if args.proc == Work::Read { info.rtmax } else { info.wtmax };
    if let Some(size) = args.size {
        ensure!(size <= most, "the server moves at most {most} bytes with a call: choose a smaller --size");
    }
    let block = args.size.unwrap_or(usual.min(most));
    ensure!(
        block >= SIZE_MIN && args.file_size >= u64::from(block),
        "a file of {} bytes has no block of {block}: choose a larger --file-size",
        args.file_size
    );
    Ok(Sizes { block, file: args.file_size, write_max: info.wtmax.min(usual).max(block) })
}

fn service(
    args: &NfsArgs,
    plan: &BenchPlan,
    auth: &Auth,
    asked: Vec<NfsProcedure>,
    walk: Option<Arc<Walk>>,
) -> Service {
    let data = match asked.first() {
        Some(NfsProcedure::Read { blocks, .. }) => f64::from(blocks.len),
        Some(NfsProcedure::Write { blocks, writes_per_commit, .. }) => {
            let writes = f64::from(*writes_per_commit);
            f64::from(blocks.len) * writes / (writes + 1.0)
        }
        _ => 0.0,
    };
    service_of(args, plan.transport, auth, asked, walk, data)
}

fn service_of(
    args: &NfsArgs,
    transport: Transport,
    auth: &Auth,
    asked: Vec<NfsProcedure>,
    walk: Option<Arc<Walk>>,
    bytes_per_reply: f64,
) -> Service {
    let framing = match transport {
        Transport::Udp => Framing::Datagram,
        Transport::Tcp => Framing::Record { fragments: 1 },
    };
    Service::Nfs(Nfs { work: args.proc.name(), asked, auth: auth.clone(), framing, walk, bytes_per_reply })
}

/// Says what may help, if a right was missing.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    let is = |status: nfsstat3| {
        use twinpath_rpc::client::nfs::NfsError;
        matches!(error.downcast_ref::<NfsError>(), Some(NfsError::Status(found)) if *found == status)
    };
    let is_closed = error.downcast_ref::<twinpath_rpc::client::MountError>().is_some_and(|error| {
        use twinpath_rpc::client::MountError::Status;
        matches!(error, Status(status) if status.0 as u32 == mountstat3::MNT3ERR_ACCES as u32)
    });
    if is(nfsstat3::NFS3ERR_ROFS) {
        return error.context("the export is read-only: name a file to read with --file");
    }
    let is_denied = is_closed || is(nfsstat3::NFS3ERR_ACCES) || is(nfsstat3::NFS3ERR_PERM);
    if is_denied && !geteuid().is_root() {
        error.context("a server may answer ports below 1024 alone, which take root")
    } else if is_closed {
        error.context("is it exported to this host?")
    } else if is_denied {
        error.context("the server may take root for nobody (root_squash): run as a user who may, or export with no_root_squash")
    } else {
        error
    }
}

#[cfg(test)]
mod tests;
