//! The scheduling policy and priority of the calling thread, and the budget of real-time CPU time.
//!
//! sched(7). It never chooses a priority.
#![allow(unsafe_code, reason = "sched_setscheduler and sched_setattr are not in rustix")]

use std::fs;
use std::mem;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

use crate::capabilities;

/// Real-time priorities of the kernel (`SCHED_FIFO`), from the lowest to the highest.
pub const FIFO_LEVELS: std::ops::RangeInclusive<u8> = 1..=99;
/// Nice values, from the highest priority to the lowest.
pub const NICE_LEVELS: std::ops::RangeInclusive<i8> = -20..=19;
/// Slices that a normal thread may request, us (kernel/sched/syscalls.c, `__setparam_fair`).
pub const SLICES_US: std::ops::RangeInclusive<u32> = 100..=100_000;

/// Why a thread's priority was not changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchedulingError {
    /// The control group has no real-time budget (`RT_GROUP_SCHED`), although the thread would be permitted
    /// otherwise.
    #[error(
        "the kernel refuses SCHED_FIFO in control group {group}: it has no real-time budget; give it one \
         (cpu.rt_runtime_us of it and of each group above it), start outside it, or choose nice:-20"
    )]
    NoBudget {
        /// The group.
        group: String,
    },
    /// The process lacks the permission.
    #[error("no permission for {wanted}: it takes CAP_SYS_NICE, or a limit that allows it (ulimit -{limit})")]
    NotPermitted {
        /// What was requested: `SCHED_FIFO 1`, `nice -20`.
        wanted: String,
        /// The letter of the limit in bash's `ulimit`.
        limit: char,
    },
    /// Any other error.
    #[error("the kernel refuses {wanted}: {source}")]
    Refused {
        /// What was requested: `SCHED_FIFO 1`, `nice -20`.
        wanted: String,
        /// The kernel's error.
        source: Errno,
    },
    /// The kernel accepted the slice and ignored it.
    #[error("this kernel gives normal threads no slices of their own, which came with Linux 6.12")]
    NoSlices,
}

/// Puts the calling thread under `SCHED_FIFO` at `level` (1 to 99): it runs before every thread of normal priority on
/// its CPU. Its children get normal priority.
///
/// # Errors
/// [`SchedulingError`].
pub fn set_fifo(level: u8) -> Result<(), SchedulingError> {
    set_policy(libc::SCHED_FIFO, level.into()).map_err(|source| {
        let wanted = format!("SCHED_FIFO {level}");
        match source {
            Errno::PERM if may_be_real_time(level) => SchedulingError::NoBudget { group: control_group() },
            Errno::PERM => SchedulingError::NotPermitted { wanted, limit: 'r' },
            source => SchedulingError::Refused { wanted, source },
        }
    })
}

/// Puts the calling thread under `SCHED_IDLE`: it runs when no other thread wants its CPU. Its children get normal priority.
///
/// # Errors
/// [`SchedulingError`].
pub fn set_idle() -> Result<(), SchedulingError> {
    let refused = |source| SchedulingError::Refused { wanted: "SCHED_IDLE".to_owned(), source };
    set_policy(libc::SCHED_IDLE, 0).map_err(refused)
}

/// Puts the calling thread under the normal policy with this nice value (-20 to 19).
///
/// # Errors
/// [`SchedulingError`].
pub fn set_nice(nice: i8) -> Result<(), SchedulingError> {
    let wanted = || format!("nice {nice}");
    set_policy(libc::SCHED_OTHER, 0)
        .and_then(|()| rustix::process::setpriority_process(None, nice.into()))
        .map_err(|source| match source {
            Errno::PERM | Errno::ACCESS => SchedulingError::NotPermitted { wanted: wanted(), limit: 'e' },
            source => SchedulingError::Refused { wanted: wanted(), source },
        })
}

/// Puts the calling thread under the normal policy with slices of this many microseconds (100 to 100,000). The
/// shorter they are, the sooner it runs when it is woken beside a busy thread, and the sooner that thread continues
/// (kernel/sched/fair.c, `PREEMPT_SHORT`). Its share of the CPU is that of a thread of nice 0, or less if its nice
/// value was higher, so it needs no privilege.
///
/// # Errors
/// [`SchedulingError`].
pub fn set_slice(slice_us: u32) -> Result<(), SchedulingError> {
    let wanted_ns = u64::from(slice_us) * 1000;
    match set_fair(wanted_ns) {
        Ok(slice_ns) if slice_ns == wanted_ns => Ok(()),
        Ok(_) => Err(SchedulingError::NoSlices),
        Err(source) => Err(SchedulingError::Refused { wanted: format!("slices of {slice_us} us"), source }),
    }
}

