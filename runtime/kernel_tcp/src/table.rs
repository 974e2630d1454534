//! Where connections stand: places with numbers, made as they are needed, and the order in which those that hold bytes
//! last got rid of some.

/// Places made at once: an idle service has none, and a busy one allocates once in so many connections.
const CHUNK: usize = 256;

/// No place.
const NONE: u32 = u32::MAX;

struct Place<T> {
    entry: Option<T>,
    /// The next older and newer among those that hold bytes; of a free place, `newer` is the next free one.
    older: u32,
    newer: u32,
    holds: bool,
}

pub(crate) struct Table<T> {
    chunks: Vec<Box<[Place<T>]>>,
    places: u32,
    free: u32,
    open: u32,
    /// The ends of the order.
    oldest: u32,
    newest: u32,
}

impl<T> Table<T> {
    /// Room for `most` connections, made as they come.
    pub(crate) fn new(most: u32) -> Self {
        let chunks = Vec::with_capacity((most as usize).div_ceil(CHUNK));
        Self { chunks, places: 0, free: NONE, open: 0, oldest: NONE, newest: NONE }
    }

    pub(crate) const fn open(&self) -> u32 {
        self.open
    }

    /// One more than the highest number given out so far.
    pub(crate) const fn places(&self) -> u32 {
        self.places
    }

    /// The number that [`Self::insert`] would use.
    pub(crate) fn next_place(&mut self) -> u32 {
        if self.free == NONE {
            let first = self.places;
            self.places += CHUNK as u32;
            let place = |number| Place { entry: None, older: NONE, newer: number, holds: false };
            let last = self.places - 1;
            self.chunks
                .push((first..self.places).map(|n| place(if n == last { NONE } else { n + 1 })).collect());
            self.free = first;
        }
        self.free
    }

    /// Puts it at the place that [`Self::next_place`] says.
    pub(crate) fn insert(&mut self, entry: T) {
        let number = self.next_place();
        let place = self.place(number);
        place.entry = Some(entry);
        self.free = std::mem::replace(&mut self.place(number).newer, NONE);
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
        let place = self.place(number);
        place.newer = free;
        let entry = place.entry.take();
        self.free = number;
        self.open -= 1;
        entry
    }

    /// It holds bytes, and some have just moved: it is the newest of those now.
    pub(crate) fn holds_some(&mut self, number: u32) {
        if number == self.newest {
            return;
        }
        self.holds_none(number);
        let before = std::mem::replace(&mut self.newest, number);
        let place = self.place(number);
        (place.older, place.newer, place.holds) = (before, NONE, true);
        if before == NONE {
            self.oldest = number;
        } else {
            self.place(before).newer = number;
        }
    }

    pub(crate) fn holds_none(&mut self, number: u32) {
        let place = self.place(number);
        if !std::mem::take(&mut place.holds) {
            return;
        }
        let (older, newer) = (place.older, place.newer);
        (place.older, place.newer) = (NONE, NONE);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.place(older).newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.place(newer).older = older;
        }
    }

    /// The one whose bytes have not moved for longest.
    pub(crate) const fn longest_held(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    fn place(&mut self, number: u32) -> &mut Place<T> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}
