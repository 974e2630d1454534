//! Tests of the advice for each mode on different machines.

use twinpath_worker::idle::Mode;

use super::fake::Fake;
use crate::{Id, Line, State, Trouble, topology};

/// `id subject: now -> advised (state)`, in short.
fn said(line: &Line) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    format!("{} {}: {} -> {} {:?}", line.id, line.subject, text(&line.now), text(&line.advised), line.state)
}

fn said_of(fake: &Fake, mode: Mode, cpus: &[usize], ids: &[Id]) -> Vec<String> {
    let lines = fake.lines(mode, cpus);
    lines.iter().filter(|line| ids.is_empty() || ids.contains(&line.id)).map(said).collect()
}

#[test]
fn a_machine_out_of_order_is_told_so_line_by_line() {
    let fake = Fake::new();
    let before = fake.everything();
    assert_eq!(
        said_of(&fake, Mode::Interrupt, &[1, 2], &[]),
        [
            "rings eth0: rx 256, tx 256 -> rx 4096, tx 2048 Change",
            "irq-affinity 40 eth0-TxRx-0: 0-3 -> 1 Change",
            "irq-affinity 41 eth0-TxRx-1: 3 -> 2 Change",
            "coalescing eth0: adaptive-rx on, rx-usecs 50 -> adaptive-rx off, rx-usecs 0 Change",
            "deferred-irqs eth0: 2 -> 0 Change",
            "gro-flush-timeout eth0: 20000 -> 0 Change",
            "irq-suspension eth0: - -> - Absent",
            "threaded-napi eth0: 1 -> 0 Change",
            "rps rx-0: 0-3 -> none Change",
            "rps rx-1: none -> none AsAdvised",
            "xps tx-0: 0-1 -> 1 Change",
            "xps tx-1: 2-3 -> 2 Change",
            "xps tx-2: 0,3 -> 0,3 AsAdvised",
            "qdisc eth0: mq, pfifo_fast -> fq_codel: sysctl net.core.default_qdisc=fq_codel, then tc qdisc replace dev eth0 root mq ForYou",
            "ntuple-filters eth0: ntuple-filters off -> - Either",
            "numa-node eth0: device on node 0 -> workers on node 0: CPUs 0-1 ForYou",
            "busy-poll : 50 -> 0 Change",
            "busy-read : 0 -> 0 AsAdvised",
            "governor CPU 1: schedutil -> performance Change",
            "governor CPU 2: userspace -> - Either",
            "idle-states CPU 1: 0 us to leave \"POLL\", 1 disabled -> - Either",
            "idle-states CPU 2: - -> - Absent",
            "cpu-latency CPU 1: 0 -> - Either",
            "cpu-latency CPU 2: - -> - Absent",
            "halt-polling : - -> - Absent",
            "isolated-cpus : 2 -> - Either",
            "irqbalance : running, pid 4711 -> stopped, or run with --banirq=40 --banirq=41 ForYou",
            "thp : always -> madvise Change",
            "memlock : 8388608 bytes -> ulimit -l unlimited, or LimitMEMLOCK=infinity ForYou",
            "rmem-max : 212992 -> 4194304 Change",
            "wmem-max : 8388608 -> 8388608 AsAdvised",
            "netdev-backlog : 1000 -> 10000 Change",
            "listen-backlog : 128 -> sysctl net.core.somaxconn=4096 ForYou",
            "preemption : PREEMPT_DYNAMIC, voluntary -> - Either",
            "threaded-irqs : yes, by threadirqs -> started without threadirqs ForYou",
            "idle-at-boot : idle=poll processor.max_cstate=1 -> started without idle=poll ForYou",
            "smt : on: CPU 3 on a worker's core -> - Either",
            "mitigations : in use for spectre_v2 -> - Either",
        ]
    );
    assert_eq!(fake.everything(), before, "looking changes nothing");
    let every = fake.lines(Mode::Interrupt, &[1, 2]);
    assert!(every.iter().all(|line| !line.why.is_empty()));
    assert!(every.iter().filter(|line| line.settable).all(|line| !line.cost.is_empty()));
}

