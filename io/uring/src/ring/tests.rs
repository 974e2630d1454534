//! The ring against real sockets: what is bounded, what is given back, what is told.

use rustix::event::epoll;
use rustix::io::write;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

const CONFIG: RingConfig = RingConfig { entries: 8, completions: 64, buffers: 8, buffer_bytes: 1000 };
const KEY: Key = Key { number: 7, generation: 3 };

fn ring() -> Ring {
    let mut ring = Ring::new(&CONFIG).expect("io_uring is allowed here");
    ring.enable().expect("enabled");
    ring
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair")
}

/// Bytes that came, whether the receive is armed still, and what ended it.
fn received(ring: &mut Ring) -> (usize, bool, Option<Result<(), Errno>>) {
    ring.enter();
    let (mut got, mut still, mut ended) = (0, true, None);
    while let Some(completion) = ring.take() {
        match completion {
            Completion::Received { key, buffer, armed } => {
                assert_eq!((key, ring.bytes(&buffer).len()), (KEY, buffer.len()));
                (got, still) = (got + buffer.len(), armed);
                ring.give(buffer);
            }
            Completion::ReceiveEnded { key, why } => {
                assert_eq!(key, KEY);
                (still, ended) = (false, Some(why));
            }
            other => panic!("{other:?}"),
        }
    }
    (got, still, ended)
}

#[test]
fn an_armed_receive_takes_what_it_may_and_no_more() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    ring.receive(ours.as_fd(), KEY, 3500);
    assert_eq!(received(&mut ring), (0, true, None));
    for _ in 0..2 {
        write(&theirs, &[1; 1200]).expect("written");
        assert_eq!(received(&mut ring), (1200, true, None));
    }
    write(&theirs, &[1; 2000]).expect("written");
    assert_eq!(received(&mut ring), (1000, false, None));
    assert_eq!(received(&mut ring), (0, true, None), "nothing is armed");
    // Less than two buffers: as much as may be of one.
    ring.receive(ours.as_fd(), KEY, 400);
    assert_eq!(received(&mut ring), (400, false, None));
    ring.receive(ours.as_fd(), KEY, 2500);
    drop(theirs);
    assert_eq!(received(&mut ring), (600, false, Some(Ok(()))));
}

#[test]
fn no_buffer_ends_a_receive_and_one_given_back_lets_it_go_on() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    write(&theirs, &[1; 9000]).expect("written");
    ring.receive(ours.as_fd(), KEY, 1 << 20);
    ring.enter();
    let mut held = Vec::new();
    let why = loop {
        match ring.take().expect("it ends") {
            Completion::Received { buffer, .. } => held.push(buffer),
            Completion::ReceiveEnded { why, .. } => break why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((held.len(), why), (8, Err(Errno::NOBUFS)));
    held.into_iter().for_each(|buffer| ring.give(buffer));
    ring.receive(ours.as_fd(), KEY, 1 << 20);
    assert_eq!(received(&mut ring), (1000, true, None));
}

#[test]
fn its_descriptor_tells_what_memory_tells() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    epoll::add(
        &set,
        ring.as_fd(),
        epoll::EventData::new_u64(1),
        epoll::EventFlags::IN | epoll::EventFlags::ET,
    )
    .expect("watched");
    let told = || {
        let mut events = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 4];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&set, &mut events, Some(&now)).expect("looked").0.len()
    };
    ring.receive(ours.as_fd(), KEY, 10_000);
    ring.enter();
    for _ in 0..3 {
        write(&theirs, &[1; 10]).expect("written");
        assert_eq!((told(), ring.has_news(), ring.has_completions()), (0, true, false));
        ring.tell();
        assert_eq!(told(), 1, "what is there already");
        ring.tell_no_more();
        assert_eq!(received(&mut ring), (10, true, None));
        ring.tell();
        assert_eq!((told(), ring.has_news()), (0, false));
        write(&theirs, &[1; 10]).expect("written");
        assert_eq!((told(), told()), (1, 0), "once");
        ring.tell_no_more();
        assert_eq!(received(&mut ring), (10, true, None));
    }
}

