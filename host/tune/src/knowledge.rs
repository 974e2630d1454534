//! The texts that explain each setting: why it is advised, and what it may cost.
//!
//! Sources: Documentation/networking/{napi,scaling}.rst, Documentation/admin-guide/pm/{cpuidle,cpufreq}.rst,
//! Documentation/admin-guide/kernel-parameters.txt, include/uapi/linux/ethtool.h of Linux 6.18; our own labs for
//! sentences about our test machines.

use twinpath_worker::idle::Mode;

use super::setting::Id;

/// The explanation of a setting.
pub(crate) struct Knowledge {
    /// The reason for the advised value.
    pub(crate) why: &'static str,
    /// The possible cost of the advised value; empty for none.
    pub(crate) cost: &'static str,
}

/// The explanation of a setting for a mode.
pub(crate) const fn of(id: Id, mode: Mode) -> Knowledge {
    let (why, cost) = match id {
        Id::IrqAffinity => irq_affinity(mode),
        Id::Coalescing => (
            "the device waits before it interrupts (interrupt throttling: with `rx-usecs` 500 it interrupts once in 500 us): \
             that much later every packet is seen, in every mode",
            "more interrupts per second under load, until the kernel goes over to polling",
        ),
        Id::DeferredIrqs | Id::GroFlushTimeout => (
            "they keep interrupts off between packets, for programs that poll the device themselves; twinpath does \
             not, so a packet would wait for the timer",
            "a program that does poll the device itself (SO_PREFER_BUSY_POLL) loses what it gained",
        ),
        Id::IrqSuspension => (
            "it keeps interrupts off while a program polls by epoll; twinpath does not, and after such a program has \
             stalled, packets wait for this long",
            "a program that does poll by epoll gets interrupts under load",
        ),
        Id::ThreadedNapi => (
            "packets would be received by a kernel thread, which has to be woken and scheduled first: one more wake-up",
            "reception goes back to softirq: a worker at real-time priority on that CPU may be held up by it",
        ),
        Id::Rps => (
            "each packet would be handed to another CPU by an interrupt between CPUs before anybody sees it",
            "with fewer queues than CPUs, the kernel's own traffic is received on fewer CPUs",
        ),
        Id::Xps => (
            "a worker that shares no transmit queue never waits for another CPU's lock",
            "other CPUs share the remaining transmit queues",
        ),
        Id::NumaNode => ("every frame would cross to the other memory node", ""),
        Id::BusyPoll | Id::BusyRead => (
            "with it every sleep on sockets begins with spinning, in every program: the worker's own policy decides \
             that, by what it has learnt",
            "kernel sockets of other programs lose the spinning",
        ),
        Id::Governor => governor(mode),
        Id::IdleStates | Id::CpuLatency | Id::HaltPolling => idle(id),
        Id::IsolatedCpus => isolated(mode),
        Id::Irqbalance => (
            "it moves interrupts to other CPUs every 10 s, whatever was set by hand",
            "other devices' interrupts stay where they are",
        ),
        Id::Thp => (
            "with `always` the kernel puts pages together behind every program's back: a fault may wait for it",
            "programs that profit from huge pages without asking for them lose them",
        ),
        Id::Memlock => ("frame memory is locked; without enough of it the AF_XDP path can't be opened", ""),
        Id::Qdisc
        | Id::Rings
        | Id::NtupleFilters
        | Id::RmemMax
        | Id::WmemMax
        | Id::NetdevBacklog
        | Id::ListenBacklog => room(id),
        Id::Preemption | Id::ThreadedIrqs | Id::IdleAtBoot | Id::Smt | Id::Mitigations => at_boot(id, mode),
    };
    Knowledge { why, cost }
}

