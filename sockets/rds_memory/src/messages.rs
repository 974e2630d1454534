//! The messages of a program that TCP has not acknowledged.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::words::Words;
use crate::{from_bits, to_bits};

/// Messages of a program.
const ENTRIES: usize = 2048;
/// Words of an entry: state 1, receiver's address 2, receiver's port and length 1, where 1, place 1, number 1.
const ENTRY: usize = 7;
/// Words before the first entry: bound to 3, connected to 3, limits 1, number of the staged message 1, of the last one that is kept 1.
const HEAD: usize = 9;
const BOUND: usize = 0;
const CONNECTED: usize = 3;
const LIMITS: usize = 6;
const STAGED: usize = 7;
const KEPT: usize = 8;
/// Bytes for a message that is received from the program: its head and its payload.
const STAGE: usize = (1 << 20) + 4096;
/// Bytes for the payloads of those that are kept.
const ROOM: usize = 4 << 20;

const FREE: u64 = 0;
const WAITING: u64 = 1;
const PLACED: u64 = 2;

/// A message's number among those of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(usize);

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The path.
    pub path: u16,
    /// The place on it.
    pub sequence: u64,
}

/// What is known of a socket besides its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Where it is bound.
    pub local: Option<SocketAddr>,
    /// Where it is connected.
    pub to: Option<SocketAddr>,
    /// Its limits, of what may be unacknowledged and of what may wait.
    pub limits: [u32; 2],
}

/// The memory.
#[derive(Debug)]
pub struct Messages {
    words: Words,
    fd: OwnedFd,
    /// Free ranges of the room, by their start.
    free: BTreeMap<usize, usize>,
    free_entries: Vec<usize>,
}

