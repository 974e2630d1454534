//! The functions that packetdrill calls: pointers become slices here, and errors become `errno`.
//!
//! The order and the types of the fields are those of `struct packetdrill_interface` in packetdrill's `packetdrill.h`.

#![allow(unsafe_code, reason = "C calls these functions and gives them pointers")]

use core::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use core::net::SocketAddr;
use core::slice;
use std::ffi::CStr;

use libc::{
    epoll_event, iovec, msghdr, nfds_t, off64_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use crate::adapter::Adapter;
use crate::address;
use crate::errno::{Answer, Errno};
use crate::world::epoll::Interest;

/// A function that packetdrill calls: its first argument is `userdata`.
macro_rules! called {
    ($($kind:ty),* => $back:ty) => { unsafe extern "C" fn(*mut c_void, $($kind),*) -> $back };
}

/// `struct packetdrill_interface`.
#[repr(C)]
#[derive(Debug)]
pub struct Interface {
    userdata: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    socket: called!(c_int, c_int, c_int => c_int),
    bind: called!(c_int, *const sockaddr, socklen_t => c_int),
    listen: called!(c_int, c_int => c_int),
    accept: called!(c_int, *mut sockaddr, *mut socklen_t => c_int),
    connect: called!(c_int, *const sockaddr, socklen_t => c_int),
    read: called!(c_int, *mut c_void, size_t => ssize_t),
    readv: called!(c_int, *const iovec, c_int => ssize_t),
    recv: called!(c_int, *mut c_void, size_t, c_int => ssize_t),
    recvfrom: called!(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t => ssize_t),
    recvmsg: called!(c_int, *mut msghdr, c_int => ssize_t),
    write: called!(c_int, *const c_void, size_t => ssize_t),
    writev: called!(c_int, *const iovec, c_int => ssize_t),
    send: called!(c_int, *const c_void, size_t, c_int => ssize_t),
    sendto: called!(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t => ssize_t),
    sendmsg: called!(c_int, *const msghdr, c_int => ssize_t),
    // C declares the last argument of the next two as `...`: an integer or a pointer is passed the same way.
    fcntl: called!(c_int, c_int, c_long => c_int),
    ioctl: called!(c_int, c_ulong, *mut c_int => c_int),
    close: called!(c_int => c_int),
    shutdown: called!(c_int, c_int => c_int),
    getsockopt: called!(c_int, c_int, c_int, *mut c_void, *mut socklen_t => c_int),
    setsockopt: called!(c_int, c_int, c_int, *const c_void, socklen_t => c_int),
    poll: called!(*mut pollfd, nfds_t, c_int => c_int),
    netdev_send: called!(*const c_void, size_t => c_int),
    netdev_receive: called!(*mut c_void, *mut size_t, *mut c_longlong => c_int),
    pause: called!(c_uint => c_int),
    gettimeofday: called!(*mut timeval, *mut c_void => c_int),
    epoll_create: called!(c_int => c_int),
    epoll_ctl: called!(c_int, c_int, c_int, *mut epoll_event => c_int),
    epoll_wait: called!(c_int, *mut epoll_event, c_int, c_int => c_int),
    pipe: called!(*mut c_int => c_int),
    splice: called!(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint => c_int),
}

/// Fills packetdrill's table. Packetdrill calls it once, on its main thread, before it runs a script; `flags` is what
/// `--so_flags` says, or null.
///
/// # Safety
/// `flags` is null or a C string, and `interface` points to a `struct packetdrill_interface`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: not null, so it is a C string, as the caller promises.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    let adapter = Adapter::start(&flags);
    let table = Interface {
        userdata: Box::into_raw(Box::new(adapter)).cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        pause,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: the caller promises that it points to a table, which has the layout of `Interface`.
    unsafe { interface.write(table) };
}

/// The adapter that `packetdrill_interface_init` made.
///
/// # Safety
/// `userdata` is of that table, and `free` has not been called.
unsafe fn adapter<'a>(userdata: *mut c_void) -> &'a Adapter {
    // SAFETY: it comes from `Box::into_raw` of an `Adapter`, which lives until `free`; nobody has it mutably.
    unsafe { &*userdata.cast::<Adapter>() }
}

/// The bytes at `bytes`; an error where C code would read from address 0.
///
/// # Safety
/// `bytes` is null or points to `len` bytes that nobody changes during the call.
unsafe fn input<'a>(bytes: *const c_void, len: usize) -> Answer<&'a [u8]> {
    if bytes.is_null() {
        return if len == 0 { Ok(&[]) } else { Err(Errno::EFAULT) };
    }
    // SAFETY: not null, so it points to as many bytes as the caller promises.
    Ok(unsafe { slice::from_raw_parts(bytes.cast(), len) })
}

/// As [`input`], for bytes that are written.
///
/// # Safety
/// `bytes` is null or points to `len` bytes that nobody else uses during the call.
unsafe fn output<'a>(bytes: *mut c_void, len: usize) -> Answer<&'a mut [u8]> {
    if bytes.is_null() {
        return if len == 0 { Ok(&mut []) } else { Err(Errno::EFAULT) };
    }
    // SAFETY: not null, so it points to as many bytes as the caller promises, whose values C has set or does not use.
    Ok(unsafe { slice::from_raw_parts_mut(bytes.cast(), len) })
}

/// The pieces of a vector that is sent, joined.
///
/// # Safety
/// `pieces` points to `count` pieces, each of which is as [`input`] needs it.
unsafe fn gathered(pieces: *const iovec, count: usize) -> Answer<Vec<u8>> {
    let mut all = Vec::new();
    if !pieces.is_null() {
        // SAFETY: as the caller promises.
        for piece in unsafe { slice::from_raw_parts(pieces, count) } {
            // SAFETY: as the caller promises.
            all.extend_from_slice(unsafe { input(piece.iov_base, piece.iov_len) }?);
        }
    }
    Ok(all)
}

/// The pieces of a vector that is received into.
///
/// # Safety
/// `pieces` points to `count` pieces, each of which is as [`output`] needs it.
unsafe fn scattered<'a>(pieces: *const iovec, count: usize) -> Answer<Vec<&'a mut [u8]>> {
    if pieces.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: as the caller promises.
    let pieces = unsafe { slice::from_raw_parts(pieces, count) };
    // SAFETY: as the caller promises.
    pieces.iter().map(|piece| unsafe { output(piece.iov_base, piece.iov_len) }).collect()
}

/// Writes an address where C code wants one.
///
/// # Safety
/// `at` is null or has as many bytes as `len` says, and `len` is null or points to a length.
unsafe fn give_address(peer: SocketAddr, at: *mut sockaddr, len: *mut socklen_t) {
    if at.is_null() || len.is_null() {
        return;
    }
    let bytes = address::to_c(peer);
    // SAFETY: both are not null, so they are as the caller promises.
    unsafe {
        let room = bytes.len().min(*len as usize);
        at.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), room);
        *len = bytes.len() as socklen_t;
    }
}