#[test]
fn a_spinning_worker_wants_interrupts_elsewhere_and_its_cpu_for_itself() {
    let fake = Fake::new();
    let ids = [Id::IrqAffinity, Id::IsolatedCpus];
    assert_eq!(
        said_of(&fake, Mode::Poll, &[1], &ids),
        [
            "irq-affinity 40 eth0-TxRx-0: 0-3 -> 0 Change",
            "irq-affinity 41 eth0-TxRx-1: 3 -> 0 Change",
            "isolated-cpus : 2 -> isolcpus=1 nohz_full=1 ForYou",
        ]
    );
    // A CPU on the worker's core is worse than one on another node.
    fake.put("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1");
    let far = said_of(&fake, Mode::Poll, &[1], &[Id::IrqAffinity]);
    assert_eq!(far[0], "irq-affinity 40 eth0-TxRx-0: 0-3 -> 3 Change");
    // With a worker on each CPU, none is left.
    let none_left = said_of(&fake, Mode::Poll, &[0, 1, 2, 3], &ids);
    assert_eq!(none_left[2], "isolated-cpus : 2 -> - Either");
    assert_eq!(none_left[0], "irq-affinity 40 eth0-TxRx-0: 0-3 -> - Either");
    // An isolated CPU is better than none.
    let isolated = said_of(&fake, Mode::Poll, &[0, 1, 3], &[Id::IrqAffinity]);
    assert_eq!(isolated[0], "irq-affinity 40 eth0-TxRx-0: 0-3 -> 2 Change");
}

#[test]
fn a_core_that_is_shared_with_a_spinning_worker_is_told_and_frames_that_were_lost() {
    let fake = Fake::new();
    let ids = [Id::Smt, Id::IdleAtBoot, Id::Rings, Id::NetdevBacklog, Id::ThreadedIrqs];
    assert_eq!(
        said_of(&fake, Mode::Poll, &[1], &ids),
        [
            "rings eth0: rx 256, tx 256 -> rx 4096, tx 2048 Change",
            "netdev-backlog : 1000 -> 10000 Change",
            "threaded-irqs : yes, by threadirqs -> started without threadirqs ForYou",
            "idle-at-boot : idle=poll processor.max_cstate=1 -> - Either",
            "smt : on: CPU 3 on a worker's core -> CPU 3 left idle, or offline ForYou",
        ]
    );
    // Larger queues are advised only where frames were lost. A kernel with threads for all interrupts was
    // configured that way on purpose.
    fake.put("sys/class/net/eth0/statistics/rx_missed_errors", "0");
    fake.put("sys/class/net/eth0/statistics/rx_fifo_errors", "0");
    fake.put("proc/net/softnet_stat", "38a4b366 00000000 00000062");
    fake.put("proc/cmdline", "quiet");
    fake.put("proc/version", "Linux version 6.12.0 (gcc) #1 SMP PREEMPT_RT Debian");
    fake.put("sys/devices/system/cpu/smt/active", "0");
    assert_eq!(
        said_of(&fake, Mode::Poll, &[1], &ids),
        [
            "rings eth0: rx 256, tx 256 -> - Either",
            "netdev-backlog : 1000 -> - Either",
            "threaded-irqs : yes, by PREEMPT_RT -> - Either",
            "idle-at-boot : none set -> - Either",
            "smt : off -> - Either",
        ]
    );
}

#[test]
fn without_the_workers_cpus_nothing_is_said_of_what_depends_on_them() {
    let fake = Fake::new();
    let lines = fake.lines(Mode::Adaptive, &[]);
    let depends: Vec<Id> =
        lines.iter().filter(|line| line.state == State::NeedsCpu).map(|line| line.id).collect();
    assert_eq!(depends, [Id::IrqAffinity, Id::IrqAffinity, Id::Xps, Id::Xps, Id::Xps]);
}

