//! A port whose frames stay in the kernel does not delay frames of others.

use twinpath_inspect::Reason;
use twinpath_test_rig::move_link;

use super::frames::{Far, cables};
use super::*;

/// Frames that are sent through the slow port, 1,500 bytes each: more than the kernel holds for all sockets of the queue.
const FLOOD: usize = 12_000;

/// Frames through each of the others, meanwhile and afterwards.
const OTHERS: usize = 20;

/// Port 2 leads to another host's bridge, and from there to a shaper with a long queue. The kernel charges the
/// frames that wait there to the sending socket, because packet sockets see none of them (they would see a copy).
fn shaped() -> (Namespace, Namespace) {
    let (namespace, host) = (cables(3), quiet());
    move_link(&namespace, "far2", &host);
    ip(&host, "link add bridge type bridge mcast_snooping 0");
    ip(&host, "link add shaped mtu 9000 type veth peer name beyond mtu 9000");
    for command in [
        "link set far2 master bridge",
        "link set shaped master bridge",
        "link set bridge up",
        "link set far2 up",
        "link set beyond up",
        "link set shaped up",
    ] {
        ip(&host, command);
    }
    run(&host, "tc", "qdisc add dev shaped root tbf rate 64kbit burst 16k limit 1g");
    (namespace, host)
}

/// A frame that the far host's bridge passes on without a look at it by netfilter, which would end the charge.
fn experiment(len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.resize(len, 0x5a);
    bytes
}

fn frame(switch: &mut Switch, port: u16, bytes: &[u8]) -> Frame {
    let mut frame = switch.pool.take().unwrap();
    frame.copy_from(bytes).unwrap();
    frame.meta_mut().port = port;
    frame
}

#[test]
fn a_port_whose_frames_stay_loses_only_its_own() {
    if !can_run() {
        return;
    }
    let (namespace, _host) = shaped();
    // Without queueing discipline and header, and with both.
    for bypass_qdisc in [true, false] {
        let mut switch =
            Switch::new(&namespace, &["near0", "near1", "near2"], Unserved::Dropped, Duration::ZERO);
        for port in 0..3 {
            let carried = switch.queue.remove(port).unwrap();
            assert!(switch.queue.add(CarriedPort { bypass_qdisc, spares: Vec::new(), ..carried }).is_ok());
        }
        let [mut left, mut right] = ["far0", "far1"].map(|name| Far::new(&namespace, name));
        let (short, long) = (experiment(60), experiment(1_500));
        let bursts = FLOOD / 20;
        for burst in 0..bursts + OTHERS / 2 {
            let mut frames = Burst::new();
            (0..20).for_each(|_| frames.push(frame(&mut switch, 2, &long)).unwrap());
            let is_last = burst >= bursts;
            if is_last || burst % (bursts / (OTHERS / 2)) == 0 {
                frames.push(frame(&mut switch, 0, &short)).unwrap();
                frames.push(frame(&mut switch, 2, &long)).unwrap();
                frames.push(frame(&mut switch, 1, &short)).unwrap();
            }
            switch.queue.transmit(&mut switch.pool, &mut frames);
        }
        assert!(
            switch.counters(2).drops.get(Reason::PortFull) > 0,
            "what the slow port has queued is bounded"
        );
        for (port, far) in [(0, &mut left), (1, &mut right)] {
            assert_eq!(switch.counters(port).drops.get(Reason::PortFull), 0, "port {port}");
            assert_eq!(far.lengths(OTHERS), [short.len(); OTHERS]);
        }
    }
}
