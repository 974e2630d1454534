//! A client of MOUNT version 3 (RFC 1813, appendix I), limited to getting a root handle.

use nfs3_types::mount::{FHSIZE3, MNTPATHLEN, mountstat3};
use nfs3_types::xdr_codec::Unpack;

use crate::client::ReplyError;
use crate::xdr::{Reader, XdrError, write_opaque};

/// Maximum number of authentication flavours that a server may list with a handle: more than are
/// registered.
const FLAVOURS_MAX: u32 = 64;

/// Why no root handle was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The server did not execute MNT.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// MNT returned an error status.
    #[error("MNT failed with {0}")]
    Status(MountStatus),
    /// The results are not a `mountres3`.
    #[error("the results of MNT can't be read: {0}")]
    Xdr(#[from] XdrError),
    /// The results have an unknown status.
    #[error("the results of MNT have the status {0}, which RFC 1813 does not know")]
    Unknown(u32),
}

/// A `mountstat3` other than success, in a form that can be compared.
#[derive(Clone, Copy, Debug)]
pub struct MountStatus(pub mountstat3);

impl PartialEq for MountStatus {
    fn eq(&self, other: &Self) -> bool {
        self.0 as u32 == other.0 as u32
    }
}

impl Eq for MountStatus {}

impl std::fmt::Display for MountStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The arguments of MNT: the path of an export. Servers accept paths of up to 1024 bytes.
#[must_use]
pub fn mount_arguments(path: &str) -> Vec<u8> {
    debug_assert!(path.len() <= MNTPATHLEN, "MNTPATHLEN");
    let mut args = Vec::new();
    write_opaque(path.as_bytes(), &mut args);
    args
}

/// The handle in the results of MNT.
///
/// # Errors
/// MNT failed, or its results cannot be decoded.
pub fn root_handle(results: &[u8]) -> Result<&[u8], MountError> {
    let mut reader = Reader::new(results);
    let status = reader.u32()?;
    match mountstat3::unpack(&mut &status.to_be_bytes()[..]) {
        Ok((mountstat3::MNT3_OK, _)) => {}
        Ok((status, _)) => return Err(MountError::Status(MountStatus(status))),
        Err(_) => return Err(MountError::Unknown(status)),
    }
    let handle = reader.opaque(FHSIZE3 as u32)?;
    let flavours = reader.u32()?;
    if flavours > FLAVOURS_MAX {
        return Err(XdrError::TooLong { len: flavours, max: FLAVOURS_MAX }.into());
    }
    for _ in 0..flavours {
        reader.u32()?;
    }
    reader.finish()?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use nfs3_types::mount::{dirpath, fhandle3, mountres3, mountres3_ok};
    use nfs3_types::xdr_codec::{Opaque, Pack};

    use super::*;

    #[test]
    fn arguments_are_what_the_library_writes() {
        let mut expected = Vec::new();
        dirpath(Opaque::borrowed(b"/export")).pack(&mut expected).expect("packs");
        assert_eq!(mount_arguments("/export"), expected);
    }

    #[test]
    fn the_handle_is_found_and_the_rest_checked() {
        let mut results = Vec::new();
        let fhandle = fhandle3(Opaque::borrowed(b"a handle"));
        mountres3::Ok(mountres3_ok { fhandle, auth_flavors: vec![0, 1] }).pack(&mut results).expect("packs");
        assert_eq!(root_handle(&results), Ok(&b"a handle"[..]));
        for len in 0..results.len() {
            assert!(matches!(root_handle(&results[..len]), Err(MountError::Xdr(_))), "{len}");
        }
        results.push(0);
        assert_eq!(root_handle(&results), Err(XdrError::Trailing(1).into()));
    }

    #[test]
    fn failures_have_names_and_wrong_lengths_allocate_nothing() {
        let status = |status: u32| status.to_be_bytes();
        assert_eq!(root_handle(&status(13)), Err(MountError::Status(MountStatus(mountstat3::MNT3ERR_ACCES))));
        assert_eq!(root_handle(&status(77)), Err(MountError::Unknown(77)));
        let lie = [status(0), status(u32::MAX)].concat();
        assert_eq!(root_handle(&lie), Err(XdrError::TooLong { len: u32::MAX, max: 64 }.into()));
        let lie = [status(0), status(0), status(u32::MAX)].concat();
        assert_eq!(root_handle(&lie), Err(XdrError::TooLong { len: u32::MAX, max: 64 }.into()));
    }
}
