//! Credentials and verifiers: the flavours of authentication served, and their limits (RFC 5531, section 8.2 and
//! appendix A).

use nfs3_types::rpc::{auth_flavor, auth_stat};

use crate::xdr::{Reader, XdrError};

/// Maximum length of a credential's or verifier's body, bytes (RFC 5531, 8.2).
pub const BODY_MAX: u32 = 400;
/// Maximum length of the caller's machine name in AUTH_SYS, bytes (RFC 5531, appendix A).
pub const MACHINE_NAME_MAX: u32 = 255;
/// Maximum number of additional groups in AUTH_SYS (RFC 5531, appendix A).
pub const GIDS_MAX: u32 = 16;

const NONE: u32 = auth_flavor::AUTH_NULL as u32;
const SYS: u32 = auth_flavor::AUTH_UNIX as u32;

/// A received credential or verifier: a flavour, and a body of at most [`BODY_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// The flavour's number.
    pub flavour: u32,
    /// Its body.
    pub body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// Decodes a credential or verifier.
    ///
    /// # Errors
    /// It is truncated, or its body is longer than the RFC allows.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { flavour: reader.u32()?, body: reader.opaque(BODY_MAX)? })
    }
}

/// A credential of a flavour that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE: an anonymous caller.
    None,
    /// AUTH_SYS, once called AUTH_UNIX: the caller's own statement of its identity, without proof.
    Sys(Sys<'a>),
}

/// The body of AUTH_SYS (RFC 5531, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sys<'a> {
    /// An arbitrary number chosen by the caller.
    pub stamp: u32,
    /// The caller's machine name, in no particular character set.
    pub machine_name: &'a [u8],
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    gids: &'a [[u8; 4]],
}

impl<'a> Sys<'a> {
    fn read(body: &'a [u8]) -> Result<Self, XdrError> {
        let mut reader = Reader::new(body);
        let stamp = reader.u32()?;
        let machine_name = reader.opaque(MACHINE_NAME_MAX)?;
        let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if count > GIDS_MAX {
            return Err(XdrError::TooLong { len: count, max: GIDS_MAX });
        }
        // Bytes after it are ignored, as by libtirpc and nfs-ganesha.
        let gids = reader.words(count as usize)?;
        Ok(Self { stamp, machine_name, uid, gid, gids })
    }

    /// Further group IDs.
    pub fn gids(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.gids.iter().map(|gid| u32::from_be_bytes(*gid))
    }
}

impl<'a> Credential<'a> {
    /// Decodes a credential. The RFC leaves the body of AUTH_NONE undefined, so it is ignored. The verifier
    /// is ignored too: it proves nothing in either flavour that is served. The RFC requires it to be
    /// AUTH_NONE (RFC 5531, 10.1 and appendix A), but libtirpc and nfs-ganesha accept any, and some clients
    /// send another one.
    ///
    /// # Errors
    /// The status to answer with AUTH_ERROR. A flavour that is not served, AUTH_SHORT included, gets
    /// AUTH_REJECTEDCRED, which makes the client try another one.
    #[inline]
    pub fn read(credential: OpaqueAuth<'a>) -> Result<Self, auth_stat> {
        match credential.flavour {
            NONE => Ok(Self::None),
            SYS => Sys::read(credential.body).map(Self::Sys).map_err(|_| auth_stat::AUTH_BADCRED),
            _ => Err(auth_stat::AUTH_REJECTEDCRED),
        }
    }

    /// Decodes a credential without ignored parts; `None`: it has some, or cannot be decoded.
    #[must_use]
    pub fn read_exactly(credential: OpaqueAuth<'a>) -> Option<Self> {
        let read = Self::read(credential).ok()?;
        let read_len = match &read {
            Self::None => 0,
            // Four numbers, the length of the name and the name in whole words, and the groups.
            Self::Sys(sys) => 5 * 4 + sys.machine_name.len().next_multiple_of(4) + 4 * sys.gids.len(),
        };
        (credential.body.len() == read_len).then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::write_opaque;

    fn sys(machine_name: &[u8], gids: &[u32]) -> Vec<u8> {
        let mut body = 7_u32.to_be_bytes().to_vec();
        write_opaque(machine_name, &mut body);
        let numbers = [1000, 100, gids.len() as u32];
        body.extend(numbers.iter().chain(gids).flat_map(|number| number.to_be_bytes()));
        body
    }

    fn read(flavour: u32, body: &[u8]) -> Result<Credential<'_>, auth_stat> {
        Credential::read(OpaqueAuth { flavour, body })
    }

    #[test]
    fn auth_sys_is_read_up_to_its_limits() {
        let gids: Vec<u32> = (0..16).collect();
        let body = sys(&[b'm'; 255], &gids);
        let Ok(Credential::Sys(sys_read)) = read(SYS, &body) else { panic!("not read") };
        assert_eq!((sys_read.stamp, sys_read.uid, sys_read.gid), (7, 1000, 100));
        assert_eq!(sys_read.machine_name, [b'm'; 255]);
        assert_eq!(sys_read.gids().collect::<Vec<_>>(), gids);
        let bad = Err(auth_stat::AUTH_BADCRED);
        assert_eq!(read(SYS, &sys(&[b'm'; 256], &[])), bad);
        assert_eq!(read(SYS, &sys(b"m", &[0; 17])), bad);
    }

    #[test]
    fn a_body_that_ends_early_is_bad_and_bytes_behind_it_are_ignored() {
        let body = sys(b"client", &[4, 24]);
        for len in 0..body.len() {
            assert_eq!(read(SYS, &body[..len]), Err(auth_stat::AUTH_BADCRED), "{len} bytes");
        }
        let longer = [body.as_slice(), &[0; 4]].concat();
        assert_eq!(read(SYS, &longer), read(SYS, &body));
        let exactly = |flavour, body| Credential::read_exactly(OpaqueAuth { flavour, body });
        assert_eq!(exactly(SYS, &body), read(SYS, &body).ok());
        assert_eq!((exactly(SYS, &longer), exactly(NONE, &[0; 4])), (None, None));
        assert_eq!((exactly(NONE, &[]), exactly(6, &[])), (Some(Credential::None), None));
    }

    #[test]
    fn other_flavours_are_refused() {
        assert_eq!(read(NONE, &[]), Ok(Credential::None));
        assert_eq!(read(NONE, &[1; 400]), Ok(Credential::None), "its body is undefined");
        for flavour in [2, 3, 6, u32::MAX] {
            assert_eq!(read(flavour, &[]), Err(auth_stat::AUTH_REJECTEDCRED), "flavour {flavour}");
        }
    }
}
