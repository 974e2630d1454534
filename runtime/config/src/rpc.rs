//! `[rpc]`: bounds of ONC RPC, for `kind = "rpc"`.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Bytes of a record: what the longest header may have (RFC 5531, 8.2) fits, and a mark can say.
const RECORD_BYTES: RangeInclusive<u32> = 1024..=16_777_216;
/// Fragments of a record: each costs a look at its mark.
const FRAGMENTS: RangeInclusive<u32> = 1..=1024;
/// Bytes of a record mark.
const MARK_LEN: u32 = 4;
/// Calls kept: their replies take memory from the start.
const DUPLICATES: RangeInclusive<u32> = 8..=65_536;
/// A day.
const AGE_S_MAX: u32 = 86_400;

/// `[rpc]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rpc {
    /// Bytes of a record, at most.
    pub record_bytes: u32,
    /// Fragments of a record, at most.
    pub fragments: u32,
    /// Calls that must run once whose replies are kept, by all workers together.
    pub duplicates: u32,
    /// For how long, s.
    pub duplicate_age_s: u32,
    /// Whether the programs are registered with rpcbind.
    pub rpcbind: bool,
}

impl Default for Rpc {
    fn default() -> Self {
        Self {
            // Forty times the longest call there is of what is served.
            record_bytes: 65_536,
            fragments: 32,
            duplicates: 1024,
            // As long as the kernel's NFS server keeps them: clients repeat a call for a minute.
            duplicate_age_s: 120,
            rpcbind: false,
        }
    }
}

/// What is otherwise than `[rpc]` says: on the command line, which wins over the file, or for one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RpcOverrides {
    /// `--record-bytes`
    pub record_bytes: Option<u32>,
    /// `--fragments`
    pub fragments: Option<u32>,
    /// `--duplicates`
    pub duplicates: Option<u32>,
    /// `--duplicate-age-s`
    pub duplicate_age_s: Option<u32>,
    /// `--rpcbind`
    pub rpcbind: Option<bool>,
}

impl RpcOverrides {
    /// Forgets what `named` names: that wins, for all.
    pub(super) fn without(&mut self, named: &Self) {
        let of = |named: Option<u32>, own: &mut Option<u32>| *own = own.filter(|_| named.is_none());
        of(named.record_bytes, &mut self.record_bytes);
        of(named.fragments, &mut self.fragments);
        of(named.duplicates, &mut self.duplicates);
        of(named.duplicate_age_s, &mut self.duplicate_age_s);
        self.rpcbind = self.rpcbind.filter(|_| named.rpcbind.is_none());
    }
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

impl Rpc {
    /// Lets the command line win.
    pub(super) fn apply(&mut self, overrides: &RpcOverrides) {
        let of = |named: Option<u32>, former: &mut u32| *former = named.unwrap_or(*former);
        of(overrides.record_bytes, &mut self.record_bytes);
        of(overrides.fragments, &mut self.fragments);
        of(overrides.duplicates, &mut self.duplicates);
        of(overrides.duplicate_age_s, &mut self.duplicate_age_s);
        self.rpcbind = overrides.rpcbind.unwrap_or(self.rpcbind);
    }

    /// Everything that cannot work where a connection may hold so many bytes of a request.
    pub(super) fn faults(&self, connection_bytes: u32) -> Vec<Wrong> {
        let ranges = [
            ("rpc.record_bytes", self.record_bytes, RECORD_BYTES),
            ("rpc.fragments", self.fragments, FRAGMENTS),
            ("rpc.duplicates", self.duplicates, DUPLICATES),
            ("rpc.duplicate_age_s", self.duplicate_age_s, 1..=AGE_S_MAX),
        ];
        let outside = ranges.into_iter().filter(|(_, value, range)| !range.contains(value));
        let mut faults: Vec<Wrong> = outside
            .map(|(key, value, range)| (key, format!("{value}: give {} to {}", range.start(), range.end())))
            .collect();
        let most = u64::from(self.record_bytes) + u64::from(MARK_LEN) * u64::from(self.fragments);
        if faults.is_empty() && most > u64::from(connection_bytes) {
            let sentence = format!(
                "a record of {} bytes in {} fragments takes {most} bytes with its marks, and limits.connection_bytes \
                 are {connection_bytes}: raise those, or lower this",
                self.record_bytes, self.fragments
            );
            faults.push(("rpc.record_bytes", sentence));
        }
        faults
    }
}
