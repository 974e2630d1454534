//! `test/conformance/rds/counted.c` with the library's socket: messages that say what they are, from one port to another. What its
//! words and its output mean is said there.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use twinpath_rds_socket::{RdsError, RdsSocket, default_path};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a receiver waits for a word that only says that its own last one has come.
const FAREWELL: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(100);
const HEAD_LEN: usize = 8;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_right = match words.as_slice() {
        ["receive", at, port, count] => receive(&bound(at, port)?, count.parse()?, None)?,
        ["receive", at, port, count, queue] => {
            let socket = bound(at, port)?;
            socket.set_receive_max(queue.parse()?)?;
            let next = bound(at, &(port.parse::<u16>()? + 1).to_string())?;
            receive(&socket, count.parse()?, Some(&next))?
        }
        ["send", at, port, to, to_port, count, len] => {
            send(&bound(at, port)?, address(to, to_port)?, count.parse()?, len.parse()?)?;
            true
        }
        _ => bail!("see the top of test/conformance/rds/counted.c"),
    };
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn address(host: &str, port: &str) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::new(host.parse()?, port.parse()?))
}

fn bound(host: &str, port: &str) -> anyhow::Result<RdsSocket> {
    let mut socket = RdsSocket::open(&default_path())?;
    socket.bind(address(host, port)?)?;
    Ok(socket)
}

/// Whether something comes.
fn comes(socket: &RdsSocket, within: Duration) -> anyhow::Result<bool> {
    let mut waited = [PollFd::new(socket, PollFlags::IN)];
    Ok(poll(&mut waited, Some(&Timespec::try_from(within)?))? > 0)
}

/// What a message has at each place follows from its number.
fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = [number.to_be_bytes(), (len as u32).to_be_bytes()].concat();
    let at = |place: u32| number.wrapping_mul(2_654_435_761).wrapping_add(place.wrapping_mul(40_503)) >> 13;
    bytes.extend((HEAD_LEN as u32..len as u32).map(|place| at(place) as u8));
    bytes
}

fn receive(socket: &RdsSocket, count: usize, words: Option<&RdsSocket>) -> anyhow::Result<bool> {
    // A message for a port that nobody has is lost.
    println!("ready");
    if let Some(words) = words
        && !comes(words, PATIENCE)?
    {
        bail!("the sender was not refused in a minute");
    }
    let (mut seen, mut bytes) = (vec![false; count], vec![0; 1 << 20]);
    let (mut got, mut doubled, mut disordered, mut wrong, mut last) = (0, 0, 0, 0, 0);
    // The last one ends it; what is missing then is lost, as the order is kept.
    let sender = loop {
        if !comes(socket, PATIENCE)? {
            bail!("nothing for a minute, after {got} messages, the last of them {last}");
        }
        let received = socket.receive(&mut bytes)?;
        let message = &bytes[..received.len];
        got += 1;
        let number = message.first_chunk().map_or(u32::MAX, |number| u32::from_be_bytes(*number));
        if message != payload(number, received.len.max(HEAD_LEN)) || number as usize >= count {
            wrong += 1;
            continue;
        }
        let number = number as usize;
        doubled += u32::from(seen[number]);
        disordered += u32::from(number < last && !seen[number]);
        seen[number] = true;
        last = last.max(number);
        if last + 1 == count {
            break received.from;
        }
    };
    let lost = seen.iter().filter(|&&seen| !seen).count();
    socket.send_to(b"done", sender)?;
    comes(socket, FAREWELL)?;
    println!("received {got}, lost {lost}, doubled {doubled}, disordered {disordered}, wrong {wrong}");
    Ok(lost == 0 && doubled == 0 && disordered == 0 && wrong == 0)
}

fn send(socket: &RdsSocket, to: SocketAddr, count: u32, len: usize) -> anyhow::Result<()> {
    let next = SocketAddr::new(to.ip(), to.port() + 1);
    let (mut refused, mut bytes) = (0, [0; HEAD_LEN]);
    for number in 0..count {
        let message = payload(number, len);
        while let Err(error) = at_once(socket, &message, to) {
            match error {
                RdsError::Call(Errno::AGAIN) => {
                    let mut waited = [PollFd::new(socket, PollFlags::OUT)];
                    // It may be the receiver's queue that holds it up, which only another try tells.
                    poll(&mut waited, Some(&Timespec::try_from(RETRY)?))?;
                }
                RdsError::Call(Errno::NOBUFS) => {
                    refused += 1;
                    if refused == 1 {
                        socket.send_to(b"full", next)?;
                    }
                    // It waits for room there.
                    socket.send_to(&message, to)?;
                    break;
                }
                error => return Err(error).context("send"),
            }
        }
    }
    // What a socket has not delivered goes with it.
    while comes(socket, PATIENCE)? {
        if socket.receive(&mut bytes)?.len == b"done".len() {
            socket.send_to(b"bye", to)?;
            println!("sent {count}, refused {refused}");
            return Ok(());
        }
    }
    bail!("sent {count}, refused {refused}, and the receiver says nothing")
}

/// Sends a message, or says why it would have to wait.
fn at_once(socket: &RdsSocket, message: &[u8], to: SocketAddr) -> Result<(), RdsError> {
    ioctl_fionbio(socket, true).map_err(RdsError::Call)?;
    let sent = socket.send_to(message, to);
    ioctl_fionbio(socket, false).map_err(RdsError::Call)?;
    sent
}
