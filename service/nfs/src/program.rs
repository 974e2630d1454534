//! NFS and MOUNT as programs of ONC RPC. Their calls are carried out on threads that may wait, but for some that a worker
//! may be able to answer from what is open and cached.

use std::ops::RangeInclusive;
use std::sync::Arc;

use twinpath_rpc::nfs3_types::mount::mountstat3;
use twinpath_rpc::nfs3_types::nfs3::{NFS_PROGRAM, nfsstat3};
use twinpath_rpc::nfs3_types::{mount, nfs3};
use twinpath_rpc::{Handled, Program, Refusal, Request, Results, Transport};
use twinpath_service::{OwnMetrics, ServiceCounters};
use twinpath_time::Instant;

use crate::HANDLE_MAX;
use crate::call::Call;
use crate::caller::Caller;
use crate::files::Files;
use crate::gate::{Admission, Bounds, Gate};
use crate::meter::{self, Ended, Meter, Pending};
use crate::mount::{MountCall, Mounts};
use crate::server::{Context, Server, Sizes, WouldBlock};

/// The first version of MOUNT.
const MOUNT_LOW: u32 = 1;
/// The programs, by number, and their versions.
pub const PROGRAMS: [(u32, RangeInclusive<u32>); 2] =
    [(nfs3::PROGRAM, nfs3::VERSION..=nfs3::VERSION), (mount::PROGRAM, MOUNT_LOW..=mount::VERSION)];
/// Length of attributes with their mark, bytes.
const ATTRIBUTES_LEN: usize = 88;
/// Length of attributes before and after a change, bytes.
const WCC_LEN: usize = 28 + ATTRIBUTES_LEN;
/// Length of the longest results of a call that must run once, bytes: a status, a handle, attributes, and those of a
/// directory before and after; or those of the two directories of RENAME.
const CHANGE_LEN: usize = 4 + (4 + 4 + HANDLE_MAX) + ATTRIBUTES_LEN + WCC_LEN;
/// Length of what a READ has beside data and attributes, bytes: a status, three words, padding.
const READ_LEN: usize = 4 + 12 + 3;
/// Length of the longest target of a link with its length, bytes.
const TARGET_LEN: usize = 4 + 4096;
/// Length of the longest results of calls that have neither data nor a list, bytes.
const SHORT_MAX: usize = {
    let link = 4 + ATTRIBUTES_LEN + TARGET_LEN;
    if link > CHANGE_LEN { link } else { CHANGE_LEN }
};
/// Length of the results of MNT, bytes: a status, a handle with its length, flavours with their count.
const MOUNTED_LEN: usize = 4 + (4 + HANDLE_MAX) + 12;

const _: () = assert!(CHANGE_LEN >= 4 + 2 * WCC_LEN, "RENAME has two directories");

/// Procedures that must not run again when a call is repeated: what they change is changed, and a second run fails or
/// undoes what others did meanwhile.
const ONCE: [(u32, u32); 9] = {
    let procedures = [
        NFS_PROGRAM::NFSPROC3_SETATTR,
        NFS_PROGRAM::NFSPROC3_CREATE,
        NFS_PROGRAM::NFSPROC3_MKDIR,
        NFS_PROGRAM::NFSPROC3_SYMLINK,
        NFS_PROGRAM::NFSPROC3_MKNOD,
        NFS_PROGRAM::NFSPROC3_REMOVE,
        NFS_PROGRAM::NFSPROC3_RMDIR,
        NFS_PROGRAM::NFSPROC3_RENAME,
        NFS_PROGRAM::NFSPROC3_LINK,
    ];
    let (mut once, mut at) = ([(nfs3::VERSION, 0); 9], 0);
    while at < once.len() {
        once[at].1 = procedures[at] as u32;
        at += 1;
    }
    once
};

/// All procedures but NULL.
const LATER: [(u32, u32); 21] = {
    let (mut later, mut at) = ([(nfs3::VERSION, 0); 21], 0);
    while at < later.len() {
        later[at].1 = at as u32 + 1;
        at += 1;
    }
    later
};

/// Those that a worker may be able to answer.
const QUICK: [(u32, u32); 3] = [
    (nfs3::VERSION, NFS_PROGRAM::NFSPROC3_GETATTR as u32),
    (nfs3::VERSION, NFS_PROGRAM::NFSPROC3_LOOKUP as u32),
    (nfs3::VERSION, NFS_PROGRAM::NFSPROC3_ACCESS as u32),
];

/// MNT, by which a path is looked up.
const MOUNT_LATER: [(u32, u32); 2] = [
    (MOUNT_LOW, mount::MOUNT_PROGRAM::MOUNTPROC3_MNT as u32),
    (mount::VERSION, mount::MOUNT_PROGRAM::MOUNTPROC3_MNT as u32),
];

