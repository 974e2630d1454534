//! How far each path to each peer has come.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::words::Words;
use crate::{from_bits, to_bits};

/// Paths whose positions outlive the process; those beyond begin anew.
pub const PATHS_KEPT: usize = 4096;

/// Words of a record: addresses 4, path and whether it is used 1, next out 1, next in 1, the peer's life 1, what is agreed 1.
const RECORD: usize = 9;
/// Words before the first record: this host's life.
const HEAD: usize = 1;

/// A path's position: see `twinpath_rds::Position`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The place of the next message to be sent.
    pub next_out: u64,
    /// The place that the peer's next message has.
    pub next_in: u64,
    /// The peer's life.
    pub peer_generation: Option<u32>,
    /// How many paths there are.
    pub paths: u16,
    /// The peer's ports name the path.
    pub port_path: bool,
}

/// The table.
#[derive(Debug)]
pub struct Positions {
    words: Words,
    fd: OwnedFd,
    known: BTreeMap<(IpAddr, IpAddr, u16), usize>,
}

impl Positions {
    /// A table without paths, of a host's new life.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn new(generation: u32) -> Result<Self, Errno> {
        let fd = memfd_create("twinpath-rds-positions", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, ((HEAD + PATHS_KEPT * RECORD) * 8) as u64)?;
        let words = Words::of_fd(&fd, HEAD + PATHS_KEPT * RECORD, 0)?;
        words.set(0, generation.into());
        Ok(Self { words, fd, known: BTreeMap::new() })
    }

    /// The table of a former process.
    ///
    /// # Errors
    /// EINVAL: it is none. What the kernel returns.
    pub fn of_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let words = Words::of_fd(&fd, HEAD + PATHS_KEPT * RECORD, 0)?;
        let mut known = BTreeMap::new();
        for number in 0..PATHS_KEPT {
            let at = HEAD + number * RECORD;
            let path = words.get(at + 4);
            if path == 0 {
                break;
            }
            let address = |word| from_bits(words.get(at + word), words.get(at + word + 1));
            known.insert((address(0), address(2), (path - 1) as u16), number);
        }
        Ok(Self { words, fd, known })
    }

    /// What keeps it alive.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// This host's life.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.words.get(0) as u32
    }

    /// All paths: local address, peer's address, path, position.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, IpAddr, u16, Record)> {
        self.known.iter().map(|(&(local, remote, path), &number)| (local, remote, path, self.record(number)))
    }

    /// A path's position.
    #[must_use]
    pub fn get(&self, local: IpAddr, remote: IpAddr, path: u16) -> Option<Record> {
        self.known.get(&(local, remote, path)).map(|number| self.record(*number))
    }

    fn record(&self, number: usize) -> Record {
        let word = |word| self.words.get(HEAD + number * RECORD + word);
        let agreed = word(8);
        Record {
            next_out: word(5),
            next_in: word(6),
            peer_generation: word(7).checked_sub(1).map(|generation| generation as u32),
            paths: (agreed >> 1) as u16,
            port_path: agreed & 1 != 0,
        }
    }

    /// Notes a path's position.
    pub fn set(&mut self, local: IpAddr, remote: IpAddr, path: u16, record: &Record) {
        let next = self.known.len();
        let number = match self.known.entry((local, remote, path)) {
            std::collections::btree_map::Entry::Occupied(known) => *known.get(),
            std::collections::btree_map::Entry::Vacant(_) if next == PATHS_KEPT => return,
            std::collections::btree_map::Entry::Vacant(new) => *new.insert(next),
        };
        let at = HEAD + number * RECORD;
        self.words.set(at + 5, record.next_out);
        self.words.set(at + 6, record.next_in);
        self.words.set(at + 7, record.peer_generation.map_or(0, |generation| u64::from(generation) + 1));
        self.words.set(at + 8, u64::from(record.paths) << 1 | u64::from(record.port_path));
        if number == next {
            for (word, address) in [(0, local), (2, remote)] {
                let bits = to_bits(address);
                self.words.set(at + word, (bits >> 64) as u64);
                self.words.set(at + word + 1, bits as u64);
            }
            // Now it is a record.
            self.words.set(at + 4, u64::from(path) + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_reads_what_was_noted() {
        let mut table = Positions::new(77).unwrap();
        let (local, peer) = ("10.0.0.1".parse().unwrap(), "fd00::2".parse().unwrap());
        let record = Record { next_out: 5, next_in: 6, peer_generation: Some(0), paths: 8, port_path: true };
        table.set(local, peer, 0, &record);
        table.set(local, peer, 7, &Record { next_in: 9, ..Record::default() });
        table.set(local, peer, 0, &Record { next_out: 50, ..record });
        let next = Positions::of_fd(table.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(next.generation(), 77);
        let expected = [
            (local, peer, 0, Record { next_out: 50, ..record }),
            (local, peer, 7, Record { next_in: 9, ..Record::default() }),
        ];
        assert_eq!(next.iter().collect::<Vec<_>>(), expected);
        let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Positions::of_fd(other).err(), Some(Errno::INVAL));
    }
}
