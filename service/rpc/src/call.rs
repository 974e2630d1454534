//! The header of a call (RFC 5531, section 9), decoded without a copy.

use nfs3_types::rpc::{RPC_VERSION_2, auth_stat, msg_type};

use crate::auth::{BODY_MAX, OpaqueAuth};
use crate::refusal::Refusal;
use crate::xdr::{Reader, XdrError};

/// Procedure 0 of every program.
pub const NULL: u32 = 0;
/// Bytes from the xid to the length of the credential: xid, type, RPC version, program, version, procedure, flavour,
/// length.
const FIXED_LEN: usize = 32;

/// The header of a call, and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Transaction ID, which the reply repeats.
    pub xid: u32,
    /// The program called.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The caller's credential.
    pub credential: OpaqueAuth<'a>,
    /// Its verifier.
    pub verifier: OpaqueAuth<'a>,
    /// The procedure's arguments, still encoded.
    pub args: &'a [u8],
}

/// Why a message is not a call that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It ends within its header, or is a reply: it gets no answer.
    #[error("no call: it ends in its header, or is none")]
    NotACall,
    /// It must be answered with a refusal.
    #[error("call {xid} is refused: {refusal}")]
    Refused {
        /// Transaction ID of the call.
        xid: u32,
        /// The refusal.
        refusal: Refusal,
    },
}

impl<'a> Header<'a> {
    /// Decodes the header of a message.
    ///
    /// # Errors
    /// It is not a call of RPC version 2, or a credential is longer than the RFC allows.
    #[inline(always)]
    pub fn parse(message: &'a [u8]) -> Result<Self, HeaderError> {
        // The fixed part up to the length of the credential is decoded in one piece: every call is at least as long.
        let Some((fixed, rest)) = message.split_first_chunk::<FIXED_LEN>() else { return Err(cut(message)) };
        let words = fixed.as_chunks::<4>().0;
        let word = |at: usize| u32::from_be_bytes(words[at]);
        let (xid, kind, rpc_version) = (word(0), word(1), word(2));
        if kind != msg_type::CALL as u32 || rpc_version != RPC_VERSION_2 {
            return Err(cut(message));
        }
        let refused = |status| move |error| auth_error(error, xid, status);
        let mut reader = Reader::new(rest);
        let body = reader.padded(word(7), BODY_MAX).map_err(refused(auth_stat::AUTH_BADCRED))?;
        let credential = OpaqueAuth { flavour: word(6), body };
        let verifier = OpaqueAuth::read(&mut reader).map_err(refused(auth_stat::AUTH_BADVERF))?;
        let args = reader.rest();
        Ok(Self { xid, program: word(3), version: word(4), procedure: word(5), credential, verifier, args })
    }
}

/// A call of procedure NULL in its usual form: nothing follows an empty verifier. NULL is answered for any caller, so
/// the credential is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullCall {
    /// Transaction ID, which the reply repeats.
    pub xid: u32,
    /// The program called.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

impl NullCall {
    /// Decodes `message` if it has this form. Any other message is for [`Header::parse`].
    #[inline(always)]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let (fixed, rest) = message.split_first_chunk::<FIXED_LEN>()?;
        let words = fixed.as_chunks::<4>().0;
        let word = |at: usize| u32::from_be_bytes(words[at]);
        let (credential, verifier) = rest.split_last_chunk::<8>()?;
        let (len, padded) = (word(7), credential.len() as u32);
        let is_one = word(5) == NULL
            && word(1) == msg_type::CALL as u32
            && word(2) == RPC_VERSION_2
            && len <= BODY_MAX
            && len.wrapping_add(3) & !3 == padded
            && verifier[4..] == [0; 4];
        is_one.then(|| Self { xid: word(0), program: word(3), version: word(4) })
    }
}

/// Classifies a message that ends within the fixed part, or whose fixed part is not that of a call.
#[cold]
fn cut(message: &[u8]) -> HeaderError {
    let mut reader = Reader::new(message);
    match [reader.u32(), reader.u32(), reader.u32()] {
        // The header of another RPC version may be shorter, so nothing more is read of it.
        [Ok(xid), Ok(kind), Ok(version)] if kind == msg_type::CALL as u32 && version != RPC_VERSION_2 => {
            HeaderError::Refused { xid, refusal: Refusal::RPC_MISMATCH }
        }
        _ => HeaderError::NotACall,
    }
}

