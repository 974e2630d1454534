//! File handles: what clients keep for as long as they like, so they hold across a restart and a rename. They are
//! signed: one that was guessed or altered opens nothing.

use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use twinpath_rpc::nfs3_types::nfs3::nfsstat3;

use crate::HANDLE_MAX;

/// Version, type and length of the file system's key, a zero byte; then the export.
const HEAD_LEN: usize = 8;
/// Length of the signature, bytes.
const MAC_LEN: usize = 8;
/// The version that begins each handle.
const VERSION: u8 = 1;
/// Maximum length of a file system's own handle, bytes. ext4 has 8, tmpfs 12, XFS 24, btrfs 40.
pub const FILE_KEY_MAX: usize = HANDLE_MAX - HEAD_LEN - MAC_LEN;

/// A file system's own handle of a file: what `name_to_handle_at(2)` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    kind: u8,
    len: u8,
    bytes: [u8; FILE_KEY_MAX],
}

impl FileKey {
    /// The handle `bytes` of type `kind`. `None`: it is longer than a handle of NFS leaves room for.
    #[must_use]
    pub fn new(kind: u8, bytes: &[u8]) -> Option<Self> {
        let mut key = Self { kind, len: bytes.len() as u8, bytes: [0; FILE_KEY_MAX] };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A file: the number of its export, and its key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the export.
    pub export: u32,
    /// Its key in the export's file system.
    pub key: FileKey,
}

/// A handle as clients get it.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

impl Handle {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The secret that signs handles. It is kept for as long as handles shall hold.
#[derive(Clone)]
pub struct HandleSecret {
    secret: [u8; 16],
    /// The number of each export, and what tells its root from all other directories.
    roots: Arc<[(u32, Vec<u8>)]>,
}

impl HandleSecret {
    /// A secret of 16 random bytes.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self { secret, roots: Arc::default() }
    }

    /// The same secret for handles of exports with these roots. A root is named by what tells it from all other directories.
    ///
    /// The number of an export may come to stand for another directory: its disk is not mounted, or another one is, and a
    /// key of the former file system is that of some file in the present one. So the root is signed too, and handles of
    /// another root are stale.
    #[must_use]
    pub fn for_roots(&self, roots: impl Iterator<Item = (u32, Vec<u8>)>) -> Self {
        Self { secret: self.secret, roots: roots.collect() }
    }

    /// SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF"), as the kernel's server signs.
    fn sign(&self, bytes: &[u8], export: u32) -> [u8; MAC_LEN] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(bytes);
        if let Some((_, root)) = self.roots.iter().find(|(number, _)| *number == export) {
            hasher.write(root);
        }
        hasher.finish().to_le_bytes()
    }

    /// The handle of a file.
    #[must_use]
    pub fn handle(&self, id: &FileId) -> Handle {
        let key = id.key.bytes();
        let mut bytes = [0; HANDLE_MAX];
        bytes[..4].copy_from_slice(&[VERSION, id.key.kind, id.key.len, 0]);
        bytes[4..HEAD_LEN].copy_from_slice(&id.export.to_be_bytes());
        let signed = HEAD_LEN + key.len();
        bytes[HEAD_LEN..signed].copy_from_slice(key);
        let mac = self.sign(&bytes[..signed], id.export);
        bytes[signed..signed + MAC_LEN].copy_from_slice(&mac);
        Handle { len: (signed + MAC_LEN) as u8, bytes }
    }

    /// The file of a handle.
    ///
    /// # Errors
    /// BADHANDLE: it has not the form of a handle of ours. STALE: it is not signed with this secret for this root. A client
    /// of Linux looks the path up again after STALE alone.
    pub fn open(&self, handle: &[u8]) -> Result<FileId, nfsstat3> {
        let Some(([version, kind, len, 0], rest)) = handle.split_first_chunk::<4>() else {
            return Err(nfsstat3::NFS3ERR_BADHANDLE);
        };
        let signed = HEAD_LEN + usize::from(*len);
        let Some((export, _)) = rest.split_first_chunk::<4>() else {
            return Err(nfsstat3::NFS3ERR_BADHANDLE);
        };
        if *version != VERSION || handle.len() != signed + MAC_LEN {
            return Err(nfsstat3::NFS3ERR_BADHANDLE);
        }
        let (signed, mac) = handle.split_at(signed);
        let export = u32::from_be_bytes(*export);
        // As one number, so the time that it takes says nothing about which byte differs.
        if u64::from_le_bytes(self.sign(signed, export))
            != mac.first_chunk().map_or(0, |mac| u64::from_le_bytes(*mac))
        {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        let key = FileKey::new(*kind, &signed[HEAD_LEN..]).ok_or(nfsstat3::NFS3ERR_BADHANDLE)?;
        Ok(FileId { export, key })
    }

    /// A number that only the owner of the secret can compute, never 0, for `parts`.
    #[must_use]
    pub fn verifier(&self, what: &[u8], key: &FileId) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(what);
        hasher.write(&key.export.to_be_bytes());
        hasher.write(key.key.bytes());
        hasher.finish().max(1).to_be_bytes()
    }
}

impl std::fmt::Debug for HandleSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HandleSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(len: usize) -> FileId {
        let bytes: Vec<u8> = (1..=len as u8).collect();
        FileId { export: 0x0102_0304, key: FileKey::new(0x81, &bytes).expect("it fits") }
    }

    #[test]
    fn a_handle_opens_what_it_was_made_for() {
        let secret = HandleSecret::new([7; 16]);
        for len in 0..=FILE_KEY_MAX {
            let handle = secret.handle(&id(len));
            assert!(handle.bytes().len() <= HANDLE_MAX);
            assert_eq!(secret.open(handle.bytes()), Ok(id(len)));
        }
        assert_eq!(FileKey::new(1, &[0; FILE_KEY_MAX + 1]), None);
        assert_eq!(FileKey::new(1, &[0; 300]), None);
    }

    #[test]
    fn a_handle_of_an_export_is_stale_once_its_number_stands_for_another_root() {
        let secret = HandleSecret::new([7; 16]);
        let of = |root: &[u8]| secret.for_roots([(0x0102_0304, root.to_vec()), (2, Vec::new())].into_iter());
        let handle = of(b"a disk").handle(&id(12));
        assert_eq!(of(b"a disk").open(handle.bytes()), Ok(id(12)));
        assert_eq!(of(b"what is below it").open(handle.bytes()), Err(nfsstat3::NFS3ERR_STALE));
    }

    #[test]
    fn an_altered_handle_is_stale_or_bad() {
        let secret = HandleSecret::new([7; 16]);
        let handle = secret.handle(&id(12)).bytes().to_vec();
        for bit in 0..8 * handle.len() {
            let mut altered = handle.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                // The version, the length, the zero byte.
                0 | 2 | 3 => nfsstat3::NFS3ERR_BADHANDLE,
                _ => nfsstat3::NFS3ERR_STALE,
            };
            assert_eq!(secret.open(&altered), Err(expected), "bit {bit}");
        }
        for len in 0..handle.len() {
            assert_eq!(secret.open(&handle[..len]), Err(nfsstat3::NFS3ERR_BADHANDLE), "{len} bytes");
        }
        let other = HandleSecret::new([8; 16]);
        assert_eq!(other.open(&handle), Err(nfsstat3::NFS3ERR_STALE), "another secret");
    }
}
