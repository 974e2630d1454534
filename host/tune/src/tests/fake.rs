//! A simulated machine in a directory, with four CPUs and one interface with two queues, that can be told to fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use twinpath_worker::idle::Mode;

use crate::apply::{Outcome, apply};
use crate::journal::{Journal, JournalError};
use crate::restore::{Which, restore};
use crate::{At, Host, Line, System, Trouble, Wish, advise, survey, topology};

/// Every setting different from the advice for `interrupt` on CPU 1 and 2.
const FILES: [(&str, &str); 64] = [
    ("sys/class/net/eth0/ifindex", "7"),
    ("sys/class/net/eth0/address", "02:00:00:00:00:07"),
    ("sys/class/net/eth0/napi_defer_hard_irqs", "2"),
    ("sys/class/net/eth0/gro_flush_timeout", "20000"),
    ("sys/class/net/eth0/threaded", "1"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "f"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "3"),
    ("sys/class/net/eth0/queues/tx-1/xps_cpus", "c"),
    ("sys/class/net/eth0/queues/tx-2/xps_cpus", "9"),
    ("sys/class/net/eth0/device/numa_node", "0"),
    ("sys/class/net/eth0/device/msi_irqs/40", "msix"),
    ("sys/class/net/eth0/device/msi_irqs/41", "msix"),
    ("sys/class/net/eth0/device/msi_irqs/42", "msix"),
    ("proc/irq/40/smp_affinity_list", "0-3"),
    ("proc/irq/40/eth0-TxRx-0/.keep", ""),
    ("proc/irq/41/smp_affinity_list", "3"),
    ("proc/irq/41/eth0-TxRx-1/.keep", ""),
    ("proc/irq/42/smp_affinity_list", "0"),
    ("proc/irq/42/eth0-misc/.keep", ""),
    ("proc/sys/net/core/busy_poll", "50"),
    ("proc/sys/net/core/busy_read", "0"),
    ("proc/sys/kernel/random/boot_id", "first-boot"),
    ("proc/self/limits", "Max locked memory         8388608              8388608              bytes"),
    ("proc/self/status", "CapEff:\t0000000000000000"),
    ("proc/4711/comm", "irqbalance"),
    ("sys/devices/system/cpu/online", "0-3"),
    ("sys/devices/system/cpu/isolated", "2"),
    ("sys/devices/system/cpu/cpu0/node0/.keep", ""),
    ("sys/devices/system/cpu/cpu1/node0/.keep", ""),
    ("sys/devices/system/cpu/cpu2/node1/.keep", ""),
    ("sys/devices/system/cpu/cpu3/node1/.keep", ""),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "schedutil"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_available_governors", "performance schedutil"),
    ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "userspace"),
    ("sys/devices/system/cpu/cpu2/cpufreq/scaling_available_governors", "userspace"),
    ("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "0"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state0/name", "POLL"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state0/latency", "0"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state0/disable", "0"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "133"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "1"),
    ("sys/devices/system/cpu/cpu1/cpuidle/current_driver", "intel_idle"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
    ("sys/fake/coalescing/eth0", "adaptive-rx on, rx-usecs 50"),
    ("sys/fake/rings/eth0", "rx 256, tx 256"),
    ("sys/fake/ringlimits/eth0", "rx 4096, tx 2048"),
    ("sys/fake/features/eth0", "ntuple-filters off"),
    ("sys/fake/qdisc/7", "mq, pfifo_fast"),
    ("sys/class/net/eth0/statistics/rx_missed_errors", "3"),
    ("sys/class/net/eth0/statistics/rx_fifo_errors", "1"),
    ("proc/sys/net/core/rmem_max", "212992"),
    ("proc/sys/net/core/wmem_max", "8388608"),
    ("proc/sys/net/core/netdev_max_backlog", "1000"),
    ("proc/sys/net/core/somaxconn", "128"),
    ("proc/net/softnet_stat", "38a4b366 00000000 00000062\n2d48f634 0000005c 00000042"),
    ("proc/version", "Linux version 6.1.0-13-amd64 (gcc) #1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1"),
    ("proc/cmdline", "root=/dev/sda1 threadirqs idle=poll processor.max_cstate=1 quiet"),
    ("sys/kernel/debug/sched/preempt", "none (voluntary) full"),
    ("sys/devices/system/cpu/smt/active", "1"),
    ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3"),
    ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Retpolines; STIBP: disabled"),
    ("sys/devices/system/cpu/vulnerabilities/l1tf", "Not affected"),
];

