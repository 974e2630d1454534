//! Sets the server's interface up for busy polling from `epoll_wait`: with queues that can be polled, and interrupts
//! that are suspended meanwhile. Dropping the value restores the settings.

use std::fs;

use anyhow::{Context, bail};
use twinpath_sys::Namespace;
use twinpath_sys::ethtool::{Offload, set_offload};
use twinpath_sys::packet_socket::interface_index;
use twinpath_tune::{Parameter, set_napis};

use crate::lab::topology::{CLIENT, SERVER, Topology};

/// The values that the kernel's documentation proposes (Documentation/networking/napi.rst, "IRQ suspension"; the
/// commits that introduced it).
const SETTINGS: [(Parameter, u64); 3] = [
    (Parameter::DeferHardIrqs, 100),
    (Parameter::GroFlushTimeout, 20_000),
    (Parameter::IrqSuspendTimeout, 20_000_000),
];

/// In force until dropped.
pub(super) struct Polled {
    client: Namespace,
    server: Namespace,
}

impl Polled {
    pub(super) fn new(topology: &Topology) -> anyhow::Result<Self> {
        let this = Self { client: topology.client.duplicate()?, server: topology.server.duplicate()? };
        // A veth puts a datagram into its peer's queue, which can be polled, only if the peer coalesces (GRO) and the
        // veth does not segment (drivers/net/veth.c, veth_skb_is_eligible_for_gro); otherwise it delivers it at once.
        this.switch(true)
            .with_context(|| format!("cannot give {} queues that can be polled", SERVER.interface))?;
        this.server.run(|| -> anyhow::Result<()> {
            let ifindex = interface_index(SERVER.interface)?;
            for (parameter, value) in SETTINGS {
                let count = set_napis(ifindex, parameter, value)
                    .with_context(|| format!("interrupts cannot be suspended: {parameter:?}"))?;
                if count == 0 {
                    bail!("not on this device: it has no queue that can be polled");
                }
            }
            Ok(())
        })??;
        Ok(this)
    }

    fn switch(&self, polled: bool) -> anyhow::Result<()> {
        self.client.run(|| set_offload(CLIENT.interface, Offload::Segmentation, !polled))??;
        self.server.run(|| set_offload(SERVER.interface, Offload::Receive, polled))??;
        Ok(())
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // The namespace ends with the lab in any case.
        let _ = self.switch(false);
    }
}

/// Packets that sockets in the namespace of a process received by polling (`TcpExt: BusyPollRxPackets`).
pub(super) fn polled_packets(pid: u32) -> Option<u64> {
    counter(&fs::read_to_string(format!("/proc/{pid}/net/netstat")).ok()?, "TcpExt:", "BusyPollRxPackets")
}

/// Parses a line of names followed by one of values.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|known| known == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stands_under_its_name() {
        let text = "TcpExt: A BusyPollRxPackets C\nTcpExt: 1 22 3\nIpExt: A\nIpExt: 5\n";
        assert_eq!(counter(text, "TcpExt:", "BusyPollRxPackets"), Some(22));
        assert_eq!(counter(text, "IpExt:", "BusyPollRxPackets"), None);
        assert!(polled_packets(std::process::id()).is_some());
    }
}
