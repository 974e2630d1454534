//! The bytes of connections, and the memory that they lie in.
//!
//! A connection has buffers only while bytes are queued. Their memory comes from a pool of blocks, which bounds what
//! all connections hold together, and which gives a block back to the next connection without the allocator.

/// The smallest block, bytes.
const BLOCK_MIN: usize = 4 << 10;
/// The number of sizes: from 4 KiB to 8 MiB, each twice the one before.
const SIZES: usize = 12;
/// Free blocks that are kept for each size.
const FREE_MAX: usize = 64;

/// Memory for buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Box<[u8]>>; SIZES],
    /// Bytes of the free blocks.
    spare: u64,
    /// Bytes of the blocks in use, and their limit.
    used: u64,
    limit: u64,
}

impl Pool {
    pub(crate) fn new(limit: u64) -> Self {
        Self { free: Default::default(), spare: 0, used: 0, limit }
    }

    /// Bytes that connections hold.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the free blocks.
    #[cfg(test)]
    pub(crate) const fn spare(&self) -> u64 {
        self.spare
    }

    /// Whether there is memory for a small block.
    #[inline]
    pub(crate) const fn has_room(&self) -> bool {
        self.used + BLOCK_MIN as u64 <= self.limit
    }

    /// Whether less than a quarter of the memory is left: windows do not grow then.
    pub(crate) const fn is_short(&self) -> bool {
        self.used > self.limit / 4 * 3
    }

    /// A block of at least `len` bytes; `None` if the limit is reached, or no block is so large.
    #[inline]
    fn take(&mut self, len: usize) -> Option<Box<[u8]>> {
        let size = size_of_len(len);
        let bytes = BLOCK_MIN << size;
        if size >= SIZES || self.used + bytes as u64 > self.limit {
            return None;
        }
        self.used += bytes as u64;
        if let Some(block) = self.free[size].pop() {
            self.spare -= bytes as u64;
            return Some(block);
        }
        if self.used + self.spare > self.limit {
            self.purge();
        }
        Some(vec![0; bytes].into_boxed_slice())
    }

    #[inline]
    fn give(&mut self, block: Box<[u8]>) {
        if block.is_empty() {
            return;
        }
        let bytes = block.len() as u64;
        self.used -= bytes;
        let free = &mut self.free[size_of_len(block.len())];
        if free.len() < FREE_MAX && self.used + self.spare + bytes <= self.limit {
            self.spare += bytes;
            free.push(block);
        }
    }

    /// Gives the free blocks to the allocator: blocks of other sizes are asked for.
    #[cold]
    fn purge(&mut self) {
        self.free = Default::default();
        self.spare = 0;
    }

    /// Whether there is memory for `len` bytes that are no block.
    pub(crate) const fn has_bytes(&self, len: usize) -> bool {
        self.used + len as u64 <= self.limit
    }

    /// Counts `len` bytes that a connection holds beside its blocks.
    pub(crate) fn charge(&mut self, len: usize) {
        self.used += len as u64;
        if self.used + self.spare > self.limit {
            self.purge();
        }
    }

    /// They are held no more.
    pub(crate) const fn discharge(&mut self, len: usize) {
        self.used -= len as u64;
    }

    /// Sets the limit.
    pub(crate) const fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether there is a block for `len` bytes.
    #[inline]
    pub(crate) const fn has(&self, len: usize) -> bool {
        let size = size_of_len(len);
        size < SIZES && self.used + ((BLOCK_MIN << size) as u64) <= self.limit
    }
}

/// The index of the smallest block of `len` bytes or more.
#[inline]
const fn size_of_len(len: usize) -> usize {
    if len <= BLOCK_MIN {
        return 0;
    }
    let blocks = len.div_ceil(BLOCK_MIN);
    (usize::BITS - (blocks - 1).leading_zeros()) as usize
}

/// Bytes in a row: added at the end, removed at the beginning. No block is as long as the numbers reach.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    block: Box<[u8]>,
    head: u32,
    len: u32,
}

impl Buffer {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    const fn head(&self) -> usize {
        self.head as usize
    }

    /// Where its bytes end in the block.
    #[inline]
    const fn end(&self) -> usize {
        self.head() + self.len()
    }