/// The file system of the calling thread, which may wait.
pub trait ThreadFiles: Clone + Send + 'static {
    /// The file system.
    type Files: Files;
    /// The same for a worker: what would wait is [`Fault::WouldBlock`](crate::Fault::WouldBlock).
    type Quick: Files + Send;

    /// The time, for what is counted: that of the clock by which calls arrive.
    fn now() -> Instant;

    /// The file system for a worker, if it has one.
    fn quick(&self) -> Option<Self::Quick>;

    /// Runs `work` with it.
    ///
    /// # Errors
    /// SYSTEM_ERR: the thread has none, and cannot get it.
    fn with<R>(&self, work: impl FnOnce(&mut Self::Files) -> R) -> Result<R, Refusal>;
}

/// NFS version 3.
pub struct NfsProgram<T: ThreadFiles> {
    server: Arc<Server>,
    files: T,
    datagram: Sizes,
    stream: Sizes,
    gate: Gate,
    quick: Option<T::Quick>,
    meter: Meter,
}

impl<T: ThreadFiles> NfsProgram<T> {
    /// Serves `server` with data of these lengths by datagrams and by streams, and with so many calls that wait for
    /// threads.
    #[must_use]
    pub fn new(server: Arc<Server>, files: T, datagram: Sizes, stream: Sizes, bounds: Bounds) -> Self {
        let gate = Gate::new(bounds, server.exports.iter().count());
        let quick = files.quick();
        Self { server, files, datagram, stream, gate, quick, meter: Meter::default() }
    }

    fn context(&self, request: &Request<'_>) -> Context {
        let sizes = match request.arrival.transport {
            Transport::Datagram => self.datagram,
            Transport::Stream => self.stream,
        };
        Context { peer: request.arrival.peer, claimed: Caller::claimed(&request.credential), sizes }
    }

    /// Answers a call with an error before it takes a thread.
    fn refuse(
        &self,
        call: &Call<'_>,
        status: nfsstat3,
        pending: Pending,
        results: &mut Results<'_>,
    ) -> Handled {
        let start = results.buffer().len();
        self.server.refuse(call, status, results.buffer());
        self.meter.count(pending, ended::<T>(Ok(()), &results.buffer()[start..]));
        Handled::Now
    }

    fn export_lanes(&self) -> u32 {
        // Without exports nothing is handed over.
        self.server.exports.iter().count().max(1) as u32
    }

    /// The same for another worker, or for MOUNT.
    #[must_use]
    pub fn sibling(&self) -> Self {
        let (server, files) = (Arc::clone(&self.server), self.files.clone());
        let (quick, gate) = (files.quick(), self.gate.for_worker());
        let (datagram, stream, meter) = (self.datagram, self.stream, Meter::default());
        Self { server, files, datagram, stream, gate, quick, meter }
    }
}

impl<T: ThreadFiles> Program for NfsProgram<T> {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs3::VERSION..=nfs3::VERSION
    }

    fn results_max(&self) -> usize {
        let each = [self.datagram, self.stream]
            .map(|sizes| read_max(&sizes, u32::MAX).max(listed_max(&sizes, u32::MAX)));
        each.into_iter().fold(SHORT_MAX, usize::max)
    }

    fn run_once(&self) -> &[(u32, u32)] {
        &ONCE
    }

    fn run_once_max(&self) -> usize {
        CHANGE_LEN
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &LATER
    }

    fn called_without_room(&self) -> &[(u32, u32)] {
        if self.quick.is_some() { &QUICK } else { &[] }
    }

    fn clock(&self) -> Option<fn() -> Instant> {
        Some(T::now)
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        // What cannot be decoded takes no thread, nor does a handle that is not ours, nor a client without the export.
        let call = Call::read(request.procedure, request.args)?;
        let context = self.context(request);
        let pending = Pending::new(request);
        let lane = match self.server.place_of(&call, context.peer) {
            Ok(lane) => lane,
            Err(status) => return Ok(self.refuse(&call, status, pending, results)),
        };
        let is_asking = QUICK.contains(&(nfs3::VERSION, request.procedure));
        let start = results.buffer().len();
        if is_asking
            && let Some(files) = &mut self.quick
            && self.server.call(files, &context, &call, results.buffer()).is_ok()
        {
            self.meter.count(pending, ended::<T>(Ok(()), &results.buffer()[start..]));
            return Ok(Handled::Now);
        }
        if !request.may_defer {
            return Ok(Handled::Busy(lane));
        }
        let bytes = request.args.len() + longest(&call, &context.sizes);
        let pass = match self.gate.admit(lane, &request.arrival, bytes as u64) {
            Admission::Admitted(pass) => pass,
            Admission::Full => return Ok(Handled::Busy(lane)),
            // The client tries it again later.
            Admission::Stalled => {
                return Ok(self.refuse(&call, nfsstat3::NFS3ERR_JUKEBOX, pending, results));
            }
        };
        let procedure = request.procedure;
        let (server, files, meter) = (Arc::clone(&self.server), self.files.clone(), self.meter.clone());
        Ok(Handled::Later {
            lane,
            work: Box::new(move |args, results| {
                let _pass = pass;
                let call = Call::read(procedure, args)?;
                let start = results.buffer().len();
                let done = files.with(|files| server.call(files, &context, &call, results.buffer()));
                // This file system may wait.
                let done = done.and_then(|done| done.map_err(|WouldBlock| Refusal::SystemError));
                meter.count_later(pending, ended::<T>(done, &results.buffer()[start..]));
                done
            }),
        })
    }

    fn define(&mut self, metrics: &mut OwnMetrics) {
        self.meter.define(&meter::NFS, metrics);
    }

    fn count_in(&mut self, counters: &Arc<ServiceCounters>) {
        self.meter.count_in(counters);
    }

    fn lanes(&self) -> u32 {
        self.export_lanes()
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(self.sibling())
    }
}