#[cold]
fn auth_error(error: XdrError, xid: u32, status: auth_stat) -> HeaderError {
    match error {
        XdrError::TooLong { .. } => HeaderError::Refused { xid, refusal: Refusal::Auth(status) },
        _ => HeaderError::NotACall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Auth, Call};

    fn message(auth: &Auth, args: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        Call { xid: 9, program: 100_003, version: 3, procedure: 1, auth, args }.write(&mut message);
        message
    }

    #[test]
    fn the_clients_calls_can_be_parsed() {
        let auth = Auth::sys("client", 1, 2, &[3]).expect("within limits");
        let message = message(&auth, b"args");
        let header = Header::parse(&message).expect("a call");
        assert_eq!((header.xid, header.program, header.version, header.procedure), (9, 100_003, 3, 1));
        assert_eq!((header.credential.flavour, header.credential.body.len()), (1, 32));
        assert_eq!((header.verifier, header.args), (OpaqueAuth { flavour: 0, body: &[] }, &b"args"[..]));
    }

    #[test]
    fn a_header_cut_anywhere_is_no_call() {
        let message = message(&Auth::sys("client", 1, 2, &[3]).expect("within limits"), &[]);
        for len in 0..message.len() {
            assert_eq!(Header::parse(&message[..len]), Err(HeaderError::NotACall), "{len} bytes");
        }
        let mut reply = message;
        reply[7] = 1;
        assert_eq!(Header::parse(&reply), Err(HeaderError::NotACall));
    }

    #[test]
    fn another_version_is_answered_from_its_third_word_on() {
        let refused = Err(HeaderError::Refused { xid: 9, refusal: Refusal::RpcMismatch { low: 2, high: 2 } });
        let mut message = message(&Auth::none(), &[]);
        message[11] = 3;
        for len in 0..=message.len() {
            let expected = if len < 12 { Err(HeaderError::NotACall) } else { refused };
            assert_eq!(Header::parse(&message[..len]), expected, "{len} bytes");
        }
    }

    #[test]
    fn only_calls_of_null_take_the_short_parse_whatever_their_credential() {
        let sys = |name: &str| Auth::sys(name, 1, 2, &[3]).expect("within limits");
        for auth in [Auth::none(), sys("client"), sys("a-client"), sys("")] {
            let mut null = Vec::new();
            let call = Call { xid: 9, program: 100_003, version: 3, procedure: NULL, auth: &auth, args: &[] };
            call.write(&mut null);
            assert_eq!(NullCall::parse(&null), Some(NullCall { xid: 9, program: 100_003, version: 3 }));
            for len in 0..null.len() {
                assert_eq!(NullCall::parse(&null[..len]), None, "{len} bytes");
            }
            // Messages with trailing bytes, of another procedure or RPC version, or with such a length.
            assert_eq!(NullCall::parse(&[&null[..], &[0; 4]].concat()), None);
            for at in [4, 11, 23, 28, 31, null.len() - 1] {
                let mut other = null.clone();
                other[at] ^= 0x41;
                assert_eq!(NullCall::parse(&other), None, "byte {at}");
            }
        }
        assert_eq!(NullCall::parse(&message(&Auth::none(), b"")), None, "GETATTR");
    }

    #[test]
    fn credentials_longer_than_the_rfc_allows_are_named() {
        let refused = |status| Err(HeaderError::Refused { xid: 9, refusal: Refusal::Auth(status) });
        for (at, status) in [(28, auth_stat::AUTH_BADCRED), (36, auth_stat::AUTH_BADVERF)] {
            let mut message = message(&Auth::none(), &[0; 800]);
            message[at..at + 4].copy_from_slice(&401_u32.to_be_bytes());
            assert_eq!(Header::parse(&message), refused(status));
            message[at..at + 4].copy_from_slice(&400_u32.to_be_bytes());
            assert!(Header::parse(&message).is_ok(), "400 bytes are allowed");
            message.truncate(100);
            assert_eq!(Header::parse(&message), Err(HeaderError::NotACall), "and must be there");
        }
    }
}