#[test]
fn what_cannot_be_read_is_told_apart_from_what_is_not_there() {
    let mut fake = Fake::new();
    fake.hides.push(("threaded", Trouble::Absent));
    fake.hides.push(("coalescing", Trouble::Denied("Operation not permitted".to_owned())));
    assert_eq!(
        said_of(&fake, Mode::Poll, &[1], &[Id::ThreadedNapi, Id::Coalescing]),
        [
            "coalescing eth0: - -> adaptive-rx off, rx-usecs 0, rx-frames 1 Unreadable",
            "threaded-napi eth0: - -> - Absent",
        ]
    );
    // Files that are empty, or contain something unexpected.
    fake.put("sys/class/net/eth0/queues/rx-0/rps_cpus", "");
    fake.put("sys/kernel/mm/transparent_hugepage/enabled", "what");
    let lines = said_of(&fake, Mode::Poll, &[1], &[Id::Rps, Id::Thp]);
    // A setting without a present value could not be restored.
    assert_eq!(lines[0], "rps rx-0:  -> none Unreadable");
    assert_eq!(lines[2], "thp : what -> madvise Change");
}

#[test]
fn what_the_kernel_alone_decides_on_is_not_ours_to_change() {
    use std::os::unix::fs::PermissionsExt as _;
    let fake = Fake::new();
    let managed = fake.path("proc/irq/40/smp_affinity_list");
    std::fs::set_permissions(managed, std::fs::Permissions::from_mode(0o444)).unwrap();
    let lines = fake.lines(Mode::Interrupt, &[1]);
    assert_eq!((lines[1].state, lines[1].settable), (State::ForYou, false));
    assert_eq!((lines[2].state, lines[2].settable), (State::Change, true));
}

#[test]
fn a_name_that_is_no_interface_is_refused() {
    let fake = Fake::new();
    for name in ["", "eth1", "../net/eth0", ".", "eth0/queues"] {
        let refused = topology::look(&fake, Some(name)).unwrap_err().to_string();
        assert!(refused.contains("there are: eth0"), "{refused}");
    }
}

#[test]
fn interrupts_of_the_bridge_above_a_device_are_not_its_own() {
    let fake = Fake::new();
    for (irq, cpu) in [(40, "3"), (41, "1"), (42, "0"), (43, "2")] {
        fake.put(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
    }
    fake.put("proc/irq/43/pcieport/.keep", "");
    fake.put("sys/class/net/eth0/msi_irqs/43", "msi");
    // Interrupt 42 does not belong to a queue.
    assert_eq!(topology::interrupt_cpus(&fake, "eth0"), [1, 3]);
}

#[test]
fn a_vlan_has_no_interrupts_but_an_interface_that_has() {
    let fake = Fake::new();
    fake.put("sys/class/net/eth0.5/ifindex", "9");
    std::os::unix::fs::symlink("../eth0", fake.path("sys/class/net/eth0.5/lower_eth0")).unwrap();
    let vlan = topology::look(&fake, Some("eth0.5")).unwrap().interface.unwrap();
    assert!(vlan.interrupts.is_empty());
    assert_eq!(vlan.stands_on, ["eth0"]);
}

#[test]
fn a_virtio_device_has_the_interrupts_of_what_carries_it() {
    let fake = Fake::new();
    std::fs::remove_dir_all(fake.path("sys/class/net/eth0/device")).unwrap();
    fake.put("sys/devices/pci0/virtio1/features", "");
    fake.put("sys/devices/pci0/msi_irqs/41", "msix");
    std::os::unix::fs::symlink("../../bus/virtio", fake.path("sys/devices/pci0/virtio1/subsystem")).unwrap();
    let device = fake.path("sys/class/net/eth0/device");
    std::os::unix::fs::symlink("../../../devices/pci0/virtio1", device).unwrap();
    let found = topology::look(&fake, Some("eth0")).unwrap().interface.unwrap().interrupts;
    assert_eq!((found.len(), found[0].irq, found[0].queue), (1, 41, 1));
    fake.put("proc/irq/41/effective_affinity_list", "3");
    assert_eq!(topology::interrupt_cpus(&fake, "eth0"), [3]);
}