/// The simulated machine.
pub(super) struct Fake {
    directory: TempDir,
    host: Host,
    /// Writes of paths that contain this text fail with this error.
    pub(super) refuses: Vec<(&'static str, Trouble)>,
    /// Reads of paths that contain this text fail with this error.
    pub(super) hides: Vec<(&'static str, Trouble)>,
    /// The write at which the process dies, from 0, and whether the write is still done.
    pub(super) dies_at: Option<(usize, bool)>,
    /// The shortest pause that the device supports, us.
    pub(super) coarse_us: Option<u32>,
    /// The disk is full from the first write on.
    pub(super) fills_up: bool,
    pub(super) writes: usize,
}

impl Fake {
    pub(super) fn new() -> Self {
        // In memory if possible: journals are written through to the disk, and there are many.
        let memory = Path::new("/dev/shm");
        let directory = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        for (path, text) in FILES {
            put(directory.path(), path, text);
        }
        fs::create_dir_all(directory.path().join("proc/thread-self/ns")).unwrap();
        let fake = Self {
            host: Host::at(directory.path()),
            directory,
            refuses: Vec::new(),
            hides: Vec::new(),
            dies_at: None,
            coarse_us: None,
            fills_up: false,
            writes: 0,
        };
        fake.namespace("net:[1]");
        fake
    }

    pub(super) fn namespace(&self, name: &str) {
        let link = self.directory.path().join("proc/thread-self/ns/net");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(name, link).unwrap();
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        put(self.directory.path(), path, text);
    }

    pub(super) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Every file, except for the journal's, with the content written last.
    pub(super) fn everything(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.path("sys"), self.path("proc")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => directories.push(entry.path()),
                    kind if kind.is_file() => {
                        files.insert(entry.path(), normal(&fs::read_to_string(entry.path()).unwrap()));
                    }
                    _ => {}
                }
            }
        }
        files
    }

    pub(super) fn journal_file(&self) -> PathBuf {
        self.path("run/tune.json")
    }

    pub(super) fn journal(&self) -> Result<Journal, JournalError> {
        Journal::open(&self.journal_file(), self)
    }

    pub(super) fn lines(&self, mode: Mode, cpus: &[usize]) -> Vec<Line> {
        let topology = topology::look(self, Some("eth0")).unwrap();
        survey::survey(self, advise::advise(&topology, &Wish { mode, cpus: cpus.to_vec() }))
    }

    /// Does what `tune eth0 --apply --mode interrupt --cpu 1,2` does, for an asker.
    pub(super) fn apply_for(&mut self, asker: &str) -> Vec<Outcome> {
        let lines = self.lines(Mode::Interrupt, &[1, 2]);
        let mut journal = self.journal().unwrap();
        apply(self, &mut journal, &lines, asker).unwrap()
    }

    pub(super) fn apply(&mut self) -> Vec<Outcome> {
        self.apply_for("eth0")
    }

    pub(super) fn restore(&mut self) -> Vec<Outcome> {
        self.restore_for(None)
    }

    pub(super) fn restore_for(&mut self, asker: Option<&str>) -> Vec<Outcome> {
        let mut journal = self.journal().unwrap();
        restore(self, &mut journal, &Which { asker, ids: &[] }).unwrap()
    }

    fn place(at: &At) -> String {
        match at {
            At::File(path) => path.clone(),
            At::Ethtool { interface, group } => format!("sys/fake/{group:?}/{interface}").to_lowercase(),
            At::Qdisc { ifindex } => format!("sys/fake/qdisc/{ifindex}"),
            At::Napi { interface, parameter, .. } => {
                format!("sys/class/net/{interface}/{}", parameter.file().unwrap_or("none"))
            }
        }
    }
}

impl System for Fake {
    fn read(&self, at: &At) -> Result<String, Trouble> {
        let path = Self::place(at);
        if let Some((_, trouble)) = self.hides.iter().find(|(part, _)| path.contains(part)) {
            return Err(trouble.clone());
        }
        self.host.read(&At::File(path))
    }

    fn write(&mut self, at: &At, value: &str) -> Result<(), Trouble> {
        let (path, number) = (Self::place(at), self.writes);
        self.writes += 1;
        if self.fills_up {
            // The temporary file beside the journal cannot be created any more.
            fs::create_dir_all(self.path("run/tune.new")).unwrap();
        }
        assert!(self.dies_at != Some((number, false)), "killed before a write");
        if let Some((_, trouble)) = self.refuses.iter().find(|(part, _)| path.contains(part)) {
            return Err(trouble.clone());
        }
        let value = match self.coarse_us {
            Some(us) => value.replace("rx-usecs 0", &format!("rx-usecs {us}")),
            None => value.to_owned(),
        };
        // The kernel lists all choices after a write.
        let value = if path.ends_with("hugepage/enabled") {
            ["always", "madvise", "never"]
                .map(|choice| if choice == value { format!("[{choice}]") } else { choice.to_owned() })
                .join(" ")
        } else {
            value
        };
        let written = self.host.write(&At::File(path), &value);
        assert!(self.dies_at != Some((number, true)), "killed after a write");
        written
    }

    fn settable(&self, at: &At) -> bool {
        self.host.settable(&At::File(Self::place(at)))
    }

    fn list(&self, directory: &str) -> Vec<String> {
        self.host.list(directory)
    }

    fn link(&self, path: &str) -> Option<String> {
        self.host.link(path)
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Masks are equal with and without leading zeros.
fn normal(text: &str) -> String {
    match text.trim_start_matches('0') {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    }
}