/// Of the room for frames and connections that wait.
const fn room(id: Id) -> (&'static str, &'static str) {
    match id {
        Id::Qdisc => (
            "the fast path sends past it; replies by the kernel's sockets wait there behind all that was sent before, \
             unless each flow has a queue of its own, as with fq_codel or fq",
            "",
        ),
        Id::Rings => (
            "a receive ring that is full loses frames before anybody sees them; a larger one holds more of a burst",
            "most devices lose their link for a moment when the size changes; more memory, of which less is in the cache",
        ),
        Id::NtupleFilters => (
            "an n-tuple rule leads a service's flows to the queue whose interrupt is on its worker's CPU (ethtool -N; \
             twinpath sets none itself); where they are off, Intel's flow director moves flows after their senders \
             instead, which may reorder packets",
            "",
        ),
        Id::RmemMax | Id::WmemMax => (
            "a program without CAP_NET_ADMIN gets no larger socket buffer than this, and a burst that does not fit is \
             dropped: of services on the kernel's path, and of unmodified programs",
            "each socket may hold so much of the kernel's memory",
        ),
        Id::NetdevBacklog => (
            "frames that a virtual device, a tunnel or RPS hands to a CPU wait there; beyond it they are dropped",
            "under overload frames wait longer before one is dropped",
        ),
        Id::ListenBacklog => (
            "connections that come while a worker is busy wait to be accepted; beyond it a client tries again after 1 s",
            "",
        ),
        _ => ("", ""),
    }
}

/// Of what was decided when the machine started.
const fn at_boot(id: Id, mode: Mode) -> (&'static str, &'static str) {
    match id {
        Id::Preemption => (
            "how soon a worker runs once it is woken while the kernel works for others: on PREEMPT_RT at once, for \
             somewhat dearer system calls; preempt= at boot chooses among the others",
            "",
        ),
        Id::ThreadedIrqs => {
            ("each interrupt wakes a thread that handles it: one more wake-up before every packet", "")
        }
        Id::IdleAtBoot => (
            "caps at boot hold every CPU in shallow states at all times, and with idle=poll it spins; a worker asks for \
             the same only while traffic lasts",
            "",
        ),
        Id::Smt => smt(mode),
        Id::Mitigations => (
            "each makes system calls, interrupts and changes of thread dearer, which the fast path has fewer of; to be \
             off (mitigations=off at boot) only where no code of others runs",
            "",
        ),
        _ => ("", ""),
    }
}

/// Of idle CPUs.
const fn idle(id: Id) -> (&'static str, &'static str) {
    match id {
        Id::IdleStates => (
            "what leaving the deepest state takes is what the first packet after a silence waits; while traffic lasts, \
             a worker's own request keeps the CPU out of it where that helps",
            "",
        ),
        Id::CpuLatency => (
            "a permanent request costs power at all times; a worker makes its own and releases it when there is no traffic",
            "",
        ),
        Id::HaltPolling => (
            "a guest CPU spins so long before it halts: wake-ups are cheaper, for every program, and the host sees a \
             busy CPU; a worker's own request does the same only while traffic lasts",
            "",
        ),
        _ => ("", ""),
    }
}

const fn irq_affinity(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Poll => (
            "the worker never sleeps, so nobody has to be woken: on its CPU, receiving would take turns with it",
            "another CPU does the receiving",
        ),
        Mode::Interrupt | Mode::Adaptive => (
            "a sleeper is woken by the interrupt itself, if both are on one CPU; from another, or from a sibling, \
             its CPU has to be woken as well (on our test machines that took 2 to 30 times as long)",
            "receiving and serving share one CPU: under full load another CPU for the interrupt carries more, and a \
             worker at real-time priority can hold receiving up",
        ),
    }
}

const fn governor(mode: Mode) -> (&'static str, &'static str) {
    let why = match mode {
        Mode::Poll => {
            "a spinning worker needs full speed all the time; other governors take time to find that out"
        }
        Mode::Interrupt | Mode::Adaptive => {
            "other governors lower the clock of a CPU that mostly sleeps, so each wake-up runs at the lowest speed"
        }
    };
    (why, "more power while the CPU works; asleep it takes the same")
}

const fn smt(mode: Mode) -> (&'static str, &'static str) {
    let why = match mode {
        Mode::Poll => {
            "a core's two CPUs share its execution units: one beside a spinning worker slows it down"
        }
        Mode::Interrupt | Mode::Adaptive => "a worker that sleeps leaves its core to the other CPU meanwhile",
    };
    (why, "")
}

const fn isolated(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Poll => (
            "whatever else runs on a spinning worker's CPU takes its time, up to a whole time slice",
            "nothing else uses these CPUs; only a boot parameter (isolcpus=, nohz_full=) or an isolated cpuset \
             partition sets it",
        ),
        Mode::Interrupt | Mode::Adaptive => {
            ("a worker that sleeps shares its CPU; isolation only helps where others keep that CPU busy", "")
        }
    }
}
