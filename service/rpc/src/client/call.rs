//! Encodes a call: as a datagram, or as a record in one or more fragments.

use nfs3_types::rpc::{RPC_VERSION_2, auth_flavor, msg_type};

use crate::auth::{BODY_MAX, GIDS_MAX, MACHINE_NAME_MAX};
use crate::record::{MARK_LEN, mark};
use crate::xdr::{padding, write_opaque};

/// Bytes from the xid to the procedure: xid, message type, RPC version, program, version, procedure.
const FIXED_LEN: usize = 24;
/// A verifier of AUTH_NONE: flavour and length.
const VERIFIER: [u8; 8] = [0; 8];

/// A credential, encoded once for all calls made with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Flavour, length, body and padding.
    credential: Vec<u8>,
}

/// The credential exceeds the limits of RFC 5531, appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthTooLong {
    /// The machine name is too long.
    #[error("a machine name of {0} bytes: AUTH_SYS carries at most {MACHINE_NAME_MAX}")]
    MachineName(usize),
    /// The list of groups is too long.
    #[error("{0} further groups: AUTH_SYS carries at most {GIDS_MAX}")]
    Groups(usize),
}

impl Auth {
    /// AUTH_NONE (RFC 5531, 10.1).
    #[must_use]
    pub fn none() -> Self {
        Self { credential: vec![0; 8] }
    }

    /// AUTH_SYS (RFC 5531, appendix A), formerly AUTH_UNIX: the same flavour, number 1.
    ///
    /// # Errors
    /// The machine name or the list of groups is longer than the protocol allows.
    pub fn sys(machine_name: &str, uid: u32, gid: u32, gids: &[u32]) -> Result<Self, AuthTooLong> {
        if machine_name.len() > MACHINE_NAME_MAX as usize {
            return Err(AuthTooLong::MachineName(machine_name.len()));
        }
        if gids.len() > GIDS_MAX as usize {
            return Err(AuthTooLong::Groups(gids.len()));
        }
        let mut body = Vec::new();
        // The stamp: an arbitrary number chosen by the caller.
        body.extend(0_u32.to_be_bytes());
        write_opaque(machine_name.as_bytes(), &mut body);
        let count = gids.len() as u32;
        body.extend([uid, gid, count].iter().chain(gids).flat_map(|number| number.to_be_bytes()));
        debug_assert!(body.len() <= BODY_MAX as usize, "what the limits above add up to");
        let mut credential = (auth_flavor::AUTH_UNIX as u32).to_be_bytes().to_vec();
        write_opaque(&body, &mut credential);
        Ok(Self { credential })
    }
}

/// A call to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Transaction ID, which the reply repeats.
    pub xid: u32,
    /// The program called.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The caller's credential.
    pub auth: &'a Auth,
    /// The procedure's arguments, encoded.
    pub args: &'a [u8],
}

impl Call<'_> {
    /// Length of the message without record marks, bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a call is never empty")]
    pub fn len(&self) -> usize {
        FIXED_LEN + self.auth.credential.len() + VERIFIER.len() + self.args.len()
    }

    fn fixed(&self) -> [u8; FIXED_LEN] {
        let words =
            [self.xid, msg_type::CALL as u32, RPC_VERSION_2, self.program, self.version, self.procedure];
        let mut bytes = [0; FIXED_LEN];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        bytes
    }

    /// Appends the message in the form of a datagram.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        out.extend_from_slice(&self.fixed());
        out.extend_from_slice(&self.auth.credential);
        out.extend_from_slice(&VERIFIER);
        out.extend_from_slice(self.args);
    }

    /// Writes the message in the form of a datagram to the start of `buffer` and returns its length; `None` if it
    /// does not fit.
    pub fn write_to(&self, buffer: &mut [u8]) -> Option<usize> {
        let buffer = buffer.get_mut(..self.len())?;
        let (fixed, rest) = buffer.split_first_chunk_mut::<FIXED_LEN>()?;
        *fixed = self.fixed();
        let (credential, rest) = rest.split_at_mut(self.auth.credential.len());
        credential.copy_from_slice(&self.auth.credential);
        let (verifier, args) = rest.split_at_mut(VERIFIER.len());
        verifier.copy_from_slice(&VERIFIER);
        args.copy_from_slice(self.args);
        Some(self.len())
    }

    /// Appends the message as a record of `fragments` fragments of nearly equal length: at least one, and
    /// never an empty one.
    pub fn write_record(&self, fragments: usize, out: &mut Vec<u8>) {
        let len = self.len();
        let fragments = fragments.clamp(1, len);
        if fragments == 1 {
            out.reserve(MARK_LEN + len);
            out.extend_from_slice(&mark(len as u32, true));
            return self.write(out);
        }
        // The message is written after the room for all marks, then moved fragment by fragment towards the front.
        let start = out.len();
        out.resize(start + fragments * MARK_LEN, 0);
        self.write(out);
        let (mut from, mut to) = (start + fragments * MARK_LEN, start);
        for number in 0..fragments {
            let piece = len / fragments + usize::from(number < len % fragments);
            out[to..to + MARK_LEN].copy_from_slice(&mark(piece as u32, number + 1 == fragments));
            out.copy_within(from..from + piece, to + MARK_LEN);
            from += piece;
            to += MARK_LEN + piece;
        }
    }

    /// Length of the message as a record of this many fragments, bytes.
    #[must_use]
    pub fn record_len(&self, fragments: usize) -> usize {
        self.len() + fragments.clamp(1, self.len()) * MARK_LEN
    }
}

