//! One end of a veth pair, attached as an instance does it.

use std::net::IpAddr;
use std::sync::Arc;

use twinpath_attach::{AttachPlan, Attachment, Target};
use twinpath_bpf::{Datagrams, TcAttach};
use twinpath_claims::Claim;
use twinpath_config::Path;
use twinpath_frame::Pool;
use twinpath_port::PortQueue;
use twinpath_sys::Namespace;
use twinpath_test_rig::{End, ifindex, pair};
use twinpath_time::Duration;
use twinpath_wire::Mac;

/// The addresses of the attached end.
pub(crate) const NEAR: [&str; 2] = ["10.0.0.1", "fd00::1"];

/// The namespaces of both ends of a pair of links with this MTU: `near`, and `far`.
pub(crate) fn ends(mtu: u32) -> [Namespace; 2] {
    let [near, far] = [(); 2].map(|()| Namespace::new().unwrap());
    let with = [1, 2].map(|number| format!("address 02:00:00:00:00:0{number} mtu {mtu}"));
    pair(
        End { with: &with[0], ..End::new(&near, "near", &["10.0.0.1/24", "fd00::1/64"]) },
        End { with: &with[1], ..End::new(&far, "far", &["10.0.0.2/24", "fd00::2/64"]) },
    );
    [near, far]
}

/// The packet path of a veth, with a single worker, and with nothing but plain frames.
pub(crate) fn plan() -> AttachPlan {
    AttachPlan {
        path: Path::Packet,
        rx_queues: 1,
        ring_frames: 256,
        tc: TcAttach::here(),
        virtual_device: true,
        port: 0,
        fail_open: Duration::ZERO,
        replies: None,
        connections: None,
        super_frames: false,
        datagrams: Datagrams::None,
    }
}

/// Attaches the interface `near` with one claim.
pub(crate) fn attach(
    near: &Namespace,
    addresses: Vec<IpAddr>,
    claim: Claim,
    plan: &AttachPlan,
    pool: &Pool,
) -> (Attachment, Box<dyn PortQueue>) {
    let target = Target {
        ifindex: ifindex(near, "near"),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        addresses,
        claims: vec![claim],
    };
    let regions = [Arc::clone(pool.region())];
    let attach = || Attachment::attach(target, plan, &regions).unwrap();
    let (attachment, mut placed) = near.run(attach).unwrap();
    (attachment, placed.pop().unwrap().queue)
}

/// The count of a verdict.
pub(crate) fn count(attachment: &Attachment, name: &str) -> u64 {
    attachment.verdicts().unwrap().iter().find(|(found, _)| *found == name).unwrap().1
}
