//! The calls of NFS version 3 that a load makes (RFC 1813, 3.3): the arguments of each, and what its results must be.
//!
//! A call follows from its number alone, of which the 32 bits count that its reply carries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_rpc::client::nfs::{NfsError, commit_results, lookup_results, read_results, write_results};
use twinpath_rpc::client::{Reply, ReplyError, handle_arguments};
use twinpath_rpc::nfs3_types::nfs3::{NFS_PROGRAM, NFS3_WRITEVERFSIZE, stable_how};
use twinpath_rpc::xdr::{padding, write_opaque};

use crate::load::SLOT_BITS;
use crate::pattern;

/// The results of GETATTR: a status and a `fattr3` (RFC 1813, 2.6).
const GETATTR_RESULTS: usize = 4 + 84;
/// Attributes, if there are any.
const SOME_ATTRIBUTES: usize = 4 + 84;
/// The results of a change: a status, attributes before and after it.
const CHANGE_RESULTS: usize = 4 + (4 + 24) + SOME_ATTRIBUTES;
/// An offset and a count.
const RANGE_LEN: usize = 12;

/// The procedure of NFS version 3 that is called.
#[derive(Clone, Debug)]
pub enum NfsProcedure {
    /// NULL (RFC 1813, 3.3.0).
    Null,
    /// GETATTR (RFC 1813, 3.3.1) of files in turn.
    GetAttr {
        /// Their handles, at least one, of at most 64 bytes.
        handles: Vec<Vec<u8>>,
    },
    /// LOOKUP (RFC 1813, 3.3.3) of names in turn.
    Lookup {
        /// The handle of the directory.
        dir: Vec<u8>,
        /// At least one name, with the handle that it must have.
        names: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// READ (RFC 1813, 3.3.6) of the blocks of a file in turn.
    Read {
        /// The file.
        blocks: Blocks,
        /// What is in it.
        content: Content,
    },
    /// WRITE (RFC 1813, 3.3.7) of the blocks of a file in turn, UNSTABLE, with a COMMIT (3.3.21) of all of it after
    /// some.
    Write {
        /// The file.
        blocks: Blocks,
        /// The seed of what is written.
        seed: u64,
        /// Number of WRITEs before each COMMIT. At least 1.
        writes_per_commit: u32,
        /// For each block, the number of the pattern whose write was acknowledged last.
        acknowledged: Arc<[AtomicU64]>,
    },
}

impl NfsProcedure {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::GetAttr { .. } => "getattr",
            Self::Lookup { .. } => "lookup",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
        }
    }
}

/// A file as blocks of equal length.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Its handle.
    pub handle: Vec<u8>,
    /// Bytes of a block, at least [`PAYLOAD_MIN`](crate::PAYLOAD_MIN).
    pub len: u32,
    /// Number of blocks, at least 1.
    pub count: u32,
}

/// What is in the blocks of a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// Each has the [pattern](fill_block) of its own number and this seed.
    Pattern(u64),
    /// Each has this [sum](block_sum).
    Sums(Arc<[u64]>),
}

/// Fills a block of a file with the pattern of a number. It holds at least 16 bytes.
pub fn fill_block(seed: u64, number: u64, block: &mut [u8]) {
    pattern::fill(seed, number, block);
}

/// The number whose pattern fills a block, if every byte of it is right.
#[must_use]
pub fn check_block(seed: u64, block: &[u8]) -> Option<u64> {
    pattern::check(seed, block)
}

