//! Decodes a reply and checks it against its call.

use nfs3_types::nfs3::{GETATTR3res, GETATTR3resok, Nfs3Result, fattr3, nfsstat3};
use nfs3_types::rpc::{accept_stat, auth_stat, msg_type, reject_stat, reply_stat};
use nfs3_types::xdr_codec::Unpack;

use crate::auth::BODY_MAX;
use crate::refusal::Refusal;
use crate::xdr::{Reader, XdrError};

/// A reply to some call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Transaction ID of its call.
    pub xid: u32,
    /// The procedure's results, still encoded; or why it was not executed.
    pub outcome: Result<&'a [u8], Refusal>,
}

/// The error in a message that should be a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It is truncated, or one of its lengths is wrong.
    #[error("the reply can't be read: {0}")]
    Xdr(#[from] XdrError),
    /// It is a call.
    #[error("a message of type {0} where a reply (1) is due")]
    NotAReply(u32),
    /// A field has a value that RFC 5531 does not define.
    #[error("{field} is {value}, which RFC 5531 does not know")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The server refused to execute the procedure.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// GETATTR returned an error status.
    #[error("GETATTR failed with {0:?}")]
    GetAttr(nfsstat3),
    /// The results are not a `GETATTR3res` (RFC 1813, 3.3.1).
    #[error("the results of GETATTR can't be read")]
    Attributes,
}

impl<'a> Reply<'a> {
    /// Decodes the header of a reply; the results stay encoded.
    ///
    /// # Errors
    /// It is not a reply of RPC version 2. A refusal by the server is an outcome, not an error here.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Self, ReplyError> {
        let mut reader = Reader::new(message);
        let xid = reader.u32()?;
        let kind = reader.u32()?;
        if kind != msg_type::REPLY as u32 {
            return Err(ReplyError::NotAReply(kind));
        }
        const ACCEPTED: u32 = reply_stat::MSG_ACCEPTED as u32;
        const DENIED: u32 = reply_stat::MSG_DENIED as u32;
        let outcome = match reader.u32()? {
            ACCEPTED => accepted(&mut reader)?,
            DENIED => Err(denied(&mut reader)?),
            value => return Err(ReplyError::Unknown { field: "reply_stat", value }),
        };
        if outcome.is_err() {
            reader.finish()?;
        }
        Ok(Self { xid, outcome })
    }

    /// Checks that the results are those of NULL: empty.
    ///
    /// # Errors
    /// The call was refused, or the results are not empty.
    #[inline]
    pub fn verify_null(&self) -> Result<(), ReplyError> {
        Ok(Reader::new(self.outcome?).finish()?)
    }

    /// Decodes the results of NFSv3 GETATTR and returns the attributes.
    ///
    /// # Errors
    /// The call was refused, it failed, or the results cannot be decoded.
    #[inline]
    pub fn verify_getattr(&self) -> Result<fattr3, ReplyError> {
        let mut results = self.outcome?;
        let (result, _) = GETATTR3res::unpack(&mut results).map_err(|_| ReplyError::Attributes)?;
        Reader::new(results).finish()?;
        match result {
            Nfs3Result::Ok(GETATTR3resok { obj_attributes }) => Ok(obj_attributes),
            Nfs3Result::Err((status, _)) => Err(ReplyError::GetAttr(status)),
        }
    }
}

/// The body of an accepted reply: its results, or a refusal.
#[inline]
fn accepted<'a>(reader: &mut Reader<'a>) -> Result<Result<&'a [u8], Refusal>, ReplyError> {
    const SUCCESS: u32 = accept_stat::SUCCESS as u32;
    const PROG_UNAVAIL: u32 = accept_stat::PROG_UNAVAIL as u32;
    const PROG_MISMATCH: u32 = accept_stat::PROG_MISMATCH as u32;
    const PROC_UNAVAIL: u32 = accept_stat::PROC_UNAVAIL as u32;
    const GARBAGE_ARGS: u32 = accept_stat::GARBAGE_ARGS as u32;
    const SYSTEM_ERR: u32 = accept_stat::SYSTEM_ERR as u32;
    let _verifier_flavour = reader.u32()?;
    let _verifier = reader.opaque(BODY_MAX)?;
    Ok(match reader.u32()? {
        SUCCESS => Ok(reader.rest()),
        PROG_UNAVAIL => Err(Refusal::ProgramUnavailable),
        PROG_MISMATCH => Err(Refusal::ProgramMismatch { low: reader.u32()?, high: reader.u32()? }),
        PROC_UNAVAIL => Err(Refusal::ProcedureUnavailable),
        GARBAGE_ARGS => Err(Refusal::GarbageArguments),
        SYSTEM_ERR => Err(Refusal::SystemError),
        value => return Err(ReplyError::Unknown { field: "accept_stat", value }),
    })
}

/// The body of a denied reply.
fn denied(reader: &mut Reader<'_>) -> Result<Refusal, ReplyError> {
    const RPC_MISMATCH: u32 = reject_stat::RPC_MISMATCH as u32;
    const AUTH_ERROR: u32 = reject_stat::AUTH_ERROR as u32;
    match reader.u32()? {
        RPC_MISMATCH => Ok(Refusal::RpcMismatch { low: reader.u32()?, high: reader.u32()? }),
        AUTH_ERROR => {
            let value = reader.u32()?;
            let (status, _) = auth_stat::unpack(&mut &value.to_be_bytes()[..])
                .map_err(|_| ReplyError::Unknown { field: "auth_stat", value })?;
            Ok(Refusal::Auth(status))
        }
        value => Err(ReplyError::Unknown { field: "reject_stat", value }),
    }
}

