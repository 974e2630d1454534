//! NFS and MOUNT as programs: calls that a server of RPC checks, carried out later.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use twinpath_nfs::{Bounds, MountProgram, Mounts, NfsProgram, ThreadFiles};
use twinpath_rpc::client::{Auth, Call, Reply};
use twinpath_rpc::nfs3_types::mount::mountstat3;
use twinpath_rpc::nfs3_types::nfs3::*;
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use twinpath_rpc::{Arrival, DuplicateLimits, Outcome, Refusal, Server, Transport};
use twinpath_service::{OwnMetrics, ProcedureCounts};
use twinpath_time::{Duration, Instant};

use crate::model::Memory;
use crate::rig::{P, Rig, at};

#[derive(Clone)]
struct Shared(Arc<Mutex<Memory>>);

impl ThreadFiles for Shared {
    type Files = Memory;
    type Quick = Memory;

    fn now() -> Instant {
        Instant::ZERO + Duration::from_micros(5)
    }

    fn quick(&self) -> Option<Memory> {
        None
    }

    fn with<R>(&self, work: impl FnOnce(&mut Memory) -> R) -> Result<R, Refusal> {
        Ok(work(&mut self.0.lock().expect("nobody panicked")))
    }
}

/// How long replies are kept.
const AGE: Duration = Duration::from_secs(60);

struct Client {
    rpc: Server,
    root: nfs_fh3,
    files: Shared,
}

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("it can be encoded");
    bytes
}

fn message(uid: u32, xid: u32, (program, version, procedure): (u32, u32, u32), args: &[u8]) -> Vec<u8> {
    let auth = Auth::sys("client", uid, 100, &[]).expect("a short name");
    let mut message = Vec::new();
    Call { xid, program, version, procedure, auth: &auth, args }.write(&mut message);
    message
}

impl Client {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (root, sizes) = (rig.root(), rig.sizes);
        let files = Shared(Arc::new(Mutex::new(rig.files)));
        let nfs = NfsProgram::new(
            rig.server,
            files.clone(),
            sizes,
            sizes,
            Bounds { export: 8, peer: 8, datagrams: 8, export_bytes: 1 << 20, peer_bytes: 20_000 },
        );
        let mount = MountProgram::new(nfs.sibling(), Arc::new(Mounts::new(4)));
        let limits = DuplicateLimits { calls: 64, age: AGE };
        let rpc = Server::new(vec![Box::new(nfs), Box::new(mount)], limits, 7).expect("two programs");
        Self { rpc, root, files }
    }

    /// The reply to a call by datagram, once its work is done.
    fn send(&mut self, uid: u32, xid: u32, called: (u32, u32, u32), args: &[u8]) -> Vec<u8> {
        let message = message(uid, xid, called, args);
        let peer = SocketAddr::from(([192, 0, 2, 1], 700));
        let answer = self.rpc.datagram_or_later(Instant::ZERO, peer, &message).expect("a call");
        match answer {
            Ok(now) => now.to_vec(),
            Err(later) => later.run_datagram(args),
        }
    }

    /// The reply to a call of root from this port, if it takes no thread.
    fn at_once(&mut self, port: u16, called: (u32, u32, u32), args: &[u8]) -> Option<Vec<u8>> {
        let message = message(0, 5, called, args);
        let peer = SocketAddr::from(([192, 0, 2, 1], port));
        let answer = self.rpc.datagram_or_later(Instant::ZERO, peer, &message).expect("a call");
        answer.ok().map(|reply| results(reply).expect("accepted").to_vec())
    }

    fn nfs(&mut self, uid: u32, xid: u32, procedure: P, args: &impl Pack) -> Vec<u8> {
        self.send(uid, xid, (PROGRAM, VERSION, procedure as u32), &packed(args))
    }
}

fn results(reply: &[u8]) -> Result<&[u8], Refusal> {
    Reply::parse(reply).expect("a reply").outcome
}

#[test]
fn a_call_is_carried_out_later_and_its_results_follow_the_header() {
    let mut client = Client::new();
    let root = client.root.clone();
    let reply = client.nfs(1000, 5, P::NFSPROC3_GETATTR, &GETATTR3args { object: root });
    let mut rest = results(&reply).expect("accepted");
    let (got, _) = GETATTR3res::unpack(&mut rest).expect("attributes");
    assert_eq!(got.unwrap().obj_attributes.mode, 0o777);
    assert!(rest.is_empty());
    let null = client.send(1000, 6, (PROGRAM, VERSION, 0), &[]);
    assert_eq!(results(&null), Ok(&[][..]));
    let garbage = client.send(1000, 7, (PROGRAM, VERSION, 1), &[0, 0, 0, 65]);
    assert_eq!(results(&garbage), Err(Refusal::GarbageArguments));
    let unknown = client.send(1000, 8, (PROGRAM, VERSION, 22), &[]);
    assert_eq!(results(&unknown), Err(Refusal::ProcedureUnavailable));
}

