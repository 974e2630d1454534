//! An ordinary kernel TCP service on the measured interface, in use during the whole lab, to show that the fast path
//! does not affect it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use twinpath_sys::Namespace;

/// Few requests per second, so that the bystander does not affect the measurement either.
const PERIOD: Duration = Duration::from_millis(50);
/// A request unanswered for this long has failed.
const REPLY_DEADLINE: Duration = Duration::from_secs(2);
/// Requests after which the connection is closed and a new one opened, so that handshakes are tested too.
const REQUESTS_PER_CONNECTION: u32 = 20;
const REQUEST_LEN: usize = 64;

/// The bystander's results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) connections: u64,
    pub(crate) longest_us: f64,
    /// The first failure.
    pub(crate) reason: Option<String>,
}

/// The thread that sends requests.
#[derive(Debug)]
pub(crate) struct Bystander {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Bystander {
    /// Starts requests to `server` (an echo service) from within `namespace`.
    pub(crate) fn start(namespace: &Namespace, server: SocketAddr) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let namespace = namespace.duplicate()?;
        let thread = std::thread::Builder::new()
            .name("bystander".to_owned())
            .spawn(move || {
                let entered = namespace.run(move || ask_until(&stopped, server));
                entered.unwrap_or_else(|error| Seen {
                    failed: 1,
                    reason: Some(error.to_string()),
                    ..Seen::default()
                })
            })
            .context("cannot start the thread of the TCP bystander")?;
        Ok(Self { stop, thread })
    }

    /// Ends it and returns its results.
    pub(crate) fn finish(self) -> anyhow::Result<Seen> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow::anyhow!("the TCP bystander panicked"))
    }
}

fn ask_until(stopped: &mpsc::Receiver<()>, server: SocketAddr) -> Seen {
    let mut seen = Seen::default();
    let mut connection: Option<(TcpStream, u32)> = None;
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let begun = Instant::now();
        seen.requests += 1;
        match ask_once(&mut connection, server, &mut seen) {
            Ok(()) => seen.longest_us = seen.longest_us.max(begun.elapsed().as_secs_f64() * 1e6),
            Err(error) => {
                seen.failed += 1;
                seen.reason.get_or_insert_with(|| format!("request {}: {error}", seen.requests));
                connection = None;
            }
        }
    }
    seen
}

fn ask_once(
    connection: &mut Option<(TcpStream, u32)>,
    server: SocketAddr,
    seen: &mut Seen,
) -> std::io::Result<()> {
    if connection.as_ref().is_none_or(|(_, asked)| *asked >= REQUESTS_PER_CONNECTION) {
        let stream = TcpStream::connect_timeout(&server, REPLY_DEADLINE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_DEADLINE))?;
        seen.connections += 1;
        *connection = Some((stream, 0));
    }
    let Some((stream, asked)) = connection else { return Ok(()) };
    let mut request = [0; REQUEST_LEN];
    request[..8].copy_from_slice(&seen.requests.to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = [0; REQUEST_LEN];
    stream.read_exact(&mut reply)?;
    *asked += 1;
    if reply != request {
        return Err(std::io::Error::other("the reply is not the request"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn it_counts_what_is_answered_and_says_what_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; REQUEST_LEN];
            for wrong in [false, true] {
                stream.read_exact(&mut request).unwrap();
                request[9] = u8::from(wrong);
                stream.write_all(&request).unwrap();
            }
        });
        let mut seen = Seen::default();
        let mut connection = None;
        ask_once(&mut connection, server, &mut seen).unwrap();
        assert!(ask_once(&mut connection, server, &mut seen).is_err());
        assert_eq!(seen.connections, 1);
        echo.join().unwrap();
        // The server is gone: a new connection is refused.
        assert!(ask_once(&mut None, server, &mut seen).is_err());
    }
}
