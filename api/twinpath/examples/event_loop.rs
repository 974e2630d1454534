//! One loop of an application with a UDP socket that has a fast path, kernel TCP connections, a pipe and a timer:
//! `cargo run --example event_loop eth0`. It echoes at UDP and TCP port 7008, and a line on standard input.
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use twinpath::{Interest, Poll, UdpSocket};

const UDP: u64 = 0;
const LISTENER: u64 = 1;
const PIPE: u64 = 2;
const TIMER: u64 = 3;
/// Connections have tokens from here on.
const CONNECTIONS: u64 = 100;

fn main() -> io::Result<()> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    let socket = UdpSocket::bind("[::]:7008")?.on(&interface);
    println!("UDP by the {}", socket.path());
    socket.set_nonblocking(true)?;
    let listener = TcpListener::bind("[::]:7008")?;
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let every_second = Itimerspec { it_interval: second, it_value: second };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every_second)?;

    let mut poll = Poll::new()?;
    poll.add_socket(&socket, UDP)?;
    poll.add(&listener, LISTENER, Interest::Readable)?;
    poll.add(io::stdin(), PIPE, Interest::Readable)?;
    poll.add(&timer, TIMER, Interest::Readable)?;

    let mut connections: HashMap<u64, TcpStream> = HashMap::new();
    let (mut next, mut buffer) = (CONNECTIONS, vec![0; 1 << 16]);
    let mut seen = socket.counts();
    loop {
        for event in poll.wait(None)?.to_vec() {
            match event.token {
                UDP => match socket.recv_from(&mut buffer) {
                    Ok((len, from)) => drop(socket.send_to(&buffer[..len], from)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => eprintln!("UDP: {error}"),
                },
                LISTENER => {
                    let (connection, _) = listener.accept()?;
                    poll.add(&connection, next, Interest::Readable)?;
                    connections.insert(next, connection);
                    next += 1;
                }
                PIPE => match io::stdin().read(&mut buffer)? {
                    0 => return Ok(()),
                    len => print!("read: {}", String::from_utf8_lossy(&buffer[..len])),
                },
                TIMER => {
                    rustix::io::read(&timer, &mut [0; 8][..])?;
                    let counts = socket.counts();
                    if counts != seen {
                        println!("UDP: {} by the ring, {} by the kernel", counts.by_ring, counts.by_kernel);
                    }
                    seen = counts;
                }
                token => {
                    let Some(connection) = connections.get_mut(&token) else { continue };
                    let len = connection.read(&mut buffer).unwrap_or(0);
                    if len == 0 || connection.write_all(&buffer[..len]).is_err() {
                        poll.remove(&*connection)?;
                        connections.remove(&token);
                    }
                }
            }
        }
    }
}
