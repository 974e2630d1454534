//! Says which path each socket has, why, and at its end what it has received.

use std::fs::OpenOptions;
use std::io::Write as _;

use libc::c_int;
use twinpath_calls::{errno, set_errno, table};

use crate::started::started;

/// Whether anything is to be said.
pub(crate) fn is_on() -> bool {
    started().is_some_and(|started| started.explain.is_some())
}

/// Writes a line. `errno` stays as it is. What cannot be written is left out.
pub(crate) fn line(text: &str) {
    let Some(started) = started() else { return };
    let Some(to) = &started.explain else { return };
    let error = errno();
    let line = format!("twinpath run: {}[{}]: {text}\n", started.program, std::process::id());
    let _ = match to.as_str() {
        "-" => std::io::stderr().write_all(line.as_bytes()),
        path => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
    };
    set_errno(error);
}

/// Writes a line about a socket.
pub(crate) fn socket(descriptor: c_int, text: &str) {
    if is_on() {
        let local =
            table::local_address(descriptor).map_or("not bound".to_owned(), |local| local.to_string());
        line(&format!("UDP {local}: {text}"));
    }
}

/// The socket is about to be closed.
pub(crate) fn closing(descriptor: c_int) {
    if table::is_last(descriptor) && table::is_own_process() {
        socket(descriptor, &received(descriptor));
    }
}

/// The program ends.
pub(crate) fn ending() {
    if is_on() && table::is_own_process() {
        table::leased_sockets().for_each(|descriptor| socket(descriptor, &received(descriptor)));
    }
}

fn received(descriptor: c_int) -> String {
    let Some(counts) = table::counts(descriptor) else {
        return "another thread was receiving at the end".to_owned();
    };
    let all = counts.by_ring + counts.by_kernel;
    let share = if all == 0 { 0.0 } else { 100.0 * counts.by_ring as f64 / all as f64 };
    format!(
        "received {} by the ring, {} by the kernel: {share:.1} % under a lease",
        counts.by_ring, counts.by_kernel
    )
}