impl Messages {
    /// Memory without messages.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn new() -> Result<Self, Errno> {
        let fd = memfd_create("twinpath-rds-messages", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, ((HEAD + ENTRIES * ENTRY) * 8 + STAGE + ROOM) as u64)?;
        Self::of_fd(fd)
    }

    /// The memory of a former process.
    ///
    /// # Errors
    /// EINVAL: it is none. What the kernel returns.
    pub fn of_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let words = Words::of_fd(&fd, HEAD + ENTRIES * ENTRY, STAGE + ROOM)?;
        let mut kept =
            Self { words, fd, free: BTreeMap::from([(0, ROOM)]), free_entries: (0..ENTRIES).rev().collect() };
        let used: Vec<_> = (0..ENTRIES).filter(|entry| kept.word(*entry, 0) != FREE).collect();
        for entry in &used {
            let (start, len) = kept.range(*entry);
            kept.take_range(start, len).ok_or(Errno::INVAL)?;
        }
        kept.free_entries.retain(|entry| !used.contains(entry));
        Ok(kept)
    }

    /// What keeps it alive.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What is known of the socket.
    #[must_use]
    pub fn state(&self) -> State {
        let address = |at: usize| {
            let port = self.words.get(at + 2).checked_sub(1)? as u16;
            Some(SocketAddr::new(from_bits(self.words.get(at), self.words.get(at + 1)), port))
        };
        let limits = self.words.get(LIMITS);
        State {
            local: address(BOUND),
            to: address(CONNECTED),
            limits: [limits as u32, (limits >> 32) as u32],
        }
    }

    /// Notes what is known of the socket.
    pub fn set_state(&self, state: &State) {
        for (at, address) in [(BOUND, state.local), (CONNECTED, state.to)] {
            let Some(address) = address else { continue };
            let bits = to_bits(address.ip());
            self.words.set(at, (bits >> 64) as u64);
            self.words.set(at + 1, bits as u64);
            self.words.set(at + 2, u64::from(address.port()) + 1);
        }
        self.words.set(LIMITS, u64::from(state.limits[0]) | u64::from(state.limits[1]) << 32);
    }

    /// Receives a message of the program by `receive`, which writes it whole or not at all, and returns its length. It is
    /// staged until [`Self::keep`] or [`Self::unstage`].
    ///
    /// # Errors
    /// What `receive` returns.
    pub fn stage(&mut self, receive: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
        // Before it has its number: a former message's head must not be taken for this one's.
        self.words.bytes_mut(0, STAGE)[0] = 0;
        self.words.set(STAGED, self.words.get(KEPT) + 1);
        receive(self.words.bytes_mut(0, STAGE))
    }

    /// The staged message, of that length.
    #[must_use]
    pub fn staged(&self, len: usize) -> &[u8] {
        self.words.bytes(0, len.min(STAGE))
    }

    /// The beginning of a message that a former process had received and not kept; the first byte is 0 if there is none.
    #[must_use]
    pub fn left(&self) -> &[u8] {
        // It was kept, and the process ended before it could say so.
        let number = self.words.get(STAGED);
        let is_kept = number <= self.words.get(KEPT)
            || (0..ENTRIES).any(|entry| self.word(entry, 0) != FREE && self.word(entry, 6) == number);
        self.words.bytes(if is_kept { STAGE } else { 0 }, if is_kept { 0 } else { STAGE })
    }

    /// What is staged is done with.
    pub fn unstage(&mut self) {
        self.words.set(KEPT, self.words.get(STAGED));
    }

    /// Keeps the payload of the staged message, which lies there. `None`: there is no room, and it stays staged.
    pub fn keep(&mut self, to: SocketAddr, start: usize, len: usize) -> Option<Entry> {
        let entry = *self.free_entries.last()?;
        let (&at, _) = self.free.iter().find(|(_, room)| **room >= len)?;
        self.take_range(at, len)?;
        self.free_entries.pop();
        let (stage, room) = self.words.bytes_mut(0, STAGE + ROOM).split_at_mut(STAGE);
        room[at..at + len].copy_from_slice(stage.get(start..start + len)?);
        let bits = to_bits(to.ip());
        let fields =
            [(bits >> 64) as u64, bits as u64, u64::from(to.port()) << 32 | len as u64, at as u64, 0];
        for (number, field) in fields.into_iter().enumerate() {
            self.set_word(entry, number + 1, field);
        }
        self.set_word(entry, 6, self.words.get(STAGED));
        self.set_word(entry, 0, WAITING);
        self.unstage();
        Some(Entry(entry))
    }

    /// The message has a place from now on.
    pub fn place(&self, entry: Entry, placed: Placed) {
        // 16 bits of path beside 48 bits of place: 2^48 messages are 8 years at a million in a second.
        self.set_word(entry.0, 5, u64::from(placed.path) << 48 | placed.sequence & ((1 << 48) - 1));
        self.set_word(entry.0, 0, PLACED);
    }

    /// The message is done with.
    pub fn release(&mut self, entry: Entry) {
        let (start, len) = self.range(entry.0);
        self.set_word(entry.0, 0, FREE);
        self.free_entries.push(entry.0);
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + len);
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(room) = self.free.remove(&end) {
            end += room;
        }
        self.free.insert(start, end - start);
    }

    /// The payload of a message.
    #[must_use]
    pub fn payload(&self, entry: Entry) -> &[u8] {
        let (start, len) = self.range(entry.0);
        self.words.bytes(STAGE + start, len)
    }

    /// The receiver of a message.
    #[must_use]
    pub fn to(&self, entry: Entry) -> SocketAddr {
        let address = from_bits(self.word(entry.0, 1), self.word(entry.0, 2));
        SocketAddr::new(address, (self.word(entry.0, 3) >> 32) as u16)
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free_entries.len() == ENTRIES
    }

    /// Messages that a former process has kept, with their places; in the order in which the program has sent them.
    #[must_use]
    pub fn kept(&self) -> Vec<(Entry, Option<Placed>)> {
        let used = (0..ENTRIES).filter(|entry| self.word(*entry, 0) != FREE);
        let mut kept: Vec<_> = used
            .map(|entry| {
                let place = self.word(entry, 5);
                let placed = Placed { path: (place >> 48) as u16, sequence: place & ((1 << 48) - 1) };
                (self.word(entry, 6), Entry(entry), (self.word(entry, 0) == PLACED).then_some(placed))
            })
            .collect();
        kept.sort_by_key(|(number, ..)| *number);
        kept.into_iter().map(|(_, entry, placed)| (entry, placed)).collect()
    }

    fn word(&self, entry: usize, word: usize) -> u64 {
        self.words.get(HEAD + entry * ENTRY + word)
    }

    fn set_word(&self, entry: usize, word: usize, value: u64) {
        self.words.set(HEAD + entry * ENTRY + word, value);
    }

    fn range(&self, entry: usize) -> (usize, usize) {
        (self.word(entry, 4) as usize, self.word(entry, 3) as u32 as usize)
    }

    /// Takes a range out of the free ones; `None`: it is not free.
    fn take_range(&mut self, start: usize, len: usize) -> Option<()> {
        if len == 0 {
            return Some(());
        }
        let (&before, &room) = self.free.range(..=start).next_back()?;
        let end = start.checked_add(len).filter(|end| *end <= before + room)?;
        self.free.remove(&before);
        if before < start {
            self.free.insert(before, start - before);
        }
        if end < before + room {
            self.free.insert(end, before + room - end);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(messages: &mut Messages, text: &[u8]) {
        let receive = |stage: &mut [u8]| {
            stage[..text.len()].copy_from_slice(text);
            Ok(text.len())
        };
        assert_eq!(messages.stage(receive), Ok(text.len()));
    }

    fn next_life(messages: &Messages) -> Messages {
        Messages::of_fd(messages.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn the_next_process_has_each_message_once_wherever_the_former_one_was_killed() {
        let to: SocketAddr = "10.0.0.2:7".parse().unwrap();
        let mut messages = Messages::new().unwrap();
        assert!(messages.left().first() == Some(&0) || messages.left().is_empty());
        stage(&mut messages, b"head-first");
        assert_eq!(&next_life(&messages).left()[..10], b"head-first", "received, not kept");
        let first = messages.keep(to, 5, 5).unwrap();
        assert!(next_life(&messages).left().is_empty());
        assert_eq!(next_life(&messages).kept(), [(first, None)]);
        // Killed between the two stores of `keep`.
        messages.words.set(KEPT, 0);
        assert!(next_life(&messages).left().is_empty());
        messages.unstage();
        let placed = Placed { path: 7, sequence: 1 << 40 };
        messages.place(first, placed);
        stage(&mut messages, b"head-second");
        let second = messages.keep(to, 5, 6).unwrap();
        let next = next_life(&messages);
        assert_eq!(next.kept(), [(first, Some(placed)), (second, None)]);
        assert_eq!((next.payload(first), next.payload(second)), (&b"first"[..], &b"second"[..]));
        assert_eq!(next.to(second), to);
        messages.release(first);
        assert_eq!(next_life(&messages).kept(), [(second, None)]);
        messages.release(second);
        assert!(messages.is_empty() && next_life(&messages).is_empty());
        assert_eq!(messages.free, BTreeMap::from([(0, ROOM)]));
    }

    #[test]
    fn a_message_without_room_stays_staged() {
        let to: SocketAddr = "10.0.0.2:7".parse().unwrap();
        let mut messages = Messages::new().unwrap();
        let mut kept = Vec::new();
        let len = 1 << 20;
        loop {
            assert_eq!(messages.stage(|_| Ok(len)), Ok(len));
            match messages.keep(to, 0, len) {
                Some(entry) => kept.push(entry),
                None => break,
            }
        }
        assert_eq!(kept.len(), 4);
        messages.release(kept[1]);
        assert!(messages.keep(to, 0, len).is_some());
        let state = State { local: Some(to), to: None, limits: [1, 2] };
        messages.set_state(&state);
        assert_eq!(next_life(&messages).state(), state);
    }
}