/// The arguments of NFSv3 GETATTR (RFC 1813, 3.3.1), and of all procedures that take only a handle.
#[must_use]
pub fn handle_arguments(handle: &[u8]) -> Vec<u8> {
    let mut args = Vec::with_capacity(4 + handle.len() + padding(handle.len()));
    write_opaque(handle, &mut args);
    args
}

#[cfg(test)]
mod tests {
    use nfs3_types::rpc::{auth_unix, msg_body, rpc_msg};
    use nfs3_types::xdr_codec::Unpack;

    use super::*;
    use crate::record::{RecordLimits, RecordReader};

    fn call<'a>(auth: &'a Auth, args: &'a [u8]) -> Call<'a> {
        Call { xid: 0x0102_0304, program: 100_003, version: 3, procedure: 1, auth, args }
    }

    #[test]
    fn a_call_reads_as_the_library_reads_it() {
        let auth = Auth::sys("client", 1000, 100, &[4, 24]).expect("within limits");
        let args = handle_arguments(b"handle");
        let mut message = Vec::new();
        call(&auth, &args).write(&mut message);
        assert_eq!(message.len(), call(&auth, &args).len());
        let mut rest = message.as_slice();
        let (read, _) = rpc_msg::unpack(&mut rest).expect("a message");
        let msg_body::CALL(body) = read.body else { panic!("not a call: {read:?}") };
        assert_eq!((read.xid, body.rpcvers), (0x0102_0304, 2));
        assert_eq!((body.prog, body.vers, body.proc), (100_003, 3, 1));
        assert_eq!((body.verf.flavor, body.verf.body.len()), (auth_flavor::AUTH_NULL, 0));
        assert_eq!(body.cred.flavor, auth_flavor::AUTH_UNIX);
        let (sys, _) = auth_unix::unpack(&mut &*body.cred.body).expect("a body of AUTH_SYS");
        assert_eq!((&*sys.machinename, sys.uid, sys.gid, sys.gids), (&b"client"[..], 1000, 100, vec![4, 24]));
        assert_eq!(rest, args);
    }

    #[test]
    fn datagram_buffer_and_record_hold_the_same_message() {
        let auth = Auth::none();
        let call = call(&auth, b"args");
        let mut message = Vec::new();
        call.write(&mut message);
        let mut buffer = [0xee; 50];
        assert_eq!(call.write_to(&mut buffer), Some(44));
        assert_eq!((&buffer[..44], &buffer[44..]), (message.as_slice(), &[0xee; 6][..]));
        assert_eq!(call.write_to(&mut [0; 43]), None);
        for fragments in [0, 1, 2, 3, 7, 44, 1000] {
            let mut stream = b"before".to_vec();
            call.write_record(fragments, &mut stream);
            assert_eq!(stream.len(), 6 + call.record_len(fragments));
            let limits = RecordLimits { record_bytes: 44, fragments: 44 };
            let mut input = &stream[6..];
            let mut reader = RecordReader::new(limits);
            assert_eq!(reader.next(&mut input), Ok(Some(message.as_slice())), "{fragments} fragments");
            assert!(input.is_empty());
        }
    }

    #[test]
    fn fragments_are_as_equal_as_they_can_be() {
        let auth = Auth::none();
        let mut stream = Vec::new();
        call(&auth, b"").write_record(3, &mut stream);
        assert_eq!(stream[..4], mark(14, false));
        assert_eq!(stream[18..22], mark(13, false));
        assert_eq!(stream[35..39], mark(13, true));
    }

    #[test]
    fn a_credential_beyond_the_protocols_limits_is_refused() {
        assert!(Auth::sys(&"m".repeat(255), 0, 0, &[0; 16]).is_ok());
        assert_eq!(Auth::sys(&"m".repeat(256), 0, 0, &[]), Err(AuthTooLong::MachineName(256)));
        assert_eq!(Auth::sys("m", 0, 0, &[0; 17]), Err(AuthTooLong::Groups(17)));
    }
}
