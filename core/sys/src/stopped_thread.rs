//! Stops one thread of another process as a debugger does (ptrace(2)), for tests and measurements of a stuck worker.
#![allow(unsafe_code, reason = "ptrace has no safe wrapper")]

use std::io;
use std::marker::PhantomData;
use std::ptr;

/// A stopped thread. It continues when this is dropped or when the thread that stopped it ends. Only that thread may
/// continue it, so the value is not `Send`.
#[derive(Debug)]
pub struct StoppedThread {
    tid: libc::pid_t,
    stays_here: PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops thread `tid` and waits until it has stopped.
    ///
    /// # Errors
    /// What `ptrace(2)` or `waitpid(2)` returns: no such thread, no permission (CAP_SYS_PTRACE), or another tracer.
    pub fn stop(tid: u32) -> io::Result<Self> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        request(libc::PTRACE_SEIZE, tid)?;
        let stopped = Self { tid, stays_here: PhantomData };
        request(libc::PTRACE_INTERRUPT, tid)?;
        let mut status = 0;
        // SAFETY: the call writes one integer into `status`, which outlives it.
        let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        if waited != tid {
            return Err(io::Error::last_os_error());
        }
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("the thread has ended"));
        }
        Ok(stopped)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // The thread may have ended with its process.
        let _ = request(libc::PTRACE_DETACH, self.tid);
    }
}

fn request(what: libc::c_uint, tid: libc::pid_t) -> io::Result<()> {
    // SAFETY: these three requests take no address, and 0 as their data: no options for PTRACE_SEIZE, no signal for PTRACE_DETACH.
    let result =
        unsafe { libc::ptrace(what, tid, ptr::null_mut::<libc::c_void>(), ptr::null_mut::<libc::c_void>()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("a state")
    }

    #[test]
    fn a_thread_stops_and_goes_on() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat runs");
        let stopped = StoppedThread::stop(child.id()).expect("one's own child may be traced");
        assert_eq!(state(child.id()), 't');
        assert!(StoppedThread::stop(child.id()).is_err(), "by one at a time");
        drop(stopped);
        drop(child.stdin.take());
        assert!(child.wait().expect("ends").success(), "it went on");
        assert!(StoppedThread::stop(u32::MAX).is_err());
    }
}
