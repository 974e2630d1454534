//! A tree of directories and files in memory, fixed once it is built, and the handles by which clients refer to its
//! nodes.

use nfs3_types::nfs3::{
    GETATTR3res, GETATTR3resok, Nfs3Result, fattr3, ftype3, nfsstat3, nfstime3, specdata3,
};
use nfs3_types::xdr_codec::Pack;

use crate::xdr::Reader;

/// Length of the results of a successful GETATTR: status and `fattr3` (RFC 1813, 3.3.1 and 2.6), bytes.
pub(super) const GETATTR_LEN: usize = 88;
/// Length of a handle: magic number, file system, generation, node, bytes.
pub const HANDLE_LEN: usize = 16;
/// The magic number that begins every handle.
const HANDLE_MARK: u32 = u32::from_be_bytes(*b"tpfh");
/// Maximum length of a name, bytes: the usual limit of file systems.
const NAME_MAX: usize = 255;
/// The time stamp of all nodes: 2026-01-01, 00:00 UTC. A fixed tree has no others.
const MADE: nfstime3 = nfstime3 { seconds: 1_767_225_600, nseconds: 0 };

/// A directory or file of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u32);

/// The root directory.
pub const ROOT: Node = Node(0);

/// Why a node cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The parent is a file.
    #[error("{0:?} would be in a file: only directories hold anything")]
    NotADirectory(String),
    /// The directory has an entry of that name.
    #[error("{0:?} is there already")]
    Taken(String),
    /// The name is not valid for a file.
    #[error("{0:?} is no name: it takes 1 to {NAME_MAX} bytes without /, and . and .. have a meaning")]
    Name(String),
}

/// The type of a node.
#[derive(Debug)]
enum Kind {
    Directory(Vec<Node>),
    File(Vec<u8>),
}

#[derive(Debug)]
struct Entry {
    name: String,
    kind: Kind,
}

/// Builds a [`Tree`].
///
/// ```
/// use twinpath_rpc::nfs3::{ROOT, TreeBuilder};
///
/// let mut builder = TreeBuilder::new(1, 1);
/// let notes = builder.directory(ROOT, "notes")?;
/// let file = builder.file(notes, "today", b"nothing yet\n")?;
/// let tree = builder.build();
/// assert_eq!(tree.path("/notes/today"), Some(file));
/// assert_eq!(tree.find(&tree.handle(file)), Ok(file));
/// # Ok::<(), twinpath_rpc::nfs3::TreeError>(())
/// ```
#[derive(Debug)]
pub struct TreeBuilder {
    filesystem: u32,
    generation: u32,
    entries: Vec<Entry>,
}

impl TreeBuilder {
    /// An empty root directory. Handles are valid for trees of the same file system and generation: change the
    /// generation if a node's number comes to mean another file.
    #[must_use]
    pub fn new(filesystem: u32, generation: u32) -> Self {
        let root = Entry { name: String::new(), kind: Kind::Directory(Vec::new()) };
        Self { filesystem, generation, entries: vec![root] }
    }

    /// Adds an empty directory.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn directory(&mut self, parent: Node, name: &str) -> Result<Node, TreeError> {
        self.add(parent, name, Kind::Directory(Vec::new()))
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn file(&mut self, parent: Node, name: &str, contents: &[u8]) -> Result<Node, TreeError> {
        self.add(parent, name, Kind::File(contents.to_vec()))
    }

    fn add(&mut self, parent: Node, name: &str, kind: Kind) -> Result<Node, TreeError> {
        if name.is_empty()
            || name.len() > NAME_MAX
            || name.contains(['/', '\0'])
            || matches!(name, "." | "..")
        {
            return Err(TreeError::Name(name.to_owned()));
        }
        let node = Node(self.entries.len() as u32);
        let Some(Kind::Directory(children)) = self.entries.get(parent.0 as usize).map(|entry| &entry.kind)
        else {
            return Err(TreeError::NotADirectory(name.to_owned()));
        };
        if children.iter().any(|child| self.entries[child.0 as usize].name == name) {
            return Err(TreeError::Taken(name.to_owned()));
        }
        if let Kind::Directory(children) = &mut self.entries[parent.0 as usize].kind {
            children.push(node);
        }
        self.entries.push(Entry { name: name.to_owned(), kind });
        Ok(node)
    }

    /// The tree, with every node's attributes encoded.
    #[must_use]
    pub fn build(self) -> Tree {
        let numbered = (0..).map(Node).zip(&self.entries);
        let attributes = numbered.map(|(node, entry)| self.encode(node, entry)).collect();
        Tree { filesystem: self.filesystem, generation: self.generation, entries: self.entries, attributes }
    }

