//! The lines of `--explain` that this library writes itself, as the one with the hooks is not there.
#![allow(unsafe_code, reason = "files are written by the calls of the C library")]

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::given::{EXPLAIN, GIVEN};

/// What does not fit is left out: names of files have 255 bytes at most.
const LINE_MAX: usize = 512;

struct Line {
    text: [u8; LINE_MAX],
    len: usize,
}

impl Line {
    fn add(&mut self, bytes: &[u8]) {
        for (to, byte) in self.text.iter_mut().skip(self.len).zip(bytes) {
            *to = *byte;
            self.len += 1;
        }
    }

    /// The name of the program's file.
    fn add_program(&mut self) {
        let mut path = [0u8; libc::PATH_MAX as usize];
        // SAFETY: a string of C, and room for as many bytes.
        let len = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
        let path = usize::try_from(len).ok().and_then(|len| path.get(..len)).unwrap_or_default();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // The file may have been replaced since the program was started.
        self.add(name.strip_suffix(b" (deleted)").unwrap_or(name));
    }

    fn add_number(&mut self, number: c_int) {
        let (mut digits, mut rest) = ([0u8; 10], number.unsigned_abs());
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            (rest, count) = (rest / 10, count + 1);
            if rest == 0 {
                break;
            }
        }
        let first = digits.len() - count;
        self.add(digits.get(first..).unwrap_or_default());
    }
}

/// Says why all sockets of the program stay with the kernel, if `--explain` asks for that.
#[cold]
pub(crate) fn stays_with_kernel(why: &[&[u8]]) {
    let to = GIVEN.variables[EXPLAIN].load(Ordering::Relaxed);
    if to.is_null() {
        return;
    }
    let mut line = Line { text: [0; LINE_MAX], len: 0 };
    line.add(b"twinpath run: ");
    line.add_program();
    line.add(b"[");
    // SAFETY: it takes nothing.
    line.add_number(unsafe { libc::getpid() });
    line.add(b"]: everything stays with the kernel: ");
    why.iter().for_each(|part| line.add(part));
    line.add(b"\n");
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: it is a string of C; the file that was opened is closed, and the bytes are there.
    unsafe {
        let is_standard = to.read() as u8 == b'-' && to.add(1).read() == 0;
        let file = if is_standard { libc::STDERR_FILENO } else { libc::open(to, flags, 0o666) };
        libc::write(file, line.text.as_ptr().cast(), line.len);
        if !is_standard {
            libc::close(file);
        }
    }
}