/// Puts the calling thread under the default policy: at nice 0, or its own nice value if that was higher.
///
/// # Errors
/// [`SchedulingError`].
pub fn set_normal() -> Result<(), SchedulingError> {
    let refused = |source| SchedulingError::Refused { wanted: "normal priority".to_owned(), source };
    set_fair(0).map(drop).map_err(refused)
}

/// Sets the normal policy with slices of this length (0: the kernel's default). Returns the thread's slices, or 0
/// if the kernel does not report them.
fn set_fair(slice_ns: u64) -> Result<u64, Errno> {
    let nice = rustix::process::getpriority_process(None)?.max(0);
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: every field of the struct is a number.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    attributes.size = size;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_nice = nice;
    attributes.sched_runtime = slice_ns;
    // SAFETY: the call reads as many bytes as the struct says that it has; it lives. Thread 0 is the caller, no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done != 0 {
        return Err(last_error());
    }
    // SAFETY: the call writes no more bytes than it is told the struct has, which lives and is all numbers.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read == 0 { Ok(attributes.sched_runtime) } else { Err(last_error()) }
}

/// Runs `work` on a separate thread that runs when no other thread wants its CPU (`SCHED_IDLE`), and waits for it.
/// After `at_most`, the thread becomes a normal one, if the process may do that (CAP_SYS_NICE, or `ulimit -e`).
/// Otherwise it could take minutes on a host whose CPUs are always busy.
pub fn when_idle<R: Send>(at_most: Duration, work: impl FnOnce() -> R + Send) -> R {
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // Dropped at the end, even after a panic.
            let _ends = ends;
            // Without the rights for it, the work runs at normal priority.
            let _ = set_idle();
            let _ = begins.send(rustix::thread::gettid());
            work()
        });
        if let (Ok(number), Err(mpsc::RecvTimeoutError::Timeout)) =
            (begun.recv(), ended.recv_timeout(at_most))
        {
            let _ = set_policy_of(number.as_raw_nonzero().get(), libc::SCHED_OTHER, 0);
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// 0 is the calling thread.
fn set_policy(policy: i32, level: i32) -> Result<(), Errno> {
    set_policy_of(0, policy, level)
}

fn set_policy_of(thread: i32, policy: i32, level: i32) -> Result<(), Errno> {
    // SAFETY: every field of the struct is a number, and on some C libraries there are more than this one.
    let mut parameter: libc::sched_param = unsafe { mem::zeroed() };
    parameter.sched_priority = level;
    // SAFETY: the call reads one sched_param, which lives.
    let done =
        unsafe { libc::sched_setscheduler(thread, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Whether capabilities or limits permit it, so that a refusal must come from the control group.
fn may_be_real_time(level: u8) -> bool {
    let capable = capabilities::effective().contains(rustix::thread::CapabilitySet::SYS_NICE);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
    capable || limit.is_none_or(|limit| limit >= u64::from(level))
}

/// The control group that sets the real-time budget: that of the `cpu` controller, or the only one.
fn control_group() -> String {
    let text = fs::read_to_string("/proc/thread-self/cgroup").unwrap_or_default();
    let path_of = |wanted: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|controller| controller == wanted).then(|| path.to_owned())
        })
    };
    path_of("cpu").or_else(|| path_of("")).unwrap_or_else(|| "of this process".to_owned())
}

/// The CPU time that all real-time threads together may use of each CPU (sched_rt_period_us and sched_rt_runtime_us
/// under /proc/sys/kernel; Documentation/scheduler/sched-rt-group.rst). When it is used up, they are stopped until
/// the period ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeBudget {
    /// Microseconds per period; `None` without a limit.
    pub runtime_us: Option<u32>,
    /// The period, us.
    pub period_us: u32,
}