    /// The encoded results of GETATTR for a node.
    fn encode(&self, node: Node, entry: &Entry) -> [u8; GETATTR_LEN] {
        let (type_, mode, nlink, size) = match &entry.kind {
            Kind::Directory(children) => {
                let inside = children.iter().map(|child| &self.entries[child.0 as usize].kind);
                let directories = inside.filter(|kind| matches!(kind, Kind::Directory(_))).count();
                // The links to a directory: its name, its own ".", and the ".." of each directory in it.
                (ftype3::NF3DIR, 0o755, 2 + directories as u32, children.len() as u64)
            }
            Kind::File(contents) => (ftype3::NF3REG, 0o644, 1, contents.len() as u64),
        };
        let obj_attributes = fattr3 {
            type_,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: u64::from(self.filesystem),
            // 0 is not a valid file number.
            fileid: u64::from(node.0) + 1,
            atime: MADE,
            mtime: MADE,
            ctime: MADE,
        };
        let mut encoded = [0; GETATTR_LEN];
        let result: GETATTR3res = Nfs3Result::Ok(GETATTR3resok { obj_attributes });
        let written = result.pack(&mut encoded.as_mut_slice());
        debug_assert!(matches!(written, Ok(GETATTR_LEN)), "fattr3 has a fixed length: {written:?}");
        encoded
    }
}

/// A tree that is being served.
#[derive(Debug)]
pub struct Tree {
    filesystem: u32,
    generation: u32,
    entries: Vec<Entry>,
    /// The encoded results of GETATTR, by node.
    attributes: Vec<[u8; GETATTR_LEN]>,
}

impl Tree {
    /// The small tree of `twinpath serve rpc`: a directory, a file, an empty file.
    #[must_use]
    pub fn small() -> Self {
        let mut builder = TreeBuilder::new(1, 1);
        let added = builder.directory(ROOT, "directory").and_then(|directory| {
            builder.file(directory, "empty", b"")?;
            builder.file(ROOT, "README", b"A fixed tree, served from memory.\n")
        });
        debug_assert!(added.is_ok(), "its names are names, and differ: {added:?}");
        builder.build()
    }

    /// The handle of a node.
    #[must_use]
    pub fn handle(&self, node: Node) -> [u8; HANDLE_LEN] {
        let mut handle = [0; HANDLE_LEN];
        let words = [HANDLE_MARK, self.filesystem, self.generation, node.0];
        for (place, word) in handle.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        handle
    }

    /// The node of a handle.
    ///
    /// # Errors
    /// NFS3ERR_BADHANDLE: it is not a handle of ours. NFS3ERR_STALE: its node no longer exists (RFC 1813, 2.6).
    #[inline]
    pub fn find(&self, handle: &[u8]) -> Result<Node, nfsstat3> {
        let mut reader = Reader::new(handle);
        match reader.array::<HANDLE_LEN>().map(|handle| handle.as_chunks::<4>().0) {
            Ok([mark, filesystem, generation, node])
                if reader.rest().is_empty() && u32::from_be_bytes(*mark) == HANDLE_MARK =>
            {
                let node = u32::from_be_bytes(*node);
                let lives = u32::from_be_bytes(*filesystem) == self.filesystem
                    && u32::from_be_bytes(*generation) == self.generation
                    && (node as usize) < self.entries.len();
                if lives { Ok(Node(node)) } else { Err(nfsstat3::NFS3ERR_STALE) }
            }
            _ => Err(nfsstat3::NFS3ERR_BADHANDLE),
        }
    }

    /// The encoded results of GETATTR for a node of this tree.
    #[inline]
    pub(super) fn attributes(&self, node: Node) -> &[u8; GETATTR_LEN] {
        &self.attributes[node.0 as usize]
    }

    /// Whether a node is a directory.
    #[must_use]
    pub fn is_directory(&self, node: Node) -> bool {
        matches!(self.entries[node.0 as usize].kind, Kind::Directory(_))
    }

    /// The bytes of a file.
    #[must_use]
    pub fn contents(&self, node: Node) -> Option<&[u8]> {
        match &self.entries[node.0 as usize].kind {
            Kind::File(contents) => Some(contents),
            Kind::Directory(_) => None,
        }
    }

    /// The node called `name` in a directory.
    #[must_use]
    pub fn look_up(&self, directory: Node, name: &str) -> Option<Node> {
        let Kind::Directory(children) = &self.entries[directory.0 as usize].kind else { return None };
        children.iter().copied().find(|child| self.entries[child.0 as usize].name == name)
    }

    /// The node at a path from the root; a redundant slash is ignored.
    #[must_use]
    pub fn path(&self, path: &str) -> Option<Node> {
        let names = path.strip_prefix('/')?.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |node, name| self.look_up(node, name))
    }
}