#[test]
fn a_change_that_is_repeated_runs_once_and_another_user_gets_no_reply_of_it() {
    let mut client = Client::new();
    let args = MKDIR3args { where_: at(&client.root.clone(), "dir"), attributes: sattr3::default() };
    let first = client.nfs(1000, 5, P::NFSPROC3_MKDIR, &args);
    assert_eq!(results(&first).expect("accepted")[..4], [0; 4]);
    assert_eq!(client.nfs(1000, 5, P::NFSPROC3_MKDIR, &args), first, "it is there, but the call is the same");
    let other = client.nfs(1001, 5, P::NFSPROC3_MKDIR, &args);
    assert_eq!(results(&other).expect("accepted")[..4], (nfsstat3::NFS3ERR_EXIST as u32).to_be_bytes());
    assert_eq!(client.files.0.lock().expect("nobody panicked").nodes.len(), 3);
}

#[test]
fn the_reply_of_a_change_is_kept_from_its_end_on() {
    let mut client = Client::new();
    let args = MKDIR3args { where_: at(&client.root.clone(), "dir"), attributes: sattr3::default() };
    let first = client.nfs(1000, 5, P::NFSPROC3_MKDIR, &args);
    let call = message(1000, 5, (PROGRAM, VERSION, P::NFSPROC3_MKDIR as u32), &packed(&args));
    let peer = SocketAddr::from(([192, 0, 2, 1], 700));
    // It came at 0 and ended after 5 microseconds.
    let last = Instant::ZERO + AGE + Duration::from_micros(4);
    let again = client.rpc.datagram_or_later(last, peer, &call).expect("a call");
    assert_eq!(again.ok(), Some(&first[..]));
    let late = last + Duration::from_micros(1);
    assert!(client.rpc.datagram_or_later(late, peer, &call).expect("a call").is_err(), "it runs again");
}

#[test]
fn mount_has_lanes_of_its_own() {
    let mut client = Client::new();
    let peer = SocketAddr::from(([192, 0, 2, 1], 700));
    let root = packed(&GETATTR3args { object: client.root.clone() });
    let getattr = message(0, 5, (PROGRAM, VERSION, P::NFSPROC3_GETATTR as u32), &root);
    let mnt = message(0, 6, (100_005, 3, 1), &[&[0, 0, 0, 4][..], b"/one"].concat());
    let (mut kept, mut lanes) = (Vec::new(), Vec::new());
    for call in [getattr, mnt] {
        let mut lane = None;
        // As many as its gate admits.
        while let Ok(Err(later)) = client.rpc.datagram_or_later(Instant::ZERO, peer, &call) {
            lane = Some(later.lane());
            kept.push(later);
        }
        lanes.push(lane.expect("calls of the other program do not fill this gate"));
    }
    assert_eq!(kept.len(), 16);
    let exports = client.rpc.lanes() / 2;
    assert!(lanes[0] < exports && lanes[1] == lanes[0] + exports, "{lanes:?} of {exports} exports");
}

#[test]
fn calls_with_long_results_take_more_room_than_others() {
    let mut client = Client::new();
    let file = client.root.clone();
    let arrival = |port| Arrival {
        now: Instant::ZERO,
        peer: SocketAddr::from(([192, 0, 2, 1], port)),
        transport: Transport::Stream,
    };
    // As many calls as are admitted at a time.
    let mut admitted = |port, procedure: P, args: &[u8]| {
        let call = message(0, 5, (PROGRAM, VERSION, procedure as u32), args);
        let mut kept = Vec::new();
        while let Ok(Outcome::Later(work)) = client.rpc.record(&arrival(port), true, &call, &mut Vec::new()) {
            kept.push(work);
        }
        kept.len()
    };
    let read = |count| packed(&READ3args { file: file.clone(), offset: 0, count });
    assert_eq!(admitted(700, P::NFSPROC3_READ, &read(u32::MAX)), 4, "each as long as it can be, 4 KiB");
    assert_eq!(admitted(700, P::NFSPROC3_READ, &read(100)), 8, "as many as calls have room");
    let list = READDIRPLUS3args {
        dir: file.clone(),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 4096,
        maxcount: 4096,
    };
    assert_eq!(admitted(701, P::NFSPROC3_READDIRPLUS, &packed(&list)), 4);
    let data = vec![0; 4096];
    let write = WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 4096,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(&data),
    };
    assert_eq!(admitted(702, P::NFSPROC3_WRITE, &packed(&write)), 4, "their data waits as well");
}

