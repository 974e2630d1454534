//! The bare RPC server of `twinpath plain tcp-null` over io_uring, to compare it with epoll under the same client:
//! `uring_null ADDRESS:PORT wait|poll`. Multishot accept and receive, registered buffers, one send per receive. It is no part of
//! the product: docs/decisions/0006 has what it showed.
#![allow(
    unsafe_code,
    reason = "io_uring's queues are shared with the kernel; each block says what keeps its memory alive"
)]

use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Buffers registered, a power of two, and bytes of each.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: usize = 16 << 10;
const GROUP: u16 = 1;
const ENTRIES: u32 = 256;

/// A NULL reply behind its record mark; the xid is written over bytes 4 to 8 (RFC 5531, section 9).
const REPLY: [u8; 28] =
    [0x80, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What a completion is of: the upper half says what, the lower which.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Buffers that the kernel receives into, and the ring by which it is told which are free.
struct Buffers {
    ring: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl Buffers {
    fn register(uring: &IoUring) -> Self {
        let ring_bytes = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let page = |bytes| Layout::from_size_align(bytes, 4096).expect("sizes are constants");
        // SAFETY: the layouts are not empty; both live until the process ends.
        let (ring, memory) = unsafe {
            (alloc_zeroed(page(ring_bytes)).cast(), alloc_zeroed(page(usize::from(BUFFERS) * BUFFER_BYTES)))
        };
        let mut buffers = Self { ring, memory, tail: 0 };
        // SAFETY: the ring is page-aligned, as large as said, and never freed.
        unsafe { uring.submitter().register_buf_ring_with_flags(ring as u64, BUFFERS, GROUP, 0) }
            .expect("Linux 5.19 or later");
        (0..BUFFERS).for_each(|id| buffers.give(id));
        buffers
    }

    fn bytes(&self, id: u16, len: usize) -> &[u8] {
        // SAFETY: the kernel has given buffer `id` with `len` bytes in it, and writes to it again only after `give`.
        unsafe { std::slice::from_raw_parts(self.memory.add(usize::from(id) * BUFFER_BYTES), len) }
    }

    /// Lets the kernel have a buffer again.
    fn give(&mut self, id: u16) {
        let at = usize::from(self.tail % BUFFERS);
        // SAFETY: the entry is within the ring, and ours until the tail passes it; its address is that of a buffer.
        unsafe {
            let entry = &mut *self.ring.add(at);
            entry.set_addr(self.memory.add(usize::from(id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail stands in the ring's first entry, where the kernel reads it (struct io_uring_buf_ring).
        unsafe {
            let tail = BufRingEntry::tail(self.ring).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// A connection: the part of a record that is here, and the replies that the kernel is sending.
#[derive(Default)]
struct Connection {
    part: Vec<u8>,
    replies: Vec<u8>,
    sending: Vec<u8>,
    is_sending: bool,
}

impl Connection {
    fn answer(&mut self, input: &[u8]) {
        let joined;
        let mut rest = if self.part.is_empty() {
            input
        } else {
            joined = [std::mem::take(&mut self.part).as_slice(), input].concat();
            joined.as_slice()
        };
        while let Some((mark, body)) = rest.split_first_chunk::<4>() {
            let len = (u32::from_be_bytes(*mark) & !(1 << 31)) as usize;
            if body.len() < len || len < 4 {
                break;
            }
            let mut reply = REPLY;
            reply[4..8].copy_from_slice(&body[..4]);
            self.replies.extend_from_slice(&reply);
            rest = &body[len..];
        }
        self.part = rest.to_vec();
    }
}

struct Server {
    uring: IoUring,
    buffers: Buffers,
    connections: HashMap<i32, Box<Connection>>,
    listener: std::net::TcpListener,
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what an entry points to is a connection's `sending`, which is left alone until its completion, or nothing.
        unsafe { self.uring.submission().push(entry) }.expect("fewer than ENTRIES between two submissions");
    }

    fn accept(&mut self) {
        let listener = Fd(self.listener.as_raw_fd());
        self.push(&opcode::AcceptMulti::new(listener).build().user_data(ACCEPT << 32));
    }

    fn receive(&mut self, fd: i32) {
        self.push(&opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(RECEIVE << 32 | fd as u64));
    }

    /// Sends what is gathered, if nothing is on its way.
    fn send(&mut self, fd: i32) {
        let Some(connection) = self.connections.get_mut(&fd) else { return };
        if connection.is_sending || connection.replies.is_empty() {
            return;
        }
        connection.is_sending = true;
        connection.sending.clear();
        std::mem::swap(&mut connection.sending, &mut connection.replies);
        let (bytes, len) = (connection.sending.as_ptr(), connection.sending.len() as u32);
        // MSG_WAITALL: all of it, however often the socket is full.
        let send = opcode::Send::new(Fd(fd), bytes, len).flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
        self.push(&send.build().user_data(SEND << 32 | fd as u64));
    }

    fn close(&mut self, fd: i32) {
        if self.connections.remove(&fd).is_some() {
            let all = CancelBuilder::fd(Fd(fd)).all();
            let _ = self.uring.submitter().register_sync_cancel(None, all);
            // SAFETY: the descriptor was accepted here, and its connection is forgotten with it.
            unsafe { libc::close(fd) };
        }
    }

    fn completed(&mut self, user_data: u64, result: i32, flags: u32) {
        let fd = user_data as u32 as i32;
        match user_data >> 32 {
            ACCEPT => {
                if result >= 0 {
                    let on: libc::c_int = 1;
                    // SAFETY: the descriptor is open, and the option's value an int of the length given.
                    unsafe {
                        let option = (&raw const on).cast();
                        libc::setsockopt(result, libc::IPPROTO_TCP, libc::TCP_NODELAY, option, 4);
                    }
                    self.connections.insert(result, Box::default());
                    self.receive(result);
                }
                if !cqueue::more(flags) {
                    self.accept();
                }
            }
            RECEIVE => {
                if let Some(id) = cqueue::buffer_select(flags) {
                    if let Some(connection) = self.connections.get_mut(&fd) {
                        connection.answer(self.buffers.bytes(id, result.max(0) as usize));
                    }
                    self.buffers.give(id);
                    self.send(fd);
                }
                // Out of buffers: those were given back meanwhile.
                if result == -libc::ENOBUFS || result > 0 && !cqueue::more(flags) {
                    self.receive(fd);
                } else if result <= 0 {
                    self.close(fd);
                }
            }
            _ => {
                if let Some(connection) = self.connections.get_mut(&fd) {
                    connection.is_sending = false;
                }
                self.send(fd);
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, how] = arguments.as_slice() else { panic!("ADDRESS:PORT wait|poll") };
    let mut builder = IoUring::builder();
    // One thread, and completions when it asks for them: no interrupts between (io_uring_setup(2)).
    builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(4 * ENTRIES);
    let uring = builder.build(ENTRIES).expect("io_uring is allowed");
    let buffers = Buffers::register(&uring);
    let listener = std::net::TcpListener::bind(address).expect("free");
    let mut server = Server { uring, buffers, connections: HashMap::new(), listener };
    server.accept();
    println!("ready");
    let mut completions = Vec::with_capacity(4 * ENTRIES as usize);
    loop {
        if how == "wait" {
            let _ = server.uring.submit_and_wait(1);
        } else {
            // Submits, and has the kernel do what is pending, without waiting.
            let pending = server.uring.submission().len() as u32;
            // SAFETY: no argument is passed that could be wrong.
            let _ = unsafe { server.uring.submitter().enter::<()>(pending, 0, GETEVENTS, None) };
        }
        let ready = server.uring.completion();
        completions.extend(ready.map(|entry| (entry.user_data(), entry.result(), entry.flags())));
        for (user_data, result, flags) in completions.drain(..) {
            server.completed(user_data, result, flags);
        }
    }
}

/// `IORING_ENTER_GETEVENTS` of linux/io_uring.h.
const GETEVENTS: u32 = 1;