/// What C gets: the number, or -1 with `errno` set.
fn back<T: From<i8>>(answer: Answer<T>) -> T {
    answer.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

fn sized(answer: Answer<usize>) -> ssize_t {
    back(answer.map(|count| ssize_t::try_from(count).unwrap_or(ssize_t::MAX)))
}

/// The end of the table.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: packetdrill calls it once, at the end, with what `packetdrill_interface_init` gave it.
    drop(unsafe { Box::from_raw(userdata.cast::<Adapter>()) });
}

/// `socket(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn socket(userdata: *mut c_void, family: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.socket(family, kind, protocol))
}

/// `bind(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn bind(userdata: *mut c_void, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the address has `len` bytes, or is null.
    let bytes = unsafe { input(at.cast(), len as usize) };
    // SAFETY: packetdrill gives its table's `userdata`.
    back(bytes.and_then(|bytes| unsafe { adapter(userdata) }.bind(fd, address::from_c(bytes)?)))
}

/// `listen(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.listen(fd, backlog))
}

/// `accept(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn accept(
    userdata: *mut c_void,
    fd: c_int,
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.accept(fd).map(|(accepted, peer)| {
        // SAFETY: packetdrill gives an address with its length, or null.
        unsafe { give_address(peer, at, len) };
        accepted
    }))
}

/// `connect(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn connect(userdata: *mut c_void, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the address has `len` bytes, or is null.
    let bytes = unsafe { input(at.cast(), len as usize) };
    // SAFETY: packetdrill gives its table's `userdata`.
    back(bytes.and_then(|bytes| unsafe { adapter(userdata) }.connect(fd, bytes)))
}

/// `read(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn read(userdata: *mut c_void, fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: as for `recv`.
    unsafe { recv(userdata, fd, into, len, 0) }
}

/// `readv(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn readv(userdata: *mut c_void, fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: packetdrill gives `count` pieces.
    let pieces = unsafe { scattered(pieces, usize::try_from(count).unwrap_or(0)) };
    // SAFETY: packetdrill gives its table's `userdata`.
    sized(pieces.and_then(|mut pieces| unsafe { adapter(userdata) }.receive(fd, &mut pieces, 0)))
}

