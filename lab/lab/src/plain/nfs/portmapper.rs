//! A portmapper that accepts every registration: ganesha must register with one (RFC 1833), though no client here asks
//! it for ports.
//!
//! It answers on the socket of rpcbind(8) in the server's own `/run`. A second program for it would drop its
//! privileges, and with them the signal that ends it with its parent.

use std::io::{Error, Result};
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use twinpath_test_plain::LAST_FRAGMENT;

/// The path where libtirpc and libntirpc expect rpcbind; `/var/run` is a link to `/run`.
const SOCKET: &str = "/run/rpcbind.sock";
/// A registration takes some 150 bytes.
const CALL_MAX: usize = 8192;

/// Answers for as long as it is polled.
pub(super) async fn answer() -> Result<std::convert::Infallible> {
    let listener = UnixListener::bind(Path::new(SOCKET))?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A caller that disconnects has its answer, or logs the reason.
        tokio::spawn(answer_one(stream));
    }
}

async fn answer_one(mut stream: UnixStream) -> Result<()> {
    let mut call = vec![0; CALL_MAX];
    loop {
        let length = (stream.read_u32().await? & !LAST_FRAGMENT) as usize;
        let call = call.get_mut(..length).ok_or_else(|| Error::other("a call too long"))?;
        stream.read_exact(call).await?;
        let transaction =
            call.first_chunk().copied().map(u32::from_be_bytes).ok_or_else(|| Error::other("no call"))?;
        stream.write_all(&yes(transaction)).await?;
    }
}

/// REPLY, accepted, no verifier, success (RFC 5531, section 9), and a result of TRUE.
fn yes(transaction: u32) -> Vec<u8> {
    let words = [transaction, 1, 0, 0, 0, 0, 1];
    let record = std::iter::once(LAST_FRAGMENT | (4 * words.len() as u32)).chain(words);
    record.flat_map(u32::to_be_bytes).collect()
}
