//! Reads the kernel's information about idle CPUs: driver, governor, idle states, polling before a halt, isolated
//! CPUs.
//!
//! It reads and never writes. The values may be wrong: virtual machines state 1 us for an idle state that takes 50
//! (`twinpath_worker::costs` measures it). Documentation/admin-guide/pm/cpuidle.rst.

use std::fs;

use twinpath_time::Duration;

use crate::affinity::parse_cpu_list;

const CPUS: &str = "/sys/devices/system/cpu";

/// One idle state of a CPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Name, as `POLL`, `C1`, `C6`.
    pub name: String,
    /// Exit latency, us.
    pub exit_us: u32,
    /// Target residency: the shortest stay for which entering it pays, us.
    pub residency_us: u32,
    /// Whether it was disabled by an administrator.
    pub disabled: bool,
}

/// Idle states of `cpu`, the shallowest first; empty without a cpuidle driver.
#[must_use]
pub fn states(cpu: usize) -> Vec<IdleState> {
    (0..)
        .map_while(|state| {
            let read = |what| value(&format!("{CPUS}/cpu{cpu}/cpuidle/state{state}/{what}"));
            let number = |what| read(what)?.parse().ok();
            Some(IdleState {
                name: read("name")?,
                exit_us: number("latency")?,
                residency_us: number("residency").unwrap_or(0),
                disabled: read("disable").is_some_and(|disabled| disabled != "0"),
            })
        })
        .collect()
}

/// The cpuidle driver. `None` if there is none; then a latency request has no effect.
#[must_use]
pub fn driver() -> Option<String> {
    value(&format!("{CPUS}/cpuidle/current_driver")).filter(|driver| driver != "none")
}

/// The cpuidle governor.
#[must_use]
pub fn governor() -> Option<String> {
    let now = value(&format!("{CPUS}/cpuidle/current_governor"));
    now.or_else(|| value(&format!("{CPUS}/cpuidle/current_governor_ro")))
        .filter(|governor| governor != "none")
}

/// How long at most an idle CPU of this guest polls before it halts, ns (`guest_halt_poll_ns`); `None` without that
/// driver.
#[must_use]
pub fn guest_halt_poll_ns() -> Option<u64> {
    value("/sys/module/haltpoll/parameters/guest_halt_poll_ns")?.parse().ok()
}

/// How long `cpu` has been idle since boot, from /proc/stat, in steps of 10 ms. `None` if it is not listed.
#[must_use]
pub fn idle_time(cpu: usize) -> Option<Duration> {
    let ticks = idle_ticks(&fs::read_to_string("/proc/stat").ok()?, cpu)?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Ticks in that CPU's line: idle and waiting for I/O (proc_stat(5)).
fn idle_ticks(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    Some(fields.get(3)? + fields.get(4)?)
}

/// CPUs online, in ascending order; empty if the kernel does not list them.
#[must_use]
pub fn online_cpus() -> Vec<usize> {
    cpus("online")
}

/// CPUs isolated from other work by the scheduler (`isolcpus=` or an isolated cpuset partition), in ascending order.
#[must_use]
pub fn isolated_cpus() -> Vec<usize> {
    cpus("isolated")
}

fn cpus(list: &str) -> Vec<usize> {
    value(&format!("{CPUS}/{list}")).and_then(|text| parse_cpu_list(&text).ok()).unwrap_or_default()
}

/// The content of a file, if it can be read and is not empty.
fn value(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_ticks_are_those_of_the_cpu_asked_for() {
        let stat = "cpu  9 9 9 9 9\ncpu1 974914 27076 240976 1372626 2355 0 36516\ncpu12 1 2 3 4 5 6\ncpu2 1 2\nintr 5";
        assert_eq!((idle_ticks(stat, 1), idle_ticks(stat, 12)), (Some(1_374_981), Some(9)));
        assert_eq!((idle_ticks(stat, 2), idle_ticks(stat, 0)), (None, None));
    }

    #[test]
    fn states_come_from_the_shallowest_on_and_only_with_a_driver() {
        let states = states(0);
        assert!(states.is_sorted_by_key(|state| state.exit_us), "{states:?}");
        assert!(states.is_empty() || driver().is_some(), "{states:?}");
        assert!(idle_time(0).is_some());
        assert!(online_cpus().contains(&0) || online_cpus().is_empty());
    }
}
