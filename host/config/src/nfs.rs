//! `[nfs]`: data and state of NFS, for `kind = "nfs"`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::key::section;
use super::{Config, Limits, Service, ServiceKind, Wrong};
use crate::values::Command;

/// A page of the client.
const BYTES_MIN: u64 = 4096;
/// No client of Linux asks for more (`NFS_MAX_FILE_IO_SIZE` of linux/nfs_fs.h).
const BYTES_MAX: u64 = 1 << 20;
/// Bytes of a call or a reply beside its data: header, credential, handle, attributes, and their record's marks.
const BESIDE_DATA: u32 = 8192;
/// How many of the longest calls or replies a connection may hold.
const LONGEST_HELD: u32 = 4;
/// The port of NFS (RFC 1813, 2.1).
const PORT: NonZeroU16 = NonZeroU16::new(2049).expect("it is not 0");
/// The command that serves NFS.
const SERVE_NFS: &[Command] = &[Command::ServeNfs];

section! {
    /// `[nfs]`
    pub struct Nfs, NfsOverrides in "nfs" {
        /// The most data of a READ over TCP; over UDP it is less than a datagram
        read_bytes: u32 = BYTES_MAX as u32 =>
            range(BYTES_MIN, BYTES_MAX), unit("bytes"), option("read-bytes", "BYTES", SERVE_NFS);

        /// The most data of a WRITE over TCP; over UDP it is less than a datagram
        write_bytes: u32 = BYTES_MAX as u32 =>
            range(BYTES_MIN, BYTES_MAX), unit("bytes"), option("write-bytes", "BYTES", SERVE_NFS);

        /// The directory of the secret that signs file handles: without it, handles are stale after a restart
        state_directory: PathBuf = PathBuf::from("/var/lib/twinpath") =>
            values_are("a path"), option("state-directory", "PATH", SERVE_NFS);
    }
}

impl Nfs {
    /// Everything that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        self.range_faults()
    }

    /// The longest call or reply, bytes.
    #[must_use]
    pub const fn record_bytes(&self) -> u32 {
        let longer = if self.read_bytes > self.write_bytes { self.read_bytes } else { self.write_bytes };
        longer + BESIDE_DATA
    }
}

impl Config {
    /// Gives services of NFS what their kind implies where nothing else is asked for: the port.
    pub(super) fn complete_nfs(&mut self) {
        let nfs = self.services.iter_mut().filter(|service| service.kind == Some(ServiceKind::Nfs));
        for service in nfs.filter(|service| !service.has_port() && service.flows.is_empty()) {
            (service.udp, service.tcp) = (Some(PORT), Some(PORT));
        }
    }

    /// The most data of a call takes more of a connection than other services need: it has at least this much.
    pub(super) fn raise_for_nfs(&self, service: &Service, limits: &mut Limits) {
        if service.kind == Some(ServiceKind::Nfs) {
            limits.connection_bytes = limits.connection_bytes.max(LONGEST_HELD * self.nfs.record_bytes());
            let all = limits.queued_bytes_min(self.worker.count);
            limits.queued_bytes = limits.queued_bytes.max(all);
        }
    }

    /// The longest record that a service takes, bytes, if its limit is this.
    pub(super) fn record_bytes_of(&self, service: &Service, limit: u32) -> u32 {
        match service.kind {
            Some(ServiceKind::Nfs) => limit.max(self.nfs.record_bytes()),
            _ => limit,
        }
    }
}