/// `recv(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn recv(
    userdata: *mut c_void,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill gives a buffer of `len` bytes, or null where a script says so.
    let into = unsafe { output(into, len) };
    // SAFETY: packetdrill gives its table's `userdata`.
    let adapter = unsafe { adapter(userdata) };
    sized(match into {
        Ok(into) => adapter.receive(fd, &mut [into], flags),
        Err(_) => adapter.receive_nowhere(fd, flags),
    })
}

/// `recvfrom(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    _at: *mut sockaddr,
    _at_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as for `recv`; a stream gives no address.
    unsafe { recv(userdata, fd, into, len, flags) }
}

/// `recvmsg(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn recvmsg(
    userdata: *mut c_void,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill gives a message with its pieces.
    let pieces = unsafe { scattered((*message).msg_iov, (*message).msg_iovlen) };
    // SAFETY: packetdrill gives its table's `userdata`.
    let adapter = unsafe { adapter(userdata) };
    let received = pieces.and_then(|mut pieces| adapter.receive(fd, &mut pieces, flags));
    if received.is_ok() {
        // SAFETY: packetdrill gives a message whose control data has as many bytes as it says, or is null.
        unsafe { give_unread(adapter, fd, message) };
    }
    sized(received)
}

/// The only control message that a stream has here: how many bytes are left (`TCP_INQ`).
///
/// # Safety
/// `message` points to a message whose control data is as long as it says.
unsafe fn give_unread(adapter: &Adapter, fd: c_int, message: *mut msghdr) {
    let control = adapter.unread_message(fd);
    // SAFETY: as the caller promises.
    unsafe {
        (*message).msg_flags = 0;
        (*message).msg_namelen = 0;
        let room = (*message).msg_controllen;
        (*message).msg_controllen = 0;
        if let Some(unread) = control
            && !(*message).msg_control.is_null()
            && room >= libc::CMSG_SPACE(4) as usize
        {
            (*message).msg_controllen = room;
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_TCP;
            (*header).cmsg_type = libc::TCP_CM_INQ;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(unread);
            (*message).msg_controllen = libc::CMSG_SPACE(4) as usize;
        }
    }
}

/// `write(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn write(userdata: *mut c_void, fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as for `send`.
    unsafe { send(userdata, fd, bytes, len, 0) }
}

/// `writev(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn writev(userdata: *mut c_void, fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: packetdrill gives `count` pieces.
    let bytes = unsafe { gathered(pieces, usize::try_from(count).unwrap_or(0)) };
    // SAFETY: packetdrill gives its table's `userdata`.
    sized(bytes.and_then(|bytes| unsafe { adapter(userdata) }.send(fd, &bytes, 0)))
}

/// `send(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn send(
    userdata: *mut c_void,
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill gives `len` bytes, or null where a script says so.
    let bytes = unsafe { input(bytes, len) };
    // SAFETY: packetdrill gives its table's `userdata`.
    sized(bytes.and_then(|bytes| unsafe { adapter(userdata) }.send(fd, bytes, flags)))
}

/// `sendto(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn sendto(
    userdata: *mut c_void,
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    at: *const sockaddr,
    at_len: socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill gives `len` bytes, or null where a script says so.
    let bytes = unsafe { input(bytes, len) };
    // SAFETY: the address has `at_len` bytes, or is null.
    let to = unsafe { input(at.cast(), if at.is_null() { 0 } else { at_len as usize }) };
    // SAFETY: packetdrill gives its table's `userdata`.
    let adapter = unsafe { adapter(userdata) };
    sized(bytes.and_then(|bytes| adapter.send_to(fd, bytes, flags, to?)))
}

/// `sendmsg(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn sendmsg(
    userdata: *mut c_void,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill gives a message with its pieces.
    let bytes = unsafe { gathered((*message).msg_iov, (*message).msg_iovlen) };
    // SAFETY: packetdrill gives its table's `userdata`.
    sized(bytes.and_then(|bytes| unsafe { adapter(userdata) }.send(fd, &bytes, flags)))
}

/// `fcntl(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn fcntl(userdata: *mut c_void, fd: c_int, command: c_int, value: c_long) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.fcntl(fd, command, value as c_int))
}

/// `ioctl(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn ioctl(userdata: *mut c_void, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.ioctl(fd, request).map(|found| {
        // SAFETY: packetdrill gives the place of an int for each request that a script can make.
        unsafe { value.write(found) };
        0
    }))
}

/// `close(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.close(fd))
}

/// `shutdown(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.shutdown(fd, how))
}

