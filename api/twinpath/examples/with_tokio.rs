//! A socket with a fast path in a tokio program: `cargo run --example with_tokio eth0`. One thread
//! receives, because the fast path works only while a thread polls it. Tasks do the work and send the
//! answers. Each datagram at UDP port 7010 is answered by a task of its own, with the same text in
//! capitals. A line on standard input prints the counts.
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;
use twinpath::UdpSocket;

/// Maximum number of datagrams that wait for a task. Further ones are dropped, as the kernel does when a
/// socket's buffer is full.
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
    // Attaching takes some tens of milliseconds, so it is not done on a thread of the runtime.
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
