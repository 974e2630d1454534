//! A socket with a fast path in a tokio program: `cargo run --example with_tokio eth0`. A thread receives, as the fast path is only
//! there while a thread looks; tasks do the work and send the answers. It answers datagrams at UDP port 7010 with themselves in
//! capitals, each in a task, and a line on standard input with the counts.
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;
use twinpath::UdpSocket;

/// Datagrams that wait for a task. Further ones are dropped, as the kernel drops what a full socket receives.
const WAITING_MAX: usize = 1024;

type Received = (Vec<u8>, SocketAddr);

/// Receives on a thread of its own, which spins or sleeps as its mode says.
fn receive(socket: &UdpSocket, tasks: &mpsc::Sender<Received>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, from) = match socket.recv_from(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match tasks.try_send((buffer[..len].to_vec(), from)) {
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) | Ok(()) => {}
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    // Attaching takes some tens of milliseconds, and not on a thread of the runtime.
    let socket =
        tokio::task::spawn_blocking(move || UdpSocket::bind("[::]:7010").map(|socket| socket.on(&interface)));
    let socket = socket.await??;
    println!("UDP by the {}", socket.path());
    let (tasks, mut received) = mpsc::channel(WAITING_MAX);
    let receiver = socket.try_clone()?;
    std::thread::spawn(move || receive(&receiver, &tasks).inspect_err(|error| eprintln!("UDP: {error}")));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut answered = 0;
    loop {
        tokio::select! {
            Some((datagram, from)) = received.recv() => {
                let socket = socket.try_clone()?;
                answered += 1;
                tokio::spawn(async move { socket.send_to(&datagram.to_ascii_uppercase(), from) });
            }
            line = lines.next_line() => match line? {
                Some(_) => println!("{answered} answered"),
                // The receiving thread ends with the process.
                None => return Ok(()),
            },
        }
    }
}