/// `getsockopt(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if value.is_null() || len.is_null() {
        return back(Err(Errno::EFAULT));
    }
    // SAFETY: packetdrill gives a value of as many bytes as `len` says.
    let into = unsafe { output(value, *len as usize) };
    // SAFETY: packetdrill gives its table's `userdata`.
    let adapter = unsafe { adapter(userdata) };
    back(into.and_then(|into| {
        let found = adapter.getsockopt(fd, level, name)?;
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        // SAFETY: not null.
        unsafe { len.write(count as socklen_t) };
        Ok(0)
    }))
}

/// `setsockopt(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill gives a value of `len` bytes, or null. Some scripts say more bytes than an int has, for the
    // value of an int; no option that is read here is longer.
    let value = unsafe { input(value, (len as usize).min(8)) };
    // SAFETY: packetdrill gives its table's `userdata`.
    back(value.and_then(|value| unsafe { adapter(userdata) }.setsockopt(fd, level, name, value)))
}

/// `poll(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn poll(userdata: *mut c_void, polls: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let polls = if polls.is_null() {
        &mut []
    } else {
        // SAFETY: packetdrill gives `count` of them.
        unsafe { slice::from_raw_parts_mut(polls, count as usize) }
    };
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.poll(polls, timeout))
}

/// A packet to the host, or from it.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn netdev_send(userdata: *mut c_void, bytes: *const c_void, len: size_t) -> c_int {
    // SAFETY: packetdrill gives a packet of `len` bytes.
    let packet = unsafe { input(bytes, len) };
    // SAFETY: packetdrill gives its table's `userdata`.
    back(packet.map(|packet| {
        // SAFETY: packetdrill gives its table's `userdata`.
        unsafe { adapter(userdata) }.packet(packet);
        0
    }))
}

/// A packet to the host, or from it.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    into: *mut c_void,
    len: *mut size_t,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    let (packet, at_us) = unsafe { adapter(userdata) }.next_packet();
    // SAFETY: packetdrill gives a buffer of as many bytes as `len` says, and places for a length and a time.
    unsafe {
        let into = slice::from_raw_parts_mut(into.cast::<u8>(), *len);
        let count = packet.len().min(into.len());
        into[..count].copy_from_slice(&packet[..count]);
        *len = count;
        *time_us = at_us as c_longlong;
    }
    0
}

/// `usleep(3)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn pause(userdata: *mut c_void, pause_us: c_uint) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    unsafe { adapter(userdata) }.pass(u64::from(pause_us));
    0
}

/// `gettimeofday(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn gettimeofday(userdata: *mut c_void, at: *mut timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    let now_us = unsafe { adapter(userdata) }.now_us();
    // SAFETY: packetdrill gives the place of a time.
    unsafe {
        at.write(timeval {
            tv_sec: (now_us / 1_000_000) as libc::time_t,
            tv_usec: (now_us % 1_000_000) as libc::suseconds_t,
        });
    }
    0
}

/// `epoll_create(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn epoll_create(userdata: *mut c_void, _size: c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.epoll_create())
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn epoll_ctl(
    userdata: *mut c_void,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: packetdrill gives an event, or null.
    let event = unsafe { event.as_ref() };
    let interest = event.map(|event| Interest { events: event.events, data: event.u64 });
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.epoll_ctl(epoll, operation, fd, interest))
}

/// `epoll_wait(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn epoll_wait(
    userdata: *mut c_void,
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    let found = unsafe { adapter(userdata) }.epoll_wait(epoll, usize::try_from(count).unwrap_or(0), timeout);
    back(found.map(|found| {
        for (index, Interest { events: ready, data }) in found.iter().enumerate() {
            // SAFETY: packetdrill gives room for `count` events, and no more than these are found.
            unsafe { events.add(index).write_unaligned(epoll_event { events: *ready, u64: *data }) };
        }
        found.len() as c_int
    }))
}

/// `pipe(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn pipe(userdata: *mut c_void, ends: *mut c_int) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    let [from, to] = unsafe { adapter(userdata) }.pipe();
    // SAFETY: packetdrill gives the place of two ints.
    unsafe {
        ends.write(from);
        ends.add(1).write(to);
    }
    0
}

/// `splice(2)`.
///
/// # Safety
/// Packetdrill calls it with what it got and with what the call takes.
unsafe extern "C" fn splice(
    userdata: *mut c_void,
    from: c_int,
    _from_at: *mut off64_t,
    to: c_int,
    _to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> c_int {
    // SAFETY: packetdrill gives its table's `userdata`.
    back(unsafe { adapter(userdata) }.splice(from, to, len, flags))
}
