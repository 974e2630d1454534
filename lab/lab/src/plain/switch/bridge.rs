//! The kernel's bridge, which has no process.

use twinpath_netlink::route::LinkChange;
use twinpath_netlink::{Body, Netlink, Protocol};

use super::Running;

const NAME: &str = "bridge0";

pub(super) fn start(ports: &[String]) -> anyhow::Result<Running> {
    let netlink = Netlink::open(Protocol::Route)?;
    LinkChange::named(NAME).up(true).kind("bridge", &Body::new([])).make(&netlink)?;
    let bridge = crate::plain::reflect::interface_index(NAME)?;
    for port in ports {
        LinkChange::named(port).master(bridge).up(true).change(&netlink)?;
    }
    let uname = rustix::system::uname();
    let what = format!("the bridge of Linux {}", uname.release().to_string_lossy());
    Ok(Running { processes: Vec::new(), what, _programs: None })
}
