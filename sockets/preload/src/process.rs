//! The beginning and the end of the program that the library was loaded into.
#![allow(unsafe_code, reason = "the linker calls functions at the beginning and the end")]

use twinpath_calls::table;
use twinpath_preloader::{handler, sanitizer};

use crate::{explain, own, preloader, real, started};

#[used]
#[unsafe(link_section = ".init_array")]
static AT_BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = end;

extern "C" fn begin() {
    let is_of_this_version = preloader::begin();
    // Also for calls that come here nevertheless.
    real::find_all();
    if !is_of_this_version {
        return is_of_another_version();
    }
    started::begin();
    explain::begin();
    // Where the small library is not there, which leaves such a program alone.
    if let Some(checks) = sanitizer::found() {
        let checks = checks.to_str().unwrap_or("a sanitizer");
        explain::line(format_args!("everything stays with the kernel: the program is built with {checks}"));
        started::end();
    }
    if let Some(error) = started::started().and_then(|started| started.rules.as_ref().err()) {
        explain::line(format_args!("{error}; everything stays with the kernel"));
    }
    // SAFETY: the handler is a function of this library, and uses atomic words only.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    table::register_fork();
    table::set_tell(table::Tell {
        is_over: explain::received,
        pays_not: explain::pays_not,
        was_forked: in_child_of_fork,
        is_handler: handler::is_running,
        thread_words: preloader::thread_words,
    });
    for (made, is_named) in preloader::made() {
        table::set_undecided(made);
        if is_named {
            table::set_port_named(made);
        }
    }
}

/// The program was started before this version was installed. The small library leaves this one alone.
fn is_of_another_version() {
    started::begin();
    explain::begin();
    explain::line(format_args!(
        "everything stays with the kernel: another version was installed since the program was started"
    ));
    started::end();
}

extern "C" fn in_child() {
    in_child_of_fork();
}

fn in_child_of_fork() {
    own::forget();
    explain::in_child();
}

/// The program ends: what its sockets have received, and that it uses them no longer.
pub(crate) extern "C" fn end() {
    if table::is_own_process() && started::end() {
        explain::ending();
        table::process_ends();
    }
}
