//! The files that a measurement reads and writes: made before it, verified and removed after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use twinpath_load::{Blocks, Content, NfsProcedure, block_sum, check_block, fill_block};
use twinpath_rpc::client::nfs::{commit_results, read_results, write_results};
use twinpath_rpc::nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, CREATE3resfail, CREATE3resok, MKDIR3args, MKDIR3resfail, MKDIR3resok,
    NFS_PROGRAM, Nfs3Option, READ3args, REMOVE3args, REMOVE3resfail, REMOVE3resok, RMDIR3args, RMDIR3resfail,
    RMDIR3resok, WRITE3args, createhow3, diropargs3, filename3, nfs_fh3, sattr3, stable_how,
};
use twinpath_rpc::nfs3_types::xdr_codec::{Opaque, Pack};

use super::session::{NFS, Session};
use super::walk::{Found, look_up};

/// A file has fewer blocks than this: their numbers have 32 bits.
const BLOCKS_MAX: u64 = 1 << 24;

/// Bytes of a call and of a file.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) block: u32,
    pub(super) file: u64,
    /// Bytes of a WRITE that prepares the file, at least a block.
    pub(super) write_max: u32,
}

/// A directory of the export's root with a file for each thread.
pub(super) struct Scratch {
    root: Vec<u8>,
    name: String,
    dir: Vec<u8>,
    files: Vec<File>,
}

struct File {
    name: String,
    blocks: Blocks,
    seed: u64,
    /// For each block, the number of the pattern that was written last.
    written: Arc<[AtomicU64]>,
}

impl Scratch {
    /// Makes files of patterns, each block with its own number. What was made is removed if that fails.
    pub(super) fn create(
        session: &mut Session,
        root: &[u8],
        count: u32,
        seed: u64,
        sizes: Sizes,
    ) -> anyhow::Result<Self> {
        let name = format!(".twinpath-bench-{seed:016x}");
        let args = MKDIR3args { where_: place(root, &name), attributes: attributes(0o700) };
        let made = session.nfs::<MKDIR3resok, MKDIR3resfail>(NFS_PROGRAM::NFSPROC3_MKDIR, &args)?;
        let dir = handle_of(session, made.obj, root, &name)?;
        let mut scratch = Self { root: root.to_vec(), name, dir, files: Vec::new() };
        for index in 0..count {
            let filled = scratch.add(session, index, seed.wrapping_add(u64::from(index)), sizes);
            if let Err(error) = filled {
                // The first error is the one to tell.
                let _ = scratch.remove(session);
                return Err(error);
            }
        }
        Ok(scratch)
    }

    fn add(&mut self, session: &mut Session, index: u32, seed: u64, sizes: Sizes) -> anyhow::Result<()> {
        let name = format!("file-{index}");
        let how = createhow3::GUARDED(attributes(0o600));
        let args = CREATE3args { where_: place(&self.dir, &name), how };
        let made = session.nfs::<CREATE3resok, CREATE3resfail>(NFS_PROGRAM::NFSPROC3_CREATE, &args)?;
        let handle = handle_of(session, made.obj, &self.dir, &name)?;
        let count = sizes.count()?;
        let blocks = Blocks { handle, len: sizes.block, count };
        let written = (0..u64::from(count)).map(AtomicU64::new).collect();
        self.files.push(File { name, blocks, seed, written });
        match self.files.last() {
            Some(file) => file.fill(session, sizes.write_max),
            None => Ok(()),
        }
    }

    pub(super) fn reads(&self) -> Vec<NfsProcedure> {
        let read = |file: &File| NfsProcedure::Read {
            blocks: file.blocks.clone(),
            content: Content::Pattern(file.seed),
        };
        self.files.iter().map(read).collect()
    }

    pub(super) fn writes(&self, writes_per_commit: Option<u32>) -> Vec<NfsProcedure> {
        let write = |file: &File| NfsProcedure::Write {
            blocks: file.blocks.clone(),
            seed: file.seed,
            writes_per_commit: writes_per_commit.unwrap_or(file.blocks.count),
            acknowledged: Arc::clone(&file.written),
        };
        self.files.iter().map(write).collect()
    }

    /// Reads all blocks, and compares them with what was acknowledged. If calls were lost, a block may have the data of a
    /// later one.
    ///
    /// # Errors
    /// A block has other data.
    pub(super) fn verify(&self, session: &mut Session, was_all_answered: bool) -> anyhow::Result<()> {
        let (mut wrong, mut first, mut all) = (0, None, 0);
        for file in &self.files {
            for (at, written) in (0..file.blocks.count).zip(file.written.iter()) {
                let found = read_block(session, &file.blocks, at, |data| check_block(file.seed, data))?;
                let is_right = match found {
                    Some(number) => !was_all_answered || number == written.load(Ordering::Relaxed),
                    None => false,
                };
                all += 1;
                if !is_right {
                    wrong += 1;
                    first.get_or_insert(file.blocks.offset(at));
                }
            }
        }
        let at = first.unwrap_or(0);
        ensure!(
            wrong == 0,
            "read back, {wrong} of {all} blocks have other bytes than were acknowledged, the first at {at}"
        );
        Ok(())
    }

