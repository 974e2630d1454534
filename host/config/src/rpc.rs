//! `[rpc]`: limits of ONC RPC, for `kind = "rpc"` and `kind = "nfs"`.

use super::Wrong;
use super::key::{Change, section};
use crate::values::Command;

/// The longest header fits into this (RFC 5531, 8.2).
const RECORD_BYTES_MIN: u64 = 1024;
/// A record mark can express this length.
const RECORD_BYTES_MAX: u64 = 16_777_216;
/// The marks of this many fragments take 4 MiB.
const FRAGMENTS_MAX: u64 = 1_048_576;
/// Bytes of a record mark.
const MARK_LEN: u32 = 4;
/// One for each shard of the table.
const DUPLICATES_MIN: u64 = 8;
/// Their replies use memory from the start.
const DUPLICATES_MAX: u64 = 65_536;
/// A day.
const AGE_S_MAX: u64 = 86_400;
/// The commands that serve RPC.
const SERVE_RPC: &[Command] = &[Command::ServeRpc, Command::ServeNfs];

section! {
    /// `[rpc]`
    pub struct Rpc, RpcOverrides in "rpc" {
        // Forty times the longest call to what is served.
        /// Maximum length of a record over TCP; a connection that sends a longer one is closed
        record_bytes: u32 = 65_536 =>
            range(RECORD_BYTES_MIN, RECORD_BYTES_MAX), unit("bytes"), option("record-bytes", "BYTES", SERVE_RPC),
            change(Change::ReloadAnew);

        // What they cost are the bytes of their marks: each is read once.
        /// Maximum number of fragments of a record; a connection that sends more is closed
        fragments: Option<u32> = None =>
            range(1, FRAGMENTS_MAX), unit("fragments"), unset("as many as fit into limits.connection_bytes"),
            option("fragments", "N", SERVE_RPC), comment("32"), change(Change::ReloadAnew);

        /// Number of kept replies to calls that must run once, to be sent again, of all workers together
        duplicates: u32 = 1024 =>
            range(DUPLICATES_MIN, DUPLICATES_MAX), option("duplicates", "N", SERVE_RPC),
            change(Change::ReloadAnew);

        // As long as the kernel's NFS server keeps them: clients repeat a call for a minute.
        /// How long these replies are kept
        duplicate_age_s: u32 = 120 =>
            range(1, AGE_S_MAX), unit("s"), option("duplicate-age-s", "S", SERVE_RPC), change(Change::ReloadAnew);

        /// Register the programs with rpcbind on this host, until the end
        rpcbind: bool = false => option("rpcbind", "", SERVE_RPC), change(Change::Reload);
    }
}

impl Rpc {
    /// Maximum number of fragments of a record: as configured, or as many as a connection has room for the
    /// marks of, if it may hold this many bytes of a request.
    #[must_use]
    pub fn fragments_max(&self, connection_bytes: u32) -> u32 {
        self.fragments.unwrap_or(connection_bytes / MARK_LEN)
    }

    /// The faults of these limits, if a connection may hold this many bytes of a request.
    pub(super) fn faults(&self, connection_bytes: u32) -> Vec<Wrong> {
        let mut faults = self.range_faults();
        let fragments = self.fragments.unwrap_or(1);
        let most = u64::from(self.record_bytes) + u64::from(MARK_LEN) * u64::from(fragments);
        if faults.is_empty() && most > u64::from(connection_bytes) {
            let sentence = format!(
                "a record of {} bytes in {fragments} fragments takes {most} bytes with its marks, and limits.connection_bytes \
                 are {connection_bytes}: raise those, or lower this",
                self.record_bytes
            );
            faults.push(("rpc.record_bytes", sentence));
        }
        faults
    }
}
