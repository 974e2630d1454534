//! Reads decisions made when the machine started: preemption, threaded interrupts, limits on idle states,
//! sibling CPUs, and mitigations (Documentation/admin-guide/kernel-parameters.txt).

use super::system::System;

/// Parameters of the kernel's command line that concern idle states.
const IDLE_PARAMETERS: [&str; 6] = [
    "idle=",
    "processor.max_cstate=",
    "intel_idle.max_cstate=",
    "cpuidle.off=",
    "cpuidle.governor=",
    "nohlt",
];

/// How the machine was started. Most of it changes only by a restart; the preemption mode (debugfs) and sibling CPUs
/// (sysfs) can be changed while it runs, which this program does not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// How the kernel may be preempted: `PREEMPT_DYNAMIC, voluntary`; empty: not known.
    pub preemption: String,
    /// Whether interrupts are handled by threads, and the reason.
    pub threaded_irqs: Option<&'static str>,
    /// The parameters that concern idle states.
    pub idle_parameters: Vec<String>,
    /// Whether cores have more than one CPU in use; none: not known.
    pub smt: Option<bool>,
    /// Weaknesses of the CPU that the kernel works around, in order of their names; none: not known.
    pub mitigations: Option<Vec<String>>,
}

/// Reads it.
pub(crate) fn look(system: &dyn System) -> Boot {
    let version = system.file("proc/version").unwrap_or_default();
    let command_line = system.file("proc/cmdline").unwrap_or_default();
    let parameters = || command_line.split_whitespace();
    let realtime =
        version.contains("PREEMPT_RT") || system.file("sys/kernel/realtime").as_deref() == Some("1");
    Boot {
        preemption: preemption(&version, realtime, system),
        threaded_irqs: match (realtime, parameters().any(|parameter| parameter == "threadirqs")) {
            (true, _) => Some("PREEMPT_RT"),
            (false, true) => Some("threadirqs"),
            (false, false) => None,
        },
        idle_parameters: parameters()
            .filter(|parameter| IDLE_PARAMETERS.iter().any(|known| parameter.starts_with(known)))
            .map(str::to_owned)
            .collect(),
        smt: system.file("sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        mitigations: mitigations(system),
    }
}

fn preemption(version: &str, realtime: bool, system: &dyn System) -> String {
    let built = if realtime {
        "PREEMPT_RT"
    } else {
        match version.split_whitespace().find(|word| word.starts_with("PREEMPT")) {
            Some(built) => built,
            None if version.is_empty() => return String::new(),
            None => "none or voluntary",
        }
    };
    // Only root sees it, and only where debugfs is mounted: `none voluntary (full) lazy`.
    let chosen = system.file("sys/kernel/debug/sched/preempt").unwrap_or_default();
    match chosen.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')')) {
        Some(chosen) => format!("{built}, {chosen}"),
        None => built.to_owned(),
    }
}

fn mitigations(system: &dyn System) -> Option<Vec<String>> {
    const DIRECTORY: &str = "sys/devices/system/cpu/vulnerabilities";
    let known = system.list(DIRECTORY);
    let is_mitigated = |name: &String| {
        system.file(&format!("{DIRECTORY}/{name}")).is_some_and(|state| state.starts_with("Mitigation"))
    };
    (!known.is_empty()).then(|| known.into_iter().filter(is_mitigated).collect())
}