/// A sum of all bytes of a block that changes if any byte does. It is no defence against intent.
#[must_use]
pub fn block_sum(block: &[u8]) -> u64 {
    const LANES: usize = 4;
    /// Odd, so that a multiplication loses nothing.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut lanes = [block.len() as u64; LANES];
    let (groups, rest) = block.as_chunks::<{ 8 * LANES }>();
    let mut tail = [0; 8 * LANES];
    tail[..rest.len()].copy_from_slice(rest);
    for group in groups.iter().chain([&tail]) {
        for (lane, word) in lanes.iter_mut().zip(group.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        }
    }
    lanes.into_iter().fold(0, |sum, lane| (sum ^ lane).wrapping_mul(FACTOR).rotate_left(29))
}

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NfsFault {
    /// A reply to NULL or GETATTR.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The call failed, or its results cannot be read.
    #[error("{procedure}: {error}")]
    Failed {
        /// The procedure.
        procedure: &'static str,
        /// Why.
        error: NfsError,
    },
    /// Two replies for one handle describe different files.
    #[error("GETATTR told of file {found}, and before of file {before}, for one handle")]
    AnotherFile {
        /// The file's number in this reply.
        found: u64,
        /// The file's number in the first reply.
        before: u64,
    },
    /// A name has another handle than before.
    #[error("LOOKUP gave another handle for a name than before")]
    AnotherHandle,
    /// Less was read or written than asked for.
    #[error("{procedure} of {asked} bytes at {offset} moved {moved}")]
    Short {
        /// READ or WRITE.
        procedure: &'static str,
        /// Where.
        offset: u64,
        /// Bytes asked for.
        asked: u32,
        /// Bytes moved.
        moved: u32,
    },
    /// Other data than were written.
    #[error("READ at {offset} gave other bytes than the file has")]
    Data {
        /// Where.
        offset: u64,
    },
    /// The verifier of WRITE and COMMIT changed.
    #[error(
        "the verifier of WRITE and COMMIT changed: the server was restarted, or lost data that were not committed"
    )]
    Verifier,
}

impl NfsFault {
    /// Whether it is an answer of a server that works: a refusal or an error status.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Reply(error) | Self::Failed { error: NfsError::Reply(error), .. } => {
                matches!(error, ReplyError::Refused(_) | ReplyError::GetAttr(_))
            }
            Self::Failed { error, .. } => matches!(error, NfsError::Refused(_) | NfsError::Status(_)),
            _ => false,
        }
    }
}

/// A call of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The same call as all others, with the arguments of this index.
    Listed(usize),
    /// A block.
    Block(u32),
    /// COMMIT.
    Commit,
}

/// A procedure, and what replies have told so far.
pub(crate) struct Nfs {
    asked: NfsProcedure,
    /// Encoded arguments: of each call of `Step::Listed`; else the handle of the file alone.
    args: Vec<Vec<u8>>,
    /// The file number in the first reply for each handle of GETATTR.
    files: Vec<Option<u64>>,
    verifier: Option<[u8; NFS3_WRITEVERFSIZE]>,
}

impl Nfs {
    pub(crate) fn new(asked: NfsProcedure) -> Self {
        let args = match &asked {
            NfsProcedure::Null => vec![Vec::new()],
            NfsProcedure::GetAttr { handles } => {
                handles.iter().map(|handle| handle_arguments(handle)).collect()
            }
            NfsProcedure::Lookup { dir, names } => {
                let args = |(name, _): &(Vec<u8>, _)| {
                    let mut args = handle_arguments(dir);
                    write_opaque(name, &mut args);
                    args
                };
                names.iter().map(args).collect()
            }
            NfsProcedure::Read { blocks, .. } | NfsProcedure::Write { blocks, .. } => {
                vec![handle_arguments(&blocks.handle)]
            }
        };
        let files = vec![None; args.len()];
        Self { asked, args, files, verifier: None }
    }

    fn step(&self, id: u32) -> Step {
        let sequence = id >> SLOT_BITS;
        match &self.asked {
            NfsProcedure::Null => Step::Listed(0),
            NfsProcedure::GetAttr { .. } | NfsProcedure::Lookup { .. } => {
                Step::Listed(sequence as usize % self.args.len())
            }
            NfsProcedure::Read { blocks, .. } => Step::Block(sequence % blocks.count),
            NfsProcedure::Write { blocks, writes_per_commit, .. } => {
                let (turn, at) = (sequence / (writes_per_commit + 1), sequence % (writes_per_commit + 1));
                if at == *writes_per_commit {
                    Step::Commit
                } else {
                    Step::Block((turn * writes_per_commit + at) % blocks.count)
                }
            }
        }
    }

