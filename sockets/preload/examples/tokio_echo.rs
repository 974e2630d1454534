//! A program of tokio that knows nothing of this library: it sends datagrams back, each from a task, until an empty one comes. Tasks and a
//! timer share the loop with the socket. The tests run it under the library.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// Datagrams that wait for the task that sends.
const WAITING_MAX: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("0.0.0.0:7071".to_owned());
    let socket = Arc::new(UdpSocket::bind(address).await?);
    let (to_sender, mut to_be_sent) = mpsc::channel::<(Vec<u8>, SocketAddr)>(WAITING_MAX);
    let sender = Arc::clone(&socket);
    let sends = tokio::spawn(async move {
        while let Some((datagram, to)) = to_be_sent.recv().await {
            sender.send_to(&datagram, to).await?;
        }
        io::Result::Ok(())
    });
    println!("ready");
    let (mut buffer, mut ticks) = ([0; 2048], tokio::time::interval(Duration::from_millis(3)));
    loop {
        tokio::select! {
            read = socket.recv_from(&mut buffer) => {
                let (len, from) = read?;
                if len == 0 {
                    break;
                }
                if to_sender.send((buffer[..len].to_vec(), from)).await.is_err() {
                    break;
                }
            }
            _ = ticks.tick() => {}
        }
    }
    drop(to_sender);
    sends.await?
}