#[cfg(test)]
mod tests {
    use nfs3_types::rpc::{
        accept_stat_data, accepted_reply, msg_body, opaque_auth, rejected_reply, reply_body, rpc_msg,
    };
    use nfs3_types::xdr_codec::{Pack, Void};

    use super::*;

    fn packed(body: reply_body<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        rpc_msg { xid: 9, body: msg_body::REPLY(body) }.pack(&mut bytes).expect("memory is no file");
        bytes
    }

    fn accepted_with(reply_data: accept_stat_data) -> Vec<u8> {
        packed(reply_body::MSG_ACCEPTED(accepted_reply { verf: opaque_auth::default(), reply_data }))
    }

    fn attributes() -> fattr3 {
        let mut bytes = [0; 84];
        bytes[3] = 1;
        let (zeroes, _) = fattr3::unpack(&mut &bytes[..]).expect("a regular file of zeroes");
        fattr3 { mode: 0o644, size: 1 << 40, fileid: 7, ..zeroes }
    }

    /// The library's attributes cannot be compared.
    fn fileid(reply: &Reply<'_>) -> Result<u64, ReplyError> {
        reply.verify_getattr().map(|attributes| attributes.fileid)
    }

    #[test]
    fn success_is_verified_to_the_last_byte() {
        let mut message = accepted_with(accept_stat_data::SUCCESS);
        assert_eq!(Reply::parse(&message).and_then(|reply| reply.verify_null()), Ok(()));
        GETATTR3res::Ok(GETATTR3resok { obj_attributes: attributes() }).pack(&mut message).expect("packs");
        let reply = Reply::parse(&message).expect("a reply");
        assert_eq!(reply.xid, 9);
        assert_eq!(fileid(&reply), Ok(7));
        assert_eq!(reply.verify_null(), Err(ReplyError::Xdr(XdrError::Trailing(88))));
        let cut = Reply::parse(&message[..message.len() - 1]).expect("its header is whole");
        assert_eq!(fileid(&cut), Err(ReplyError::Attributes));
        message.extend([0; 4]);
        let long = Reply::parse(&message).expect("its header is whole");
        assert_eq!(fileid(&long), Err(ReplyError::Xdr(XdrError::Trailing(4))));
    }

    #[test]
    fn a_failed_getattr_has_its_status() {
        let mut message = accepted_with(accept_stat_data::SUCCESS);
        GETATTR3res::Err((nfsstat3::NFS3ERR_STALE, Void)).pack(&mut message).expect("packs");
        let reply = Reply::parse(&message).expect("a reply");
        assert_eq!(fileid(&reply), Err(ReplyError::GetAttr(nfsstat3::NFS3ERR_STALE)));
    }

    #[test]
    fn every_refusal_has_its_name() {
        let mismatch = accept_stat_data::PROG_MISMATCH { low: 3, high: 4 };
        let cases = [
            (accepted_with(accept_stat_data::PROG_UNAVAIL), Refusal::ProgramUnavailable),
            (accepted_with(mismatch), Refusal::ProgramMismatch { low: 3, high: 4 }),
            (accepted_with(accept_stat_data::PROC_UNAVAIL), Refusal::ProcedureUnavailable),
            (accepted_with(accept_stat_data::GARBAGE_ARGS), Refusal::GarbageArguments),
            (accepted_with(accept_stat_data::SYSTEM_ERR), Refusal::SystemError),
            (
                packed(reply_body::MSG_DENIED(rejected_reply::rpc_mismatch(2, 2))),
                Refusal::RpcMismatch { low: 2, high: 2 },
            ),
            (
                packed(reply_body::MSG_DENIED(rejected_reply::auth_error(auth_stat::AUTH_TOOWEAK))),
                Refusal::Auth(auth_stat::AUTH_TOOWEAK),
            ),
        ];
        for (mut message, refusal) in cases {
            assert_eq!(Reply::parse(&message), Ok(Reply { xid: 9, outcome: Err(refusal) }));
            let reply = Reply::parse(&message).expect("a reply");
            assert_eq!(reply.verify_null(), Err(ReplyError::Refused(refusal)));
            for len in 0..message.len() {
                let short = Reply::parse(&message[..len]);
                assert!(matches!(short, Err(ReplyError::Xdr(XdrError::Short(_)))), "{refusal:?} {len}");
            }
            message.push(0);
            assert_eq!(Reply::parse(&message), Err(ReplyError::Xdr(XdrError::Trailing(1))));
        }
    }

    #[test]
    fn values_that_the_rfc_does_not_know_are_named() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let parse = |list: &[u32]| Reply::parse(&words(list)).expect_err("no reply");
        let unknown = |field, value| ReplyError::Unknown { field, value };
        assert_eq!(parse(&[9, 0]), ReplyError::NotAReply(0));
        assert_eq!(parse(&[9, 1, 2]), unknown("reply_stat", 2));
        assert_eq!(parse(&[9, 1, 0, 0, 0, 6]), unknown("accept_stat", 6));
        assert_eq!(parse(&[9, 1, 1, 2]), unknown("reject_stat", 2));
        assert_eq!(parse(&[9, 1, 1, 1, 99]), unknown("auth_stat", 99));
        let long = XdrError::TooLong { len: 401, max: 400 };
        assert_eq!(parse(&[9, 1, 0, 0, 401]), ReplyError::Xdr(long));
    }
}