    /// Removes all of it.
    pub(super) fn remove(&self, session: &mut Session) -> anyhow::Result<()> {
        let left = || format!("cannot remove {} from the export", self.name);
        for file in &self.files {
            let object = place(&self.dir, &file.name);
            session
                .nfs::<REMOVE3resok, REMOVE3resfail>(NFS_PROGRAM::NFSPROC3_REMOVE, &REMOVE3args { object })
                .with_context(left)?;
        }
        let object = place(&self.root, &self.name);
        session
            .nfs::<RMDIR3resok, RMDIR3resfail>(NFS_PROGRAM::NFSPROC3_RMDIR, &RMDIR3args { object })
            .with_context(left)?;
        Ok(())
    }
}

impl Sizes {
    /// Blocks of a file.
    fn count(self) -> anyhow::Result<u32> {
        let count = self.file / u64::from(self.block);
        ensure!(
            (1..BLOCKS_MAX).contains(&count),
            "a file of {} bytes has {count} blocks of {}: 1 to {BLOCKS_MAX} are possible",
            self.file,
            self.block
        );
        Ok(count as u32)
    }
}

impl File {
    fn fill(&self, session: &mut Session, write_max: u32) -> anyhow::Result<()> {
        let (len, file) = (self.blocks.len as usize, handle(&self.blocks.handle));
        let together = (write_max as usize / len).max(1);
        let mut data = vec![0; together * len];
        let mut number = 0;
        while number < self.blocks.count {
            let offset = self.blocks.offset(number);
            let mut used = 0;
            for block in data.chunks_exact_mut(len) {
                if number < self.blocks.count {
                    fill_block(self.seed, u64::from(number), block);
                    number += 1;
                    used += len;
                }
            }
            let data = &data[..used];
            let args = WRITE3args {
                file: file.clone(),
                offset,
                count: used as u32,
                stable: stable_how::UNSTABLE,
                data: Opaque::borrowed(data),
            };
            let done =
                call(session, NFS_PROGRAM::NFSPROC3_WRITE, &args, |results| Ok(write_results(results)?))?;
            ensure!(done.count as usize == used, "WRITE of {used} bytes moved {}", done.count);
        }
        let args = COMMIT3args { file, offset: 0, count: 0 };
        call(session, NFS_PROGRAM::NFSPROC3_COMMIT, &args, |results| Ok(commit_results(results)?))?;
        Ok(())
    }
}

/// READ of a file that is there: what it has now is what must come.
pub(super) fn known(session: &mut Session, found: &Found, sizes: Sizes) -> anyhow::Result<NfsProcedure> {
    ensure!(!found.is_directory, "--file names a directory: READ needs a file");
    ensure!(
        found.size >= u64::from(sizes.block),
        "the file has {} bytes, less than a READ of {}: choose a smaller --size or another file",
        found.size,
        sizes.block
    );
    let count = Sizes { file: sizes.file.min(found.size), ..sizes }.count()?;
    let blocks = Blocks { handle: found.handle.clone(), len: sizes.block, count };
    let sum = |at| read_block(session, &blocks, at, block_sum);
    let sums = (0..count).map(sum).collect::<anyhow::Result<_>>()?;
    Ok(NfsProcedure::Read { blocks, content: Content::Sums(sums) })
}

fn read_block<T>(
    session: &mut Session,
    blocks: &Blocks,
    at: u32,
    of: impl FnOnce(&[u8]) -> T,
) -> anyhow::Result<T> {
    let (offset, count) = (blocks.offset(at), blocks.len);
    let args = READ3args { file: handle(&blocks.handle), offset, count };
    call(session, NFS_PROGRAM::NFSPROC3_READ, &args, |results| {
        let data = read_results(results, count)?.data;
        ensure!(
            data.len() == count as usize,
            "{count} bytes at {offset} were asked for, {} came",
            data.len()
        );
        Ok(of(data))
    })
}

fn call<T>(
    session: &mut Session,
    procedure: NFS_PROGRAM,
    args: &impl Pack,
    decode: impl FnOnce(&[u8]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut packed = Vec::new();
    args.pack(&mut packed).context("cannot encode a call")?;
    session.call(NFS, procedure as u32, &packed, decode).with_context(|| super::session::name(procedure))
}

/// The handle of what was made. A server need not give it (RFC 1813, 3.3.8).
fn handle_of(
    session: &mut Session,
    made: Nfs3Option<nfs_fh3>,
    dir: &[u8],
    name: &str,
) -> anyhow::Result<Vec<u8>> {
    match made {
        Nfs3Option::Some(handle) => Ok(handle.data.to_vec()),
        Nfs3Option::None => Ok(look_up(session, dir, name.as_bytes())?.handle),
    }
}

fn handle(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

fn place<'a>(dir: &[u8], name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: handle(dir), name: filename3::from(name.as_bytes()) }
}

fn attributes(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}
