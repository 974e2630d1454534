//! The virtual machine: its qemu command line, and its description in reports.

use std::path::Path;
use std::time::Duration;

use super::nic::Nic;
use super::qemu::Qemu;

/// The subcommand that the guest's first process runs.
pub(super) const INSIDE: &str = "lab-guest";
const MEMORY_MIB: u32 = 2048;

/// The executor of the guest's instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    /// Software emulation, if KVM is not available.
    Emulated {
        because: String,
        /// The guest's clock counts its instructions, on one CPU. So times do not depend on the host's other load: they
        /// can be compared with each other, but are no real times.
        counted: bool,
    },
}

impl Accelerator {
    pub(super) fn counts(&self) -> bool {
        matches!(self, Self::Emulated { counted: true, .. })
    }
}

/// The parameters of a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) accelerator: &'a Accelerator,
    pub(super) qemu: &'a Qemu,
    pub(super) nic: Option<Nic>,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The file for the kernel's own messages.
    pub(super) console: &'a Path,
}

impl Machine<'_> {
    /// The command line; the guest's messages appear on qemu's standard output.
    pub(super) fn args(&self) -> Vec<String> {
        let (accelerator, cpu, cpus, clock) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host", "2", ""),
            // The emulated time-stamp counters of both CPUs are the same, but the kernel's test for that is too strict.
            Accelerator::Emulated { counted: false, .. } => ("tcg,thread=multi", "max", "2", " tsc=reliable"),
            // Two CPUs would run alternately for many milliseconds each.
            Accelerator::Emulated { counted: true, .. } => ("tcg,thread=single", "max", "1", " tsc=reliable"),
        };
        let shown = |path: &Path| path.display().to_string();
        // qemu ends when the kernel restarts, so a panic ends it as well.
        let append = format!("console=ttyS0 loglevel=4 panic=-1{clock} -- {INSIDE}");
        let pairs = [
            ("-name", "guest=twinpath-lab,debug-threads=on".to_owned()),
            ("-accel", accelerator.to_owned()),
            ("-cpu", cpu.to_owned()),
            ("-smp", cpus.to_owned()),
            ("-m", format!("{MEMORY_MIB}M")),
            ("-display", "none".to_owned()),
            ("-serial", format!("file:{}", shown(self.console))),
            ("-chardev", "stdio,id=report,signal=off".to_owned()),
            ("-device", "virtio-serial-pci".to_owned()),
            ("-device", "virtserialport,chardev=report,name=report".to_owned()),
            ("-kernel", shown(self.kernel)),
            ("-initrd", shown(self.initramfs)),
            ("-append", append),
        ];
        let switches = ["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned);
        // One nanosecond per instruction; while the guest sleeps, its clock advances to the next event.
        let counted = self.accelerator.counts().then(|| ("-icount", "shift=0,sleep=off".to_owned()));
        let data = self.qemu.data.iter().map(|place| ("-L", shown(place)));
        let pairs = pairs.into_iter().chain(counted).chain(data);
        let pairs = pairs.flat_map(|(name, value)| [name.to_owned(), value]);
        let network = self.nic.into_iter().flat_map(Nic::args);
        switches.into_iter().chain(pairs).chain(network).collect()
    }

    /// A guest that has sent nothing by then does not start.
    pub(super) fn start_limit(&self) -> Duration {
        Duration::from_secs(if *self.accelerator == Accelerator::Kvm { 20 } else { 180 })
    }
}

/// The reason not to try KVM. Even if it can be opened, it may not work.
pub(super) fn kvm_obstacle() -> Option<String> {
    const DEVICE: &str = "/dev/kvm";
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.err().map(|error| format!("cannot open {DEVICE}: {error}"))
}

pub(super) fn described(accelerator: &Accelerator) -> String {
    match accelerator {
        Accelerator::Kvm => "by KVM".to_owned(),
        Accelerator::Emulated { because, counted: false } => {
            format!("by software emulation, because KVM does not work: {because}")
        }
        Accelerator::Emulated { because, counted: true } => {
            format!("by software emulation that counts instructions, because KVM does not work: {because}")
        }
    }
}

/// The note for the report.
pub(super) fn note(accelerator: &Accelerator, qemu: &str, cpus: [usize; 2]) -> String {
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let placed = format!("its two CPUs are the host's CPUs {} and {}", cpus[0], cpus[1]);
    match accelerator {
        Accelerator::Kvm => {
            format!("in a virtual machine: qemu {qemu} with KVM, {placed}; the host's Linux is {host}")
        }
        Accelerator::Emulated { because, counted: true } => format!(
            "in a virtual machine of software emulation (qemu {qemu}; one CPU; the host's Linux is {host}), whose clock counts \
             instructions, 1 ns each: ratios hold and repeat, times are no times. KVM does not work here: {because}"
        ),
        Accelerator::Emulated { because, counted: false } => format!(
            "in a virtual machine of software emulation (qemu {qemu}; {placed}; the host's Linux is {host}): that everything works \
             there is all it tells, times and CPU shares mean nothing. KVM does not work here: {because}"
        ),
    }
}