impl RealTimeBudget {
    /// Reads the global budget, or that of the calling thread's control group if it is smaller
    /// (`CONFIG_RT_GROUP_SCHED`).
    #[must_use]
    pub fn read() -> Self {
        let all = Self::read_from("/proc/sys/kernel/sched_rt");
        // Only cgroup version 1 has such budgets. These are the usual mount points of its controllers.
        let folders = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].iter();
        let own = folders.map(|folder| format!("{folder}{}", control_group().trim_end_matches('/')));
        let own = own
            .map(|folder| format!("{folder}/cpu.rt"))
            .find(|files| fs::exists(format!("{files}_runtime_us")).is_ok_and(|is| is));
        let own = own.map_or(all, |files| Self::read_from(&files));
        if own.permille() < all.permille() { own } else { all }
    }

    /// The budget in the kernel's two files; its default (95 % of a second) if they cannot be read.
    fn read_from(files: &str) -> Self {
        let number = |name: &str| -> Option<i64> {
            fs::read_to_string(format!("{files}_{name}_us")).ok()?.trim().parse().ok()
        };
        let period_us = number("period").and_then(|us| u32::try_from(us).ok()).unwrap_or(1_000_000);
        let runtime_us = match number("runtime") {
            Some(runtime) => u32::try_from(runtime).ok(),
            None => Some(period_us / 100 * 95),
        };
        Self { runtime_us, period_us }
    }

    /// The share of a CPU, in thousandths.
    #[must_use]
    pub fn permille(self) -> u32 {
        let share = |runtime: u32| u64::from(runtime) * 1000 / u64::from(self.period_us.max(1));
        self.runtime_us.map_or(1000, |runtime| share(runtime).min(1000) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on a separate thread, so that no other test inherits its settings.
    fn apart<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap())
    }

    /// `(policy, nice)` of the calling thread, from the kernel (proc_pid_stat(5)).
    fn now() -> (i32, i32) {
        let text = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[38].parse().unwrap(), fields[16].parse().unwrap())
    }

    #[test]
    fn a_thread_gets_the_requested_priority_or_an_error_with_the_reason() {
        apart(|| match set_fifo(1) {
            Ok(()) => {
                assert_eq!(now().0, libc::SCHED_FIFO);
                set_nice(-20).unwrap();
                assert_eq!(now(), (libc::SCHED_OTHER, -20));
                set_nice(0).unwrap();
                assert_eq!(now(), (libc::SCHED_OTHER, 0));
            }
            Err(error) => twinpath_test_rig::skip(error),
        });
    }

    #[test]
    fn slices_need_no_privilege_and_are_refused_where_the_kernel_has_none() {
        let given = apart(|| {
            // Any priority may have been set before.
            let _ = set_fifo(1);
            set_slice(100).map(|()| now())
        });
        let kept = apart(|| {
            set_nice(7).unwrap();
            let _ = set_slice(100);
            let sliced = now();
            set_normal().unwrap();
            (sliced, now())
        });
        assert_eq!(kept, ((libc::SCHED_OTHER, 7), (libc::SCHED_OTHER, 7)), "a worse nice value is kept");
        match given {
            Ok(sliced) => assert_eq!(sliced, (libc::SCHED_OTHER, apart(now).1.max(0))),
            Err(SchedulingError::NoSlices) => twinpath_test_rig::skip(SchedulingError::NoSlices),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused_with_its_name() {
        let error = apart(|| set_fifo(100)).unwrap_err();
        let source = Errno::INVAL;
        assert_eq!(error, SchedulingError::Refused { wanted: "SCHED_FIFO 100".to_owned(), source });
    }

    /// A control group of the `cpu` controller, version 1, that is removed at the end.
    struct Group(std::path::PathBuf);

    impl Group {
        fn new(name: &str) -> std::io::Result<Self> {
            let parent = std::path::Path::new("/sys/fs/cgroup/cpu");
            // If the parent has no budget, the group could have none either, which would prove nothing.
            fs::read_to_string(parent.join("cpu.rt_runtime_us"))?;
            let path = parent.join(format!("twinpath-test-{name}-{}", std::process::id()));
            fs::create_dir(&path)?;
            Ok(Self(path))
        }

        fn enter(&self) -> std::io::Result<()> {
            fs::write(self.0.join("tasks"), rustix::thread::gettid().to_string())
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = fs::remove_dir(&self.0);
        }
    }

    #[test]
    fn a_control_group_without_a_budget_is_named() {
        let group = match Group::new("named") {
            Ok(group) => group,
            Err(error) => {
                return twinpath_test_rig::skip(format!("no control group with a real-time budget: {error}"));
            }
        };
        let refused = apart(|| {
            group.enter().unwrap();
            let refused = set_fifo(1).unwrap_err();
            set_nice(-5).unwrap();
            refused
        });
        let SchedulingError::NoBudget { group: named } = &refused else { panic!("{refused:?}") };
        assert!(group.0.ends_with(named.trim_start_matches('/')), "{named}");
        assert!(refused.to_string().contains("cpu.rt_runtime_us"), "{refused}");
    }

    #[test]
    fn the_control_groups_budget_counts_if_it_is_smaller() {
        let group = Group::new("little").and_then(|group| {
            fs::write(group.0.join("cpu.rt_runtime_us"), "7000")?;
            Ok(group)
        });
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                return twinpath_test_rig::skip(format!("no control group with a real-time budget: {error}"));
            }
        };
        let all = RealTimeBudget::read();
        let own = apart(|| {
            group.enter().unwrap();
            RealTimeBudget::read()
        });
        assert_eq!(own, RealTimeBudget { runtime_us: Some(7_000), period_us: 1_000_000 });
        assert_ne!(all, own);
    }

    #[test]
    fn shares_of_real_time() {
        let share = |runtime_us, period_us| RealTimeBudget { runtime_us, period_us }.permille();
        assert_eq!(share(Some(950_000), 1_000_000), 950);
        assert_eq!((share(None, 1_000_000), share(Some(0), 1_000_000), share(Some(5), 0)), (1000, 0, 1000));
        assert!(RealTimeBudget::read().permille() <= 1000);
    }
}
