//! Child processes that cannot outlive their parent, placed in a namespace and on CPUs before they run.

#![allow(unsafe_code, reason = "hooks between fork and exec; the CPU clock of another process")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

use crate::netns::{self, Namespace};

/// Where a child runs. The default is the placement of its parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement<'a> {
    /// The network namespace.
    pub namespace: Option<&'a Namespace>,
    /// The CPUs that all its threads may run on; empty: those of its parent.
    pub cpus: &'a [usize],
}

/// Makes `command` start in its placement and die by SIGKILL when the thread that spawns it ends.
///
/// The kernel ties the signal to the spawning *thread*, so spawn from a thread that lives as long as the child
/// should. If the parent dies between fork and the request, the child notices it and exits.
///
/// # Errors
/// If the namespace's file descriptor cannot be duplicated.
pub fn place(command: &mut Command, placement: Placement<'_>) -> io::Result<()> {
    let parent = rustix::process::getpid();
    let namespace = match placement.namespace {
        Some(namespace) => Some(namespace.as_fd().try_clone_to_owned()?),
        None => None,
    };
    let cpus = (!placement.cpus.is_empty()).then(|| cpu_set(placement.cpus));
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe work is allowed. It makes four
    // plain system calls, takes no lock and allocates nothing; what it reads was moved into it beforehand.
    unsafe { command.pre_exec(move || before_exec(parent, namespace.as_ref(), cpus.as_ref())) };
    Ok(())
}

/// Makes `command` start detached from this process: not as a child of it, in a session of its own, and with only
/// the standard descriptors. The child that spawning returns has exited by then and must be waited for.
pub fn detach(command: &mut Command) {
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe work is allowed. It makes plain system calls, takes no
    // lock and allocates nothing. The one thread of the child goes on in a copy of it, and the child itself ends at once.
    unsafe { command.pre_exec(before_detached) };
}

fn before_detached() -> io::Result<()> {
    rustix::process::setsid()?;
    // SAFETY: the copy has this thread only, which goes on to exec.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: it ends this process at once.
        _ => unsafe { libc::_exit(0) },
    }
    // Closed by exec, which this library's own report of an error needs until then.
    // SAFETY: it takes numbers.
    unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    Ok(())
}

fn before_exec(parent: Pid, namespace: Option<&OwnedFd>, cpus: Option<&CpuSet>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent ended before the line above, the signal will never come: this child has another parent by now.
    if rustix::process::getppid() != Some(parent) {
        return Err(io::Error::from(rustix::io::Errno::SRCH));
    }
    if let Some(namespace) = namespace {
        netns::enter(namespace.as_fd())?;
    }
    if let Some(cpus) = cpus {
        rustix::thread::sched_setaffinity(None, cpus)?;
    }
    Ok(())
}

fn cpu_set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    set
}

/// CPU time used by all threads of a process, user and system, including threads that have ended. Unlike
/// `/proc/PID/stat`, which counts ticks, it is exact to the nanosecond even while they run.
///
/// # Errors
/// ESRCH when there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(rustix::io::Errno::SRCH))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live, writable clockid_t; the function keeps no pointer to it.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec; the function keeps no pointer to it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Stdio};

    use super::*;
    use crate::affinity::allowed_cpus;

    fn sleeper(placement: Placement<'_>) -> Child {
        // `cat` ends when its input does, which stays open while the child handle exists.
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        place(&mut command, placement).unwrap();
        command.spawn().unwrap()
    }

    #[test]
    fn a_child_dies_with_the_thread_that_spawned_it() {
        let mut child = std::thread::spawn(|| sleeper(Placement::default())).join().unwrap();
        // Held here, because `wait` would otherwise close the input first and thereby end `cat`.
        let input = child.stdin.take();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        drop(input);
    }

    #[test]
    fn a_child_starts_on_its_cpu_and_in_its_namespace() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        let namespace = Namespace::new().unwrap();
        let mut child = sleeper(Placement { namespace: Some(&namespace), cpus: &[cpu] });
        let proc = format!("/proc/{}", child.id());
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
        let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
        assert_eq!(allowed.split_whitespace().last(), Some(cpu.to_string().as_str()));
        let theirs = std::fs::read_link(format!("{proc}/ns/net")).unwrap();
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(theirs, ours);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().signal(), None);
    }

    #[test]
    fn cpu_time_grows_with_work_and_a_missing_process_is_an_error() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let sum = (0..1_000_000u64).fold(0u64, |sum, x| std::hint::black_box(sum.wrapping_add(x)));
        assert_ne!(sum, 1);
        assert!(cpu_time(own).unwrap() > before);
        assert!(cpu_time(u32::MAX).is_err());
    }
}
