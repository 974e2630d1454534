//! The tree that is walked, with names and sizes from a seed, so that both ends know the right results.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The parameters of a tree. The same parameters give the same tree.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Shape {
    /// Files, all directories together
    #[arg(long, default_value_t = 20_000)]
    pub(crate) files: usize,
    /// Directories, the root not counted
    #[arg(long, default_value_t = 300)]
    pub(crate) directories: usize,
    /// Names, sizes and places follow from it
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The deepest directory below the root.
const DEPTH_MAX: usize = 5;
/// One directory in this many has ten times as many files as the others, which takes several READDIRPLUS pages.
const LARGE_ONE_IN: usize = 40;
const LARGE_WEIGHT: usize = 10;
/// The largest file, bytes. Files are sparse, as nothing reads them.
const SIZE_MAX: u64 = 1 << 20;

/// The object behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A file of so many bytes.
    File(u64),
    /// The directory with this number.
    Directory(usize),
}

/// Directories by number, with the root as 0; each has its entries by name.
#[derive(Debug, PartialEq)]
pub(super) struct Tree {
    pub(super) directories: Vec<BTreeMap<Vec<u8>, Node>>,
}

impl Shape {
    /// The number of names in the tree, of files and directories.
    pub(crate) fn names(&self) -> usize {
        self.files + self.directories
    }
}

impl Tree {
    pub(super) fn new(shape: &Shape) -> anyhow::Result<Self> {
        ensure!((1..=100_000).contains(&shape.directories), "--directories takes 1 to 100000");
        ensure!(shape.files <= 1_000_000, "--files takes at most 1000000");
        let mut random = fastrand::Rng::with_seed(shape.seed);
        let mut directories = vec![BTreeMap::new()];
        let mut depths = vec![0];
        for number in 1..=shape.directories {
            let parent = loop {
                let candidate = random.usize(0..number);
                if depths[candidate] < DEPTH_MAX {
                    break candidate;
                }
            };
            depths.push(depths[parent] + 1);
            let name = name(&mut random, &format!("d{number:03}"));
            directories[parent].insert(name, Node::Directory(number));
            directories.push(BTreeMap::new());
        }
        let weights: Vec<_> = (0..=shape.directories)
            .map(|number| if number % LARGE_ONE_IN == 1 { LARGE_WEIGHT } else { 1 })
            .collect();
        let total: usize = weights.iter().sum();
        let (mut placed, mut weighed) = (0, 0);
        for (directory, weight) in directories.iter_mut().zip(weights) {
            weighed += weight;
            // Rounding the running sum makes the shares add up exactly.
            let until = shape.files * weighed / total;
            for number in placed..until {
                directory
                    .insert(name(&mut random, &format!("{number:05}")), Node::File(random.u64(0..SIZE_MAX)));
            }
            placed = until;
        }
        Ok(Self { directories })
    }

    /// Creates it in an empty directory.
    pub(super) fn create(&self, root: &Path) -> anyhow::Result<()> {
        let mut waiting: Vec<(usize, PathBuf)> = vec![(0, root.to_path_buf())];
        while let Some((number, path)) = waiting.pop() {
            for (name, node) in &self.directories[number] {
                let name = std::str::from_utf8(name).context("names are ASCII")?;
                let path = path.join(name);
                let made = match node {
                    Node::File(size) => File::create(&path).and_then(|file| file.set_len(*size)),
                    Node::Directory(_) => std::fs::create_dir(&path),
                };
                made.with_context(|| format!("cannot create {}", path.display()))?;
                if let Node::Directory(number) = node {
                    waiting.push((*number, path));
                }
            }
        }
        Ok(())
    }
}

/// A name of usual length, unique because it contains `unique`.
fn name(random: &mut fastrand::Rng, unique: &str) -> Vec<u8> {
    let length = random.usize(4..24);
    let letters = std::iter::repeat_with(|| random.lowercase() as u8).take(length);
    letters.chain(unique.bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { files: 2000, directories: 60, seed: 7 };

    #[test]
    fn a_seed_gives_one_tree_with_every_file_and_directory() {
        let tree = Tree::new(&SHAPE).unwrap();
        assert_eq!(tree, Tree::new(&SHAPE).unwrap());
        assert_ne!(tree, Tree::new(&Shape { seed: 8, ..SHAPE }).unwrap());
        let nodes = || tree.directories.iter().flat_map(BTreeMap::values);
        assert_eq!(nodes().filter(|node| matches!(node, Node::File(_))).count(), SHAPE.files);
        assert_eq!(nodes().count(), SHAPE.names());
        let mut reached: Vec<_> = nodes()
            .filter_map(|node| if let Node::Directory(at) = node { Some(*at) } else { None })
            .collect();
        reached.sort_unstable();
        assert!(reached.into_iter().eq(1..=SHAPE.directories));
    }

    #[test]
    fn it_is_created_as_it_is_known() {
        let root = tempfile::tempdir().unwrap();
        let shape = Shape { files: 50, directories: 4, seed: 3 };
        let tree = Tree::new(&shape).unwrap();
        tree.create(root.path()).unwrap();
        for entry in std::fs::read_dir(root.path()).unwrap() {
            let entry = entry.unwrap();
            let node = &tree.directories[0][entry.file_name().as_encoded_bytes()];
            match node {
                Node::File(size) => assert_eq!(entry.metadata().unwrap().len(), *size),
                Node::Directory(number) => {
                    let inside = std::fs::read_dir(entry.path()).unwrap().count();
                    assert_eq!(inside, tree.directories[*number].len());
                }
            }
        }
    }
}