    /// Bytes that fit behind its end as it is.
    #[inline]
    pub(crate) fn spare(&self) -> usize {
        self.block.len() - self.end()
    }

    /// The memory that it holds, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.block.len()
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block[self.head()..self.end()]
    }

    #[inline]
    pub(crate) fn range(&self, start: usize, len: usize) -> &[u8] {
        &self.block[self.head() + start..self.head() + start + len]
    }

    /// `count` bytes behind its end, which [`Self::commit`] adds. `None` if the pool has no memory for them.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize, pool: &mut Pool) -> Option<&mut [u8]> {
        if self.end() + count > self.block.len() {
            self.make_room(count, pool)?;
        }
        let end = self.end();
        Some(&mut self.block[end..end + count])
    }

    #[inline]
    pub(crate) fn commit(&mut self, count: usize) {
        self.len += count as u32;
        debug_assert!(self.end() <= self.block.len());
    }

    /// Writes bytes at a distance behind its end, without adding them.
    pub(crate) fn write_ahead(&mut self, distance: usize, bytes: &[u8], pool: &mut Pool) -> bool {
        match self.reserve(distance + bytes.len(), pool) {
            Some(room) => {
                room[distance..].copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Moves the bytes to the beginning of a block that has room for `count` more: of this one, if it is at most half
    /// full. So each byte is moved a bounded number of times.
    #[cold]
    fn make_room(&mut self, count: usize, pool: &mut Pool) -> Option<()> {
        let needed = self.len() + count;
        if needed <= self.block.len() && self.len <= self.head {
            // What is written ahead moves along.
            let end = self.block.len();
            self.block.copy_within(self.head()..end, 0);
            self.head = 0;
            return Some(());
        }
        let spare = if self.block.is_empty() { 0 } else { needed / 2 };
        let mut block = pool.take(needed + spare).or_else(|| pool.take(needed))?;
        let kept = self.block.len() - self.head();
        let kept = kept.min(block.len());
        block[..kept].copy_from_slice(&self.block[self.head()..self.head() + kept]);
        pool.give(core::mem::replace(&mut self.block, block));
        self.head = 0;
        Some(())
    }

    /// Removes bytes at the beginning.
    #[inline]
    pub(crate) fn discard(&mut self, count: usize) {
        let count = count.min(self.len()) as u32;
        self.head += count;
        self.len -= count;
    }

    /// Removes all bytes, and keeps the memory.
    #[inline]
    pub(crate) const fn clear(&mut self) {
        (self.head, self.len) = (0, 0);
    }

    /// Gives its memory back, with the bytes.
    #[inline]
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give(core::mem::take(&mut self.block));
        (self.head, self.len) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_at_least_as_large_as_asked() {
        for (len, size) in [(0, 0), (1, 0), (4096, 0), (4097, 1), (8192, 1), (8193, 2), (1 << 20, 8)] {
            assert_eq!(size_of_len(len), size, "{len}");
        }
    }

    #[test]
    fn the_pool_has_a_limit_and_gets_all_back() {
        let mut pool = Pool::new(20 << 10);
        let mut buffers: Vec<Buffer> = (0..5).map(|_| Buffer::default()).collect();
        for buffer in &mut buffers {
            assert!(buffer.reserve(100, &mut pool).is_some());
        }
        assert!(Buffer::default().reserve(1, &mut pool).is_none());
        for buffer in &mut buffers {
            buffer.release(&mut pool);
        }
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn bytes_are_kept_in_order_whatever_moves() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut pool = Pool::new(1 << 30);
        let mut buffer = Buffer::default();
        let (mut written, mut read) = (0_u64, 0_u64);
        for _ in 0..20_000 {
            let count = random.usize(..3000);
            let room = buffer.reserve(count, &mut pool).expect("memory");
            for byte in room {
                *byte = written as u8;
                written += 1;
            }
            buffer.commit(count);
            // An octet ahead of the end is there when the end comes by.
            assert!(buffer.write_ahead(5, &[(written + 5) as u8], &mut pool));
            let gone = random.usize(..=buffer.len());
            for byte in &buffer.bytes()[..gone] {
                assert_eq!(*byte, read as u8);
                read += 1;
            }
            buffer.discard(gone);
            let room = buffer.reserve(6, &mut pool).expect("memory");
            assert_eq!(room[5], (written + 5) as u8);
        }
    }
}
