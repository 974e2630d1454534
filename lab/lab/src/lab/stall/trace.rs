//! The system calls of a thread that are none of the packet path, seen by the kernel's own tracing (tracefs). The thread is
//! neither stopped nor slowed down much: calls of the packet path are filtered out before anything is written.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// What moves frames, waits for them, and wakes another thread; numbers of x86-64 and of 64-bit Arm by name.
const PACKET_CALLS: &[(&str, i64)] = &[
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendto", libc::SYS_sendto),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("recvfrom", libc::SYS_recvfrom),
    // Of eventfds, and of the timer that ends a sleep.
    ("read", libc::SYS_read),
    ("write", libc::SYS_write),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    // What measures turns.
    ("clock_gettime", libc::SYS_clock_gettime),
    // The worker's own rests, its account of how long it waited for its CPU, and the steps between its two priorities.
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("pread64", libc::SYS_pread64),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("sched_setattr", libc::SYS_sched_setattr),
];
/// Calls with a name in reports.
const NAMED: &[(&str, i64)] = &[
    ("futex", libc::SYS_futex),
    ("ioctl", libc::SYS_ioctl),
    ("bpf", libc::SYS_bpf),
    ("sendmsg", libc::SYS_sendmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("setsockopt", libc::SYS_setsockopt),
    ("getsockopt", libc::SYS_getsockopt),
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("madvise", libc::SYS_madvise),
    ("openat", libc::SYS_openat),
    ("close", libc::SYS_close),
    ("sched_yield", libc::SYS_sched_yield),
];

/// Tracing of its own, which nobody else sees and which ends with this value.
#[derive(Debug)]
struct Tracing {
    instance: PathBuf,
    /// The file system, which is mounted nowhere.
    _mount: OwnedFd,
}

impl Tracing {
    fn new() -> anyhow::Result<Self> {
        let opened = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).context("this kernel has no tracefs")?;
        fsconfig_create(&opened)?;
        let mount = fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        let instance = root.join(format!("instances/twinpath-lab-{}", std::process::id()));
        std::fs::create_dir(&instance).context("cannot make an instance of tracefs")?;
        Ok(Self { instance, _mount: mount })
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.instance.join(file), text)
            .with_context(|| format!("tracefs: cannot write `{text}` to {file}"))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.instance);
    }
}

/// The calls of that thread in that time that are none of the packet path, by name, with their number.
pub(super) async fn other_calls(tid: u32, time: Duration) -> anyhow::Result<BTreeMap<String, u64>> {
    let tracing = Tracing::new()?;
    let others: Vec<_> = PACKET_CALLS.iter().map(|(_, number)| format!("id != {number}")).collect();
    tracing.write("set_event_pid", &tid.to_string())?;
    tracing.write("events/raw_syscalls/sys_enter/filter", &others.join(" && "))?;
    tracing.write("events/raw_syscalls/sys_enter/enable", "1")?;
    tokio::time::sleep(time).await;
    tracing.write("events/raw_syscalls/sys_enter/enable", "0")?;
    let trace = std::fs::read_to_string(tracing.instance.join("trace")).context("cannot read the trace")?;
    calls(&trace)
}

/// Reads lines such as ` worker-0-2914 [001] ..... 96.1: sys_enter: NR 202 (7f, 80, 0, 0, 0, 0)`.
fn calls(trace: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, call)) = line.split_once("sys_enter: NR ") else { continue };
        let number = call.split_whitespace().next().and_then(|number| number.parse().ok());
        let number: i64 = number.with_context(|| format!("cannot read the trace: {line}"))?;
        let named = NAMED.iter().find(|(_, known)| *known == number);
        let name = named.map_or_else(|| format!("call {number}"), |(name, _)| (*name).to_owned());
        *found.entry(name).or_insert(0) += 1;
    }
    Ok(found)
}

/// How long a thread has waited for its CPU since it began, while it was ready to run (`schedstat` of proc(5)).
pub(super) fn waited(pid: u32, tid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    let account = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let nanos = account.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(nanos.with_context(|| format!("{path} is not understood: {account}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_name() {
        let trace = "# tracer: nop\n#\n\
            worker-0-2914    [001] .....    96.102: sys_enter: NR 202 (7f, 80, 0, 0, 0, 0)\n\
            worker-0-2914    [001] .....    96.103: sys_enter: NR 202 (7f, 81, 0, 0, 0, 0)\n\
            worker-0-2914    [001] .....    96.104: sys_enter: NR 999 (0, 0, 0, 0, 0, 0)\n";
        let expected = [("call 999".to_owned(), 1), (NAMED[0].0.to_owned(), 2)];
        if libc::SYS_futex == 202 {
            assert_eq!(calls(trace).unwrap(), BTreeMap::from(expected));
        }
        assert!(calls("x: sys_enter: NR what (").is_err());
        assert!(calls("").unwrap().is_empty());
    }

    #[test]
    fn a_call_of_this_thread_is_seen() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(async {
            let calls = async {
                loop {
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                found = other_calls(tid, Duration::from_millis(20)) => found,
                () = calls => unreachable!(),
            }
        });
        match found {
            Ok(found) => assert!(found.get("sched_yield").is_some_and(|count| *count > 0), "{found:?}"),
            Err(error) => eprintln!("SKIPPED: {error:#}"),
        }
    }
}
