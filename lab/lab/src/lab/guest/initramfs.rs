//! Writes a cpio archive (format `newc`) that the Linux kernel unpacks at boot, to any writer.
//!
//! Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
const LINK: u32 = 0o120_777;
const TRAILER: &str = "TRAILER!!!";

/// An entry of the archive. Names are relative to the root; missing parents of files are added.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<'a> {
    Directory(&'a str),
    File { name: &'a str, bytes: &'a [u8] },
    Program { name: &'a str, bytes: &'a [u8] },
    Link { name: &'a str, to: &'a str },
    Device { name: &'a str, major: u32, minor: u32 },
}

/// An archive being written.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
    written: usize,
    inode: u32,
    directories: Vec<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, written: 0, inode: 0, directories: Vec::new() }
    }

    pub(super) fn add(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        match *entry {
            Entry::Directory(name) => self.directory(name),
            Entry::File { name, bytes } => self.file(name, FILE, (0, 0), bytes),
            Entry::Program { name, bytes } => self.file(name, PROGRAM, (0, 0), bytes),
            Entry::Link { name, to } => self.file(name, LINK, (0, 0), to.as_bytes()),
            Entry::Device { name, major, minor } => self.file(name, CHARACTER_DEVICE, (major, minor), &[]),
        }
    }

    /// Writes the trailer, without which the archive is invalid.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.record(TRAILER, 0, (0, 0), &[])?;
        self.out.flush()
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent)?;
        }
        if self.directories.iter().any(|known| known == name) {
            return Ok(());
        }
        self.directories.push(name.to_owned());
        self.record(name, DIRECTORY, (0, 0), &[])
    }

    fn file(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent)?;
        }
        self.record(name, mode, device, bytes)
    }

    /// Magic, thirteen numbers of eight hexadecimal digits, the name with a NUL, and the bytes; both padded to four.
    fn record(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{name} is too long for an initramfs"));
        let size = u32::try_from(bytes.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.inode += 1;
        let (links, owner, time, place, checksum) = (1, 0, 0, 0, 0);
        let fields = [
            self.inode, mode, owner, owner, links, time, size, place, place, device.0, device.1, name_size,
            checksum,
        ];
        let header = fields.iter().fold(String::from("070701"), |text, field| format!("{text}{field:08x}"));
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.align()?;
        self.put(bytes)?;
        self.align()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 4][..missing])
    }
}