/// Length of the longest results of a READ of `count` bytes, bytes.
fn read_max(sizes: &Sizes, count: u32) -> usize {
    READ_LEN + ATTRIBUTES_LEN + count.min(sizes.read_max) as usize
}

/// The same of a list that may have `count` bytes.
fn listed_max(sizes: &Sizes, count: u32) -> usize {
    4 + count.min(sizes.directory_max) as usize
}

/// The same of a call: as much memory is set aside for it.
fn longest(call: &Call<'_>, sizes: &Sizes) -> usize {
    match call {
        Call::Read { count, .. } => read_max(sizes, *count),
        Call::Readdir { count, .. } | Call::Readdirplus { maxcount: count, .. } => listed_max(sizes, *count),
        Call::Readlink { .. } => SHORT_MAX,
        _ => CHANGE_LEN,
    }
}

/// How a call ended whose results begin with a status.
fn ended<T: ThreadFiles>(done: Result<(), Refusal>, results: &[u8]) -> Ended {
    let failed = done.is_err() || !results.starts_with(&[0; 4]);
    Ended { now: T::now(), failed, results: results.len() }
}

/// MOUNT versions 1 to 3. Version 2 is version 1 with a procedure more, which is refused.
pub struct MountProgram<T: ThreadFiles> {
    nfs: NfsProgram<T>,
    mounts: Arc<Mounts>,
}

impl<T: ThreadFiles> MountProgram<T> {
    /// Gives out handles of what `nfs` serves.
    #[must_use]
    pub const fn new(nfs: NfsProgram<T>, mounts: Arc<Mounts>) -> Self {
        Self { nfs, mounts }
    }
}

impl<T: ThreadFiles> Program for MountProgram<T> {
    fn number(&self) -> u32 {
        mount::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        MOUNT_LOW..=mount::VERSION
    }

    fn results_max(&self) -> usize {
        MOUNTED_LEN.max(self.mounts.listed_max()).max(self.nfs.server.exports.listed_max())
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &MOUNT_LATER
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        let call = MountCall::read(request.procedure, request.args)?;
        let (context, version) = (self.nfs.context(request), request.version);
        let (server, files) = (Arc::clone(&self.nfs.server), self.nfs.files.clone());
        let mounts = Arc::clone(&self.mounts);
        let (pending, start) = (Pending::new(request), results.buffer().len());
        let meter = &self.nfs.meter;
        match call {
            MountCall::Mount(path) => {
                let lane = match server.mount_place(&context, version, path) {
                    Ok(lane) => lane,
                    Err(status) => {
                        results.write_u32(status as u32);
                        meter.count(pending, ended::<T>(Ok(()), &results.buffer()[start..]));
                        return Ok(Handled::Now);
                    }
                };
                let bytes = request.args.len() + MOUNTED_LEN;
                // Lanes behind those of NFS: the two gates together admit no more than all lanes have room for.
                let of_mount = self.nfs.export_lanes() + lane;
                let pass = match self.nfs.gate.admit(lane, &request.arrival, bytes as u64) {
                    Admission::Admitted(pass) => pass,
                    Admission::Full => return Ok(Handled::Busy(of_mount)),
                    Admission::Stalled => {
                        results.write_u32(mountstat3::MNT3ERR_SERVERFAULT as u32);
                        meter.count(pending, ended::<T>(Ok(()), &results.buffer()[start..]));
                        return Ok(Handled::Now);
                    }
                };
                let (path, meter) = (path.to_vec(), meter.clone());
                Ok(Handled::Later {
                    lane: of_mount,
                    work: Box::new(move |_, results| {
                        let _pass = pass;
                        let out = results.buffer();
                        let start = out.len();
                        let done =
                            files.with(|files| server.mount(files, &mounts, &context, version, &path, out));
                        let done = done.and_then(|done| done.map_err(|WouldBlock| Refusal::SystemError));
                        meter.count_later(pending, ended::<T>(done, &results.buffer()[start..]));
                        done
                    }),
                })
            }
            call => {
                server.answer_mount(&mounts, &context, call, results.buffer());
                // Their results have no status: they do not fail.
                let results = results.buffer().len() - start;
                meter.count(pending, Ended { now: T::now(), failed: false, results });
                Ok(Handled::Now)
            }
        }
    }

    fn define(&mut self, metrics: &mut OwnMetrics) {
        self.nfs.meter.define(&meter::MOUNT, metrics);
    }

    fn count_in(&mut self, counters: &Arc<ServiceCounters>) {
        self.nfs.meter.count_in(counters);
    }

    fn lanes(&self) -> u32 {
        2 * self.nfs.export_lanes()
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self { nfs: self.nfs.sibling(), mounts: Arc::clone(&self.mounts) })
    }
}
