//! Advice about queue sizes for frames and connections: rings, queueing disciplines, socket buffers,
//! backlogs.

use super::{Advice, Adviser, Wanted, of_machine, setting};
use crate::setting::{Id, Place};
use crate::topology::Interface;

/// The maximum that Linux 6.18 has by default (net/core/sock.c, `sysctl_rmem_max`); before, it was 208 KiB.
const SOCKET_BUFFER_MAX_BYTES: u64 = 4 << 20;

/// Room for frames of a CPU that has already dropped some; the default is 1,000 (net/core/hotdata.c).
const BACKLOG_AFTER_DROPS: u64 = 10_000;

/// The default since Linux 5.4 (include/linux/socket.h, `SOMAXCONN`); before, it was 128.
const LISTEN_BACKLOG: u64 = 4096;

impl Adviser<'_> {
    /// Advises the queue sizes of an interface.
    pub(super) fn room_at(&self, interface: &Interface, advice: &mut Vec<Advice>) {
        let name = interface.owner.name.as_str();
        advice.push(self.line(Id::Qdisc, name, qdisc(interface)));
        advice.push(self.line(Id::NtupleFilters, name, Wanted::fact(interface.features.as_str())));
    }

    /// Advises larger rings where frames were lost.
    pub(super) fn rings(&self, interface: &Interface) -> Advice {
        let rings = setting(Place::Rings, &interface.owner);
        let drops = interface.ring_drops;
        let wanted = match interface.ring_limits.as_str() {
            "" => Wanted::Absent,
            // Larger rings cost latency and cache, so they are advised only if needed.
            _ if drops == 0 => Wanted::Shown { setting: rings },
            limits => Wanted::Value { setting: rings, any_of: vec![limits.to_owned()] },
        };
        let mut line = self.line(Id::Rings, interface.owner.name.as_str(), wanted);
        if drops > 0 {
            line.why.push_str(&format!(" ({drops} since the interface came up)"));
        }
        line
    }

    /// Advises the queue sizes of the machine.
    pub(super) fn room(&self, advice: &mut Vec<Advice>) {
        for (id, place) in [(Id::RmemMax, Place::RmemMax), (Id::WmemMax, Place::WmemMax)] {
            let wanted = Wanted::AtLeast { setting: of_machine(place), least: SOCKET_BUFFER_MAX_BYTES };
            advice.push(self.line(id, "", wanted));
        }
        let backlog = of_machine(Place::NetdevBacklog);
        let drops = self.topology.backlog_drops;
        let wanted = match drops {
            0 => Wanted::Shown { setting: backlog },
            _ => Wanted::AtLeast { setting: backlog, least: BACKLOG_AFTER_DROPS },
        };
        let mut line = self.line(Id::NetdevBacklog, "", wanted);
        if drops > 0 {
            line.why.push_str(&format!(" ({drops} since the machine started)"));
        }
        advice.push(line);
        let wanted = match self.topology.listen_backlog {
            None => Wanted::Absent,
            Some(most) => Wanted::Advised {
                now: most.to_string(),
                should_be: (most < LISTEN_BACKLOG)
                    .then(|| format!("sysctl net.core.somaxconn={LISTEN_BACKLOG}")),
            },
        };
        advice.push(self.line(Id::ListenBacklog, "", wanted));
    }
}

fn qdisc(interface: &Interface) -> Wanted {
    let now = interface.qdiscs.clone();
    let is_fifo = |kind: &str| ["pfifo_fast", "pfifo", "bfifo"].contains(&kind);
    match now.split(", ").find(|kind| is_fifo(kind)) {
        _ if now.is_empty() => Wanted::Absent,
        Some(_) => Wanted::Advised {
            should_be: Some(format!(
                "fq_codel: sysctl net.core.default_qdisc=fq_codel, then tc qdisc replace dev {} root {}",
                interface.owner.name,
                if interface.tx_queues > 1 { "mq" } else { "fq_codel" }
            )),
            now,
        },
        None => Wanted::fact(now),
    }
}
