//! One application loop with a UDP socket that has a fast path, kernel TCP connections, a pipe, a timer and
//! a file on disk: `cargo run --example event_loop eth0 /etc/services`. It echoes at UDP and TCP port 7008,
//! echoes lines from standard input, and counts the bytes and lines of the file. epoll refuses regular
//! files, so io_uring reads the file and signals completion by an eventfd.
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use twinpath::{Interest, Poll, UdpSocket};
use twinpath_test_plain::FileRing;

const UDP: u64 = 0;
const LISTENER: u64 = 1;
const PIPE: u64 = 2;
const TIMER: u64 = 3;
const DISK: u64 = 4;
/// The first token of a connection.
const CONNECTIONS: u64 = 100;

/// A file read in parts: each part is requested when the previous one has arrived.
struct Disk {
    file: File,
    ring: FileRing,
    read_bytes: u64,
    lines: usize,
}

impl Disk {
    /// Starts reading. Returns `None` if io_uring is refused; the file has then been read already.
    fn start(path: &str) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        match FileRing::new(1 << 16) {
            Ok(mut ring) => {
                ring.submit(&file, 0)?;
                Ok(Some(Self { file, ring, read_bytes: 0, lines: 0 }))
            }
            Err(error) => {
                println!(
                    "io_uring is refused ({error}), so read() reads the file, and the loop waits for the disk"
                );
                let bytes = std::fs::read(path)?;
                println!("file: {} bytes, {} lines by read()", bytes.len(), lines(&bytes));
                Ok(None)
            }
        }
    }

    /// Takes the part that has arrived and requests the next one; true at the end of the file.
    fn take(&mut self) -> io::Result<bool> {
        let Some(part) = self.ring.completion()? else { return Ok(false) };
        if part.is_empty() {
            println!("file: {} bytes, {} lines by io_uring", self.read_bytes, self.lines);
            return Ok(true);
        }
        self.read_bytes += part.len() as u64;
        self.lines += lines(part);
        self.ring.submit(&self.file, self.read_bytes)?;
        Ok(false)
    }
}

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn every_second() -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Itimerspec { it_interval: second, it_value: second };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
    Ok(timer)
}

/// Work of io_uring for a thread interrupts its calls, as a signal does: then nothing is ready.
fn interrupted<T>(error: io::Error) -> io::Result<Vec<T>> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(error) }
}

fn main() -> io::Result<()> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    let socket = UdpSocket::bind("[::]:7008")?.on(&interface);
    println!("UDP by the {}", socket.path());
    socket.set_nonblocking(true)?;
    let listener = TcpListener::bind("[::]:7008")?;
    let timer = every_second()?;

    let mut poll = Poll::new()?;
    poll.add_socket(&socket, UDP)?;
    poll.add(&listener, LISTENER, Interest::Readable)?;
    poll.add(io::stdin(), PIPE, Interest::Readable)?;
    poll.add(&timer, TIMER, Interest::Readable)?;

    let mut disk = std::env::args().nth(2).map(|path| Disk::start(&path)).transpose()?.flatten();
    if let Some(disk) = &disk {
        poll.add(&disk.ring, DISK, Interest::Readable)?;
    }

    let mut connections: HashMap<u64, TcpStream> = HashMap::new();
    let (mut next, mut buffer) = (CONNECTIONS, vec![0; 1 << 16]);
    let mut seen = socket.counts();
    loop {
        for event in poll.wait(None).map(<[_]>::to_vec).or_else(interrupted)? {
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
                DISK => {
                    if let Some(reading) = &mut disk
                        && reading.take()?
                    {
                        poll.remove(&reading.ring)?;
                        disk = None;
                    }
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