    /// The procedure of a call.
    pub(crate) fn procedure(&self, id: u32) -> u32 {
        (match self.asked {
            NfsProcedure::Null => NFS_PROGRAM::NFSPROC3_NULL,
            NfsProcedure::GetAttr { .. } => NFS_PROGRAM::NFSPROC3_GETATTR,
            NfsProcedure::Lookup { .. } => NFS_PROGRAM::NFSPROC3_LOOKUP,
            NfsProcedure::Read { .. } => NFS_PROGRAM::NFSPROC3_READ,
            NfsProcedure::Write { .. } if self.step(id) == Step::Commit => NFS_PROGRAM::NFSPROC3_COMMIT,
            NfsProcedure::Write { .. } => NFS_PROGRAM::NFSPROC3_WRITE,
        }) as u32
    }

    /// Length of a call's arguments, bytes.
    #[inline]
    pub(crate) fn args_len(&self, id: u32) -> usize {
        match self.step(id) {
            Step::Listed(at) => self.args[at].len(),
            Step::Commit => self.args[0].len() + RANGE_LEN,
            Step::Block(_) => self.args[0].len() + RANGE_LEN + self.data_len(),
        }
    }

    /// Length of the longest arguments, bytes.
    pub(crate) fn args_max(&self) -> usize {
        let listed = self.args.iter().map(Vec::len).max().unwrap_or(0);
        match self.asked {
            NfsProcedure::Read { .. } => listed + RANGE_LEN,
            NfsProcedure::Write { .. } => listed + RANGE_LEN + self.data_len(),
            _ => listed,
        }
    }

    /// Bytes that a WRITE has behind the range.
    fn data_len(&self) -> usize {
        match &self.asked {
            NfsProcedure::Write { blocks, .. } => {
                let len = blocks.len as usize;
                4 + 4 + len + padding(len)
            }
            _ => 0,
        }
    }

    /// Length of the longest valid results, bytes.
    pub(crate) fn results_max(&self) -> usize {
        match &self.asked {
            NfsProcedure::Null => 0,
            NfsProcedure::GetAttr { .. } => GETATTR_RESULTS,
            NfsProcedure::Lookup { .. } => 4 + (4 + 64) + 2 * SOME_ATTRIBUTES,
            NfsProcedure::Read { blocks, .. } => {
                let len = blocks.len as usize;
                4 + SOME_ATTRIBUTES + 12 + len + padding(len)
            }
            NfsProcedure::Write { .. } => CHANGE_RESULTS + 4 + 4 + NFS3_WRITEVERFSIZE,
        }
    }

    /// Whether all calls have the same length.
    pub(crate) fn is_uniform(&self) -> bool {
        let Some(first) = self.args.first() else { return true };
        !matches!(self.asked, NfsProcedure::Write { .. })
            && self.args.iter().all(|args| args.len() == first.len())
    }

    /// Writes the arguments of a call, [`args_len`](Self::args_len) bytes. `number` is that of a block's pattern.
    #[inline]
    pub(crate) fn write_args(&self, id: u32, number: u64, args: &mut [u8]) {
        let step = self.step(id);
        let head = match step {
            Step::Listed(at) => &self.args[at],
            Step::Block(_) | Step::Commit => &self.args[0],
        };
        let (start, rest) = args.split_at_mut(head.len());
        start.copy_from_slice(head);
        let blocks = match &self.asked {
            NfsProcedure::Read { blocks, .. } | NfsProcedure::Write { blocks, .. } => blocks,
            _ => return,
        };
        let (range, rest) = rest.split_at_mut(RANGE_LEN);
        let (offset, count) = match step {
            Step::Block(at) => (blocks.offset(at), blocks.len),
            // All of the file.
            _ => (0, 0),
        };
        range[..8].copy_from_slice(&offset.to_be_bytes());
        range[8..].copy_from_slice(&count.to_be_bytes());
        let (NfsProcedure::Write { seed, .. }, Step::Block(_)) = (&self.asked, step) else { return };
        rest[..4].copy_from_slice(&(stable_how::UNSTABLE as u32).to_be_bytes());
        rest[4..8].copy_from_slice(&count.to_be_bytes());
        let (data, zeroes) = rest[8..].split_at_mut(count as usize);
        pattern::fill(*seed, number, data);
        zeroes.fill(0);
    }

