//! The connections of a worker by number. Connections that hold bytes are also ordered by when they last
//! sent or received.

/// Memory is allocated for this many connections at a time, so that an idle service needs none.
const CHUNK: usize = 256;

/// No connection.
const NONE: u32 = u32::MAX;

struct Cell<T> {
    entry: Option<T>,
    /// The previous and next connection in the order of those that hold bytes. In a free cell, `newer` is
    /// the number of the next free one.
    older: u32,
    newer: u32,
    holds: bool,
}

pub(crate) struct Table<T> {
    chunks: Vec<Box<[Cell<T>]>>,
    end: u32,
    free: u32,
    open: u32,
    /// The ends of the order of connections that hold bytes.
    oldest: u32,
    newest: u32,
}

impl<T> Table<T> {
    /// A table for at most `most` connections; memory is allocated as they are added.
    pub(crate) fn new(most: u32) -> Self {
        let chunks = Vec::with_capacity((most as usize).div_ceil(CHUNK));
        Self { chunks, end: 0, free: NONE, open: 0, oldest: NONE, newest: NONE }
    }

    pub(crate) const fn open(&self) -> u32 {
        self.open
    }

    /// One more than the highest number in use so far.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    /// The number that the next [`Self::insert`] will use.
    pub(crate) fn next_number(&mut self) -> u32 {
        if self.free == NONE {
            let first = self.end;
            self.end += CHUNK as u32;
            let cell = |number| Cell { entry: None, older: NONE, newer: number, holds: false };
            let last = self.end - 1;
            self.chunks.push((first..self.end).map(|n| cell(if n == last { NONE } else { n + 1 })).collect());
            self.free = first;
        }
        self.free
    }

    /// Inserts a connection under [`Self::next_number`].
    pub(crate) fn insert(&mut self, entry: T) {
        let number = self.next_number();
        let cell = self.cell(number);
        cell.entry = Some(entry);
        self.free = std::mem::replace(&mut self.cell(number).newer, NONE);
        self.open += 1;
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(number as usize / CHUNK)?;
        chunk[number as usize % CHUNK].entry.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        self.holds_none(number);
        let free = self.free;
        let cell = self.cell(number);
        cell.newer = free;
        let entry = cell.entry.take();
        self.free = number;
        self.open -= 1;
        entry
    }

    /// Records that a connection holds bytes of which some have just moved: it becomes the newest in the
    /// order.
    pub(crate) fn holds_some(&mut self, number: u32) {
        if number == self.newest {
            return;
        }
        self.holds_none(number);
        let before = std::mem::replace(&mut self.newest, number);
        let cell = self.cell(number);
        (cell.older, cell.newer, cell.holds) = (before, NONE, true);
        if before == NONE {
            self.oldest = number;
        } else {
            self.cell(before).newer = number;
        }
    }

    pub(crate) fn holds_none(&mut self, number: u32) {
        let cell = self.cell(number);
        if !std::mem::take(&mut cell.holds) {
            return;
        }
        let (older, newer) = (cell.older, cell.newer);
        (cell.older, cell.newer) = (NONE, NONE);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.cell(older).newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.cell(newer).older = older;
        }
    }

    /// The connection whose bytes have waited longest.
    pub(crate) const fn longest_held(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    fn cell(&mut self, number: u32) -> &mut Cell<T> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}
