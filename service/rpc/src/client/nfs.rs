//! The results of NFS version 3 (RFC 1813, 3.3) that a client decodes often: borrowed from the reply. What a client
//! does once, it decodes with the library.

use nfs3_types::nfs3::{NFS3_COOKIEVERFSIZE, NFS3_FHSIZE, NFS3_WRITEVERFSIZE, nfsstat3};
use nfs3_types::xdr_codec::Unpack;

use crate::client::ReplyError;
use crate::refusal::Refusal;
use crate::xdr::{Reader, XdrError};

/// Length of the attributes of a file, bytes (`fattr3`: RFC 1813, 2.6).
pub const ATTRIBUTES_LEN: usize = 84;
/// Length of a file's size and times before a change, bytes (`wcc_attr`).
const BEFORE_LEN: usize = 24;

/// Why there are no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NfsError {
    /// The reply cannot be read.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The server did not execute the procedure.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The procedure failed.
    #[error("{0:?}")]
    Status(nfsstat3),
    /// The results cannot be read.
    #[error("its results can't be read: {0}")]
    Xdr(#[from] XdrError),
    /// A field has a value that RFC 1813 does not define.
    #[error("its results have a {field} of {value}, which RFC 1813 does not know")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

/// Attributes of a file, still encoded.
pub type Attributes = [u8; ATTRIBUTES_LEN];

/// The results of READ (3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResults<'a> {
    /// The data.
    pub data: &'a [u8],
    /// Whether they reach the end of the file.
    pub eof: bool,
}

/// The results of WRITE (3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResults {
    /// Bytes written.
    pub count: u32,
    /// Differs from before if the server may have lost data that was not committed.
    pub verifier: [u8; NFS3_WRITEVERFSIZE],
}

/// A page of READDIRPLUS (3.3.17), whose entries are decoded one by one.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// For the call that asks for the next page.
    pub verifier: [u8; NFS3_COOKIEVERFSIZE],
    entries: Reader<'a>,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: &'a [u8],
    /// Where listing goes on after it.
    pub cookie: u64,
    /// Its attributes, if the server gave them.
    pub attributes: Option<&'a Attributes>,
    /// Its handle, if the server gave it.
    pub handle: Option<&'a [u8]>,
}

/// What follows in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed<'a> {
    /// An entry.
    Entry(Entry<'a>),
    /// The end of the page, and whether it is the end of the directory.
    End {
        /// Whether it is.
        eof: bool,
    },
}

/// The data of a READ of at most `max` bytes.
///
/// # Errors
/// It failed, or its results cannot be read.
#[inline]
pub fn read_results(results: &[u8], max: u32) -> Result<ReadResults<'_>, NfsError> {
    let mut reader = Reader::new(results);
    done(&mut reader)?;
    attributes(&mut reader)?;
    let count = reader.u32()?;
    let eof = flag(&mut reader, "eof")?;
    let data = reader.opaque(max)?;
    reader.finish()?;
    if data.len() != count as usize {
        return Err(NfsError::Unknown { field: "count", value: count });
    }
    Ok(ReadResults { data, eof })
}

/// What a WRITE has written.
///
/// # Errors
/// It failed, or its results cannot be read.
#[inline]
pub fn write_results(results: &[u8]) -> Result<WriteResults, NfsError> {
    /// FILE_SYNC.
    const STABLE_MAX: u32 = 2;
    let mut reader = Reader::new(results);
    done(&mut reader)?;
    changed(&mut reader)?;
    let count = reader.u32()?;
    let committed = reader.u32()?;
    if committed > STABLE_MAX {
        return Err(NfsError::Unknown { field: "committed", value: committed });
    }
    let verifier = *reader.array()?;
    reader.finish()?;
    Ok(WriteResults { count, verifier })
}

/// The verifier of a COMMIT (3.3.21).
///
/// # Errors
/// It failed, or its results cannot be read.
#[inline]
pub fn commit_results(results: &[u8]) -> Result<[u8; NFS3_WRITEVERFSIZE], NfsError> {
    let mut reader = Reader::new(results);
    done(&mut reader)?;
    changed(&mut reader)?;
    let verifier = *reader.array()?;
    reader.finish()?;
    Ok(verifier)
}

/// The handle that LOOKUP gives (3.3.3).
///
/// # Errors
/// It failed, or its results cannot be read.
#[inline]
pub fn lookup_results(results: &[u8]) -> Result<&[u8], NfsError> {
    let mut reader = Reader::new(results);
    done(&mut reader)?;
    let handle = reader.opaque(NFS3_FHSIZE as u32)?;
    attributes(&mut reader)?;
    attributes(&mut reader)?;
    reader.finish()?;
    Ok(handle)
}

impl<'a> Page<'a> {
    /// The page in the results of READDIRPLUS.
    ///
    /// # Errors
    /// It failed, or its results cannot be read.
    pub fn new(results: &'a [u8]) -> Result<Self, NfsError> {
        let mut reader = Reader::new(results);
        done(&mut reader)?;
        attributes(&mut reader)?;
        let verifier = *reader.array()?;
        Ok(Self { verifier, entries: reader })
    }

    /// What follows. After [`Listed::End`], nothing does.
    ///
    /// # Errors
    /// The rest of the page cannot be read.
    #[expect(clippy::should_implement_trait, reason = "it fails, and it tells how the page ends")]
    pub fn next(&mut self) -> Result<Listed<'a>, NfsError> {
        let reader = &mut self.entries;
        if !flag(reader, "mark of an entry")? {
            let eof = flag(reader, "eof")?;
            reader.finish()?;
            return Ok(Listed::End { eof });
        }
        let fileid = u64::from_be_bytes(*reader.array()?);
        let name = reader.opaque(u32::MAX)?;
        let cookie = u64::from_be_bytes(*reader.array()?);
        let attributes = attributes(reader)?;
        let handle =
            if flag(reader, "mark of a handle")? { Some(reader.opaque(NFS3_FHSIZE as u32)?) } else { None };
        Ok(Listed::Entry(Entry { fileid, name, cookie, attributes, handle }))
    }
}

/// Whether a procedure succeeded.
#[inline]
fn done(reader: &mut Reader<'_>) -> Result<(), NfsError> {
    match reader.u32()? {
        0 => Ok(()),
        value => Err(failure(value)),
    }
}

#[cold]
fn failure(value: u32) -> NfsError {
    match nfsstat3::unpack(&mut &value.to_be_bytes()[..]) {
        Ok((status, _)) => NfsError::Status(status),
        Err(_) => NfsError::Unknown { field: "status", value },
    }
}

/// A boolean (RFC 4506, 4.4).
#[inline]
fn flag(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, NfsError> {
    match reader.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(NfsError::Unknown { field, value }),
    }
}

/// `post_op_attr`.
#[inline]
fn attributes<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a Attributes>, NfsError> {
    Ok(if flag(reader, "mark of attributes")? { Some(reader.array()?) } else { None })
}

/// `wcc_data`.
#[inline]
fn changed(reader: &mut Reader<'_>) -> Result<(), NfsError> {
    if flag(reader, "mark of attributes")? {
        reader.array::<BEFORE_LEN>()?;
    }
    attributes(reader).map(drop)
}

#[cfg(test)]
mod tests;