    /// Checks a reply to a call. `number` is that of a block's pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub(crate) fn verify(&mut self, id: u32, number: u64, reply: &Reply<'_>) -> Result<(), NfsFault> {
        let step = self.step(id);
        let failed = |procedure| move |error: NfsError| NfsFault::Failed { procedure, error };
        let refused =
            |procedure| move |error| NfsFault::Failed { procedure, error: NfsError::Refused(error) };
        match (&self.asked, step) {
            (NfsProcedure::Null, _) => Ok(reply.verify_null()?),
            (NfsProcedure::GetAttr { .. }, Step::Listed(at)) => {
                let found = reply.verify_getattr()?.fileid;
                match *self.files[at].get_or_insert(found) {
                    before if before == found => Ok(()),
                    before => Err(NfsFault::AnotherFile { found, before }),
                }
            }
            (NfsProcedure::Lookup { names, .. }, Step::Listed(at)) => {
                let results = reply.outcome.map_err(refused("LOOKUP"))?;
                let handle = lookup_results(results).map_err(failed("LOOKUP"))?;
                if handle == names[at].1 { Ok(()) } else { Err(NfsFault::AnotherHandle) }
            }
            (NfsProcedure::Read { blocks, content }, Step::Block(at)) => {
                let results = reply.outcome.map_err(refused("READ"))?;
                let data = read_results(results, blocks.len).map_err(failed("READ"))?.data;
                blocks.moved("READ", at, data.len() as u32)?;
                let is_right = match content {
                    Content::Pattern(seed) => pattern::check(*seed, data) == Some(u64::from(at)),
                    Content::Sums(sums) => sums.get(at as usize) == Some(&block_sum(data)),
                };
                if is_right { Ok(()) } else { Err(NfsFault::Data { offset: blocks.offset(at) }) }
            }
            (NfsProcedure::Write { blocks, acknowledged, .. }, Step::Block(at)) => {
                let results = reply.outcome.map_err(refused("WRITE"))?;
                let written = write_results(results).map_err(failed("WRITE"))?;
                blocks.moved("WRITE", at, written.count)?;
                if let Some(last) = acknowledged.get(at as usize) {
                    last.store(number, Ordering::Relaxed);
                }
                self.verified(written.verifier)
            }
            (NfsProcedure::Write { .. }, _) => {
                let results = reply.outcome.map_err(refused("COMMIT"))?;
                self.verified(commit_results(results).map_err(failed("COMMIT"))?)
            }
            (_, Step::Block(_) | Step::Commit | Step::Listed(_)) => Ok(()),
        }
    }

    fn verified(&mut self, verifier: [u8; NFS3_WRITEVERFSIZE]) -> Result<(), NfsFault> {
        if *self.verifier.get_or_insert(verifier) == verifier { Ok(()) } else { Err(NfsFault::Verifier) }
    }
}

impl Blocks {
    /// Where a block begins.
    #[must_use]
    pub fn offset(&self, at: u32) -> u64 {
        u64::from(at) * u64::from(self.len)
    }

    fn moved(&self, procedure: &'static str, at: u32, moved: u32) -> Result<(), NfsFault> {
        let (offset, asked) = (self.offset(at), self.len);
        if moved == asked { Ok(()) } else { Err(NfsFault::Short { procedure, offset, asked, moved }) }
    }
}

#[cfg(test)]
mod tests;
