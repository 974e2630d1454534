//! One loop with a socket of ours, a kernel TCP socket, a pipe and a timer.

use std::io::{ErrorKind, PipeWriter, Read as _, Write as _, pipe};
use std::net::{TcpListener, TcpStream, UdpSocket as KernelSocket};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use twinpath_leases::sockets::{Interest, Poll};
use twinpath_worker::idle::Mode;

use crate::Link;

const ROUNDS: u32 = 300;

fn tell(pipe: &mut PipeWriter) {
    pipe.write_all(b"!").unwrap();
}

#[test]
fn all_kinds_are_told_of_while_it_spins_and_while_it_sleeps() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7004");
    socket.set_nonblocking(true).unwrap();
    let peer = link.peer("10.9.0.2:0");
    peer.connect("10.9.0.1:7004").unwrap();
    let (mut reader, mut writer) = pipe().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    let every = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let setting = Itimerspec { it_interval: every, it_value: every };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).unwrap();
    for mode in [Mode::Interrupt, Mode::Poll, Mode::Adaptive] {
        let mut poll = Poll::new().unwrap();
        poll.set_mode(mode);
        assert_eq!(poll.wait(Some(Duration::ZERO)).unwrap(), []);
        poll.add_socket(&socket, 1).unwrap();
        poll.add(&reader, 2, Interest::Readable).unwrap();
        poll.add(&server, 3, Interest::Readable).unwrap();
        poll.add(&timer, 4, Interest::Readable).unwrap();
        let (mut datagrams, mut bytes, mut stream, mut ticks) = (0, 0, 0, 0);
        peer.send(&0u32.to_ne_bytes()).unwrap();
        let begun = Instant::now();
        // On a machine that is busy, leases lapse before a datagram comes.
        let is_enough =
            || mode != Mode::Poll || socket.counts().by_ring > 0 || begun.elapsed() > crate::PATIENCE;
        while datagrams < ROUNDS || stream < datagrams || ticks < 20 || !is_enough() {
            let events = poll.wait(Some(crate::PATIENCE)).unwrap().to_vec();
            assert!(!events.is_empty(), "{mode}: {datagrams} {bytes} {stream} {ticks} {:?}", socket.counts());
            let mut buffer = [0; 64];
            for event in events {
                assert!(event.readable && !event.writable);
                match event.token {
                    // Level-triggered: one datagram, and whatever else there is in the next call.
                    1 => {
                        assert_eq!(socket.recv(&mut buffer).unwrap(), 4);
                        assert_eq!(buffer[..4], u32::to_ne_bytes(datagrams));
                        datagrams += 1;
                        if bytes < datagrams {
                            tell(&mut writer)
                        }
                    }
                    2 => {
                        bytes += reader.read(&mut buffer[..1]).unwrap() as u32;
                        if stream < bytes {
                            client.write_all(b"?").unwrap()
                        }
                    }
                    3 => {
                        stream += server.read(&mut buffer[..1]).unwrap() as u32;
                        if datagrams < ROUNDS || !is_enough() {
                            peer.send(&datagrams.to_ne_bytes()).unwrap();
                        }
                    }
                    4 => {
                        ticks += 1;
                        rustix::io::read(&timer, &mut buffer[..8]).unwrap();
                    }
                    other => panic!("{other}"),
                }
            }
        }
        println!("{mode}: {:?}", socket.counts());
        poll.remove_socket(&socket).unwrap();
    }
    let counts = socket.counts();
    assert!(counts.by_ring > 0 && counts.by_kernel > 0, "{counts:?}");
}

/// It looks at the kernel's socket now and then, but for this.
#[test]
fn what_the_kernel_tells_of_is_received_by_the_next_call() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7005");
    socket.set_nonblocking(true).unwrap();
    let peer = link.peer("10.9.0.2:0");
    let local = link.ours.run(|| KernelSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let mut poll = Poll::new().unwrap();
    poll.set_mode(Mode::Poll);
    poll.add_socket(&socket, 1).unwrap();
    let mut buffer = [0; 8];
    for round in 0..300u32 {
        peer.send_to(&round.to_ne_bytes(), "10.9.0.1:7005").unwrap();
        while socket.recv(&mut buffer).is_err() {
            assert_ne!(poll.wait(Some(crate::PATIENCE)).unwrap(), []);
        }
        assert_eq!(buffer[..4], round.to_ne_bytes());
        // It has just looked.
        assert_eq!(socket.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        local.send_to(&round.to_ne_bytes(), "127.0.0.1:7005").unwrap();
        assert_ne!(poll.wait(Some(crate::PATIENCE)).unwrap(), []);
        assert_eq!(socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{round}: {error}")), 4);
        assert_eq!(buffer[..4], round.to_ne_bytes());
    }
}