#[test]
fn mount_and_nfs_are_one_server() {
    let mut client = Client::new();
    let path = [&[0, 0, 0, 4][..], b"/one"].concat();
    let reply = client.send(0, 5, (100_005, 3, 1), &path);
    let mounted = results(&reply).expect("accepted");
    let handle = client.root.data.to_vec();
    assert_eq!(mounted[8..8 + handle.len()], handle);
    let listed = client.send(0, 6, (100_005, 1, 2), &[]);
    assert!(results(&listed).expect("accepted").windows(9).any(|bytes| bytes == b"192.0.2.1"));
    let missing = client.send(0, 7, (100_005, 4, 0), &[]);
    assert_eq!(results(&missing), Err(Refusal::ProgramMismatch { low: 1, high: 3 }));
}

#[test]
fn each_procedure_has_its_calls_counted_with_their_time_and_their_failures() {
    let mut client = Client::new();
    let root = client.root.clone();
    client.nfs(1000, 1, P::NFSPROC3_GETATTR, &GETATTR3args { object: root.clone() });
    client.nfs(1000, 2, P::NFSPROC3_LOOKUP, &LOOKUP3args { what: at(&root, "none") });
    // A handle that is not ours is answered by the worker.
    let foreign = nfs_fh3 { data: Opaque::owned(vec![7; 16]) };
    client.nfs(1000, 3, P::NFSPROC3_GETATTR, &GETATTR3args { object: foreign });
    client.send(0, 4, (100_005, 3, 1), &[&[0, 0, 0, 8][..], b"/one/not"].concat());
    client.send(0, 5, (100_005, 3, 5), &[]);
    let called = |own: &OwnMetrics| {
        let called = own.procedures().filter(|(_, counts)| counts.took.count() > 0);
        called.map(|(name, counts)| (name.program, name.procedure, counts)).collect::<Vec<_>>()
    };
    let rows = |own: &OwnMetrics| {
        let row = |(program, procedure, counts): (_, _, ProcedureCounts)| {
            (program, procedure, counts.took.count(), counts.failed, counts.bytes_in)
        };
        called(own).into_iter().map(row).collect::<Vec<_>>()
    };
    let counters = client.rpc.counters();
    let handle = 4 + root.data.len() as u64;
    assert_eq!(
        rows(&counters.own_later),
        [
            ("nfs", "GETATTR", 1, 0, handle),
            ("nfs", "LOOKUP", 1, 1, handle + 4 + 4),
            ("mount", "MNT", 1, 1, 4 + 8)
        ]
    );
    assert_eq!(rows(&counters.own), [("nfs", "GETATTR", 1, 1, 4 + 16), ("mount", "EXPORT", 1, 0, 0)]);
    // A status and attributes; an error alone.
    let sizes = [&counters.own_later, &counters.own].map(|own| called(own)[0].2.bytes_out);
    assert_eq!(sizes, [4 + 84, 4]);
    assert!(called(&counters.own_later).iter().all(|(.., counts)| counts.took.quantile(0.5).is_some()));
}

#[test]
fn a_client_that_may_not_use_the_export_takes_none_of_its_threads() {
    let mut client = Client::new();
    let path = |path: &str| packed(&twinpath_rpc::nfs3_types::xdr_codec::Opaque::borrowed(path.as_bytes()));
    let (getattr, mnt) = ((PROGRAM, VERSION, P::NFSPROC3_GETATTR as u32), (100_005, 3, 1));
    let root = packed(&GETATTR3args { object: client.root.clone() });
    assert_eq!(client.at_once(700, getattr, &root), None, "it waits for the file system");
    let perm = (nfsstat3::NFS3ERR_PERM as u32).to_be_bytes().to_vec();
    assert_eq!(client.at_once(40_000, getattr, &root), Some(perm));
    assert_eq!(client.at_once(700, mnt, &path("/one/dir")), None, "it waits for the file system");
    for (port, call, asked, status) in [
        (40_000, mnt, "/one", mountstat3::MNT3ERR_ACCES),
        (700, mnt, "/none", mountstat3::MNT3ERR_NOENT),
        (700, mnt, "/one/\0", mountstat3::MNT3ERR_INVAL),
        (700, (100_005, 1, 1), "/one", mountstat3::MNT3ERR_ACCES),
    ] {
        let status = (status as u32).to_be_bytes().to_vec();
        assert_eq!(client.at_once(port, call, &path(asked)), Some(status), "{asked:?}");
    }
}