#[test]
fn a_send_gives_its_bytes_back_and_says_how_many_were_taken() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    let sent = |ring: &mut Ring, bytes: usize| {
        ring.send(ours.as_fd(), KEY, vec![5; bytes]);
        ring.enter();
        match ring.take() {
            Some(Completion::Sent { key, bytes: back, taken }) => {
                assert_eq!((key, back.len()), (KEY, bytes));
                taken
            }
            other => panic!("a send is over at once: {other:?}"),
        }
    };
    assert_eq!(sent(&mut ring, 1000), Ok(1000));
    let mut taken = 0;
    let refused = loop {
        match sent(&mut ring, 300_000) {
            Ok(some) => taken += some,
            Err(error) => break error,
        }
    };
    assert!(taken > 0);
    assert_eq!(refused, Errno::AGAIN);
    ring.watch_writable(ours.as_fd(), KEY);
    ring.enter();
    assert!(ring.take().is_none());
    let mut sink = vec![0; 1 << 20];
    while rustix::io::read(&theirs, &mut sink).is_ok() {}
    ring.enter();
    assert!(matches!(ring.take(), Some(Completion::Writable { key: KEY })));
    drop(theirs);
    assert_eq!(sent(&mut ring, 10), Err(Errno::PIPE));
}

#[test]
fn a_closed_descriptor_is_let_go_of_and_its_receive_ends() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    ring.receive(ours.as_fd(), KEY, 1 << 20);
    // Armed, cancelled and closed before anything was submitted.
    ring.close(ours, KEY, true, false);
    assert_eq!(received(&mut ring), (0, false, Some(Err(Errno::CANCELED))));
    assert_eq!(write(&theirs, b"x"), Err(Errno::PIPE));
}

#[test]
fn a_ring_that_is_dropped_lets_go_of_its_sockets() {
    let mut ring = ring();
    let (ours, theirs) = pair();
    ring.receive(ours.as_fd(), KEY, 1 << 20);
    assert_eq!(received(&mut ring), (0, true, None));
    drop(ours);
    write(&theirs, b"x").expect("the armed receive keeps the socket");
    // This thread lives on, and the kernel takes a moment.
    drop(ring);
    let mut fds = [rustix::event::PollFd::new(&theirs, PollFlags::empty())];
    let deadline = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&deadline)), Ok(1), "the socket is still there");
}

#[test]
fn a_buffer_of_another_ring_is_neither_read_nor_given_to_the_kernel() {
    let mut other = Ring::new(&RingConfig { buffers: 16, buffer_bytes: 4000, ..CONFIG }).expect("a ring");
    other.enable().expect("enabled");
    let lend = |ring: &mut Ring, bytes: usize| {
        let (ours, theirs) = pair();
        write(&theirs, &vec![1; bytes]).expect("written");
        ring.receive(ours.as_fd(), KEY, 1 << 20);
        ring.enter();
        std::iter::from_fn(|| ring.take())
            .filter_map(|completion| match completion {
                Completion::Received { buffer, .. } => Some(buffer),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let panics = |call: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err("not one of its own")
    };
    let mut ring = ring();
    let foreign = lend(&mut other, 9 * 4000);
    assert_eq!(foreign.len(), 9);
    // None of its own is lent; and a number that it does not have.
    for buffer in foreign {
        panics(&mut || assert!(!ring.bytes(&buffer).is_empty()));
        let mut buffer = Some(buffer);
        panics(&mut || ring.give(buffer.take().expect("given once")));
    }
    // One of that number is lent, but smaller.
    let own = lend(&mut ring, 10);
    let foreign = lend(&mut other, 4000);
    assert_eq!((own.len(), foreign.len()), (1, 1));
    panics(&mut || assert!(!ring.bytes(&foreign[0]).is_empty()));
    assert_eq!(ring.bytes(&own[0]), [1; 10]);
    own.into_iter().for_each(|buffer| ring.give(buffer));
    // All of its own are there still, each once.
    assert_eq!(lend(&mut ring, 9000).len(), 8);
}

#[test]
fn more_than_fits_into_the_queue_is_submitted_all_the_same() {
    let mut ring = ring();
    let pairs: Vec<_> = (0..50).map(|_| pair()).collect();
    for (number, (ours, theirs)) in (0..).zip(&pairs) {
        ring.receive(ours.as_fd(), Key { number, generation: 0 }, 100);
        ring.send(theirs.as_fd(), Key { number, generation: 0 }, vec![7; 100]);
    }
    let (mut sent, mut got) = (0, 0);
    while ring.has_news() {
        ring.enter();
        while let Some(completion) = ring.take() {
            match completion {
                Completion::Received { key, buffer, .. } => {
                    got += ring.bytes(&buffer).len();
                    ring.give(buffer);
                    assert!(key.number < 50);
                }
                Completion::Sent { taken, .. } => sent += taken.expect("there is room"),
                Completion::ReceiveEnded { key, why: Err(Errno::NOBUFS) } => {
                    ring.receive(pairs[key.number as usize].0.as_fd(), key, 100);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((sent, got), (5000, 5000));
}

#[test]
fn a_probe_says_yes_here() {
    assert_eq!(crate::probe(), Ok(()));
}
