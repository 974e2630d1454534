//! The path that an interface would get, and what prevents a better one.

use serde::Serialize;
use twinpath_attach::mirror::Mirror;
use twinpath_attach::mirror::table::Link;
use twinpath_attach::path::bypassed::{self, Claimed};
use twinpath_attach::path::choose::choose;
use twinpath_attach::path::forwarding::ForwardingFacts;
use twinpath_attach::{InterfaceError, find_link, learn_facts};
use twinpath_config::{AttachAsked, PathAsked};

use super::{NotKnown, settings};

/// An interface.
#[derive(Debug, Default, Serialize)]
pub(super) struct Interface {
    /// Its name.
    pub(super) name: String,
    /// Its kernel index.
    pub(super) ifindex: u32,
    /// The kind of software device, or the driver; may be empty.
    pub(super) kind: String,
    /// Whether it is set up.
    pub(super) up: bool,
    /// Whether it has a carrier.
    pub(super) carrier: bool,
    /// The path that `serve` would choose.
    pub(super) path: String,
    /// The reason.
    pub(super) why: String,
    /// The other paths, each with the reason against it.
    pub(super) why_not: Vec<twinpath_observe::report::WhyNot>,
    /// Why a switch would not forward in its driver; none if it would. Only in JSON.
    pub(super) not_in_driver: Option<String>,
    /// What prevents the fast path, although the interface supports one.
    pub(super) obstacles: Vec<String>,
    /// Names of settings that `tune` finds not as advised.
    pub(super) to_tune: Vec<String>,
    /// Whether it is the loopback interface.
    #[serde(skip)]
    pub(super) loopback: bool,
    /// Whether the kernel reports the driver's XDP features.
    #[serde(skip)]
    pub(super) tells_xdp: bool,
}

/// The link with that name, even if one of our bridges has its frames.
pub(super) fn named(mirror: &Mirror, name: &str) -> Result<Link, InterfaceError> {
    match mirror.tables().link_named(name) {
        Some(link) => Ok(link.clone()),
        None => find_link(mirror, name),
    }
}

/// Collects the findings about a link, for a service at this UDP port.
pub(super) fn look(mirror: &Mirror, link: &Link, port: u16, not_known: &mut Vec<NotKnown>) -> Interface {
    let facts = learn_facts(mirror, link, true, AttachAsked::Auto);
    let mut interface = Interface {
        name: link.name.clone(),
        ifindex: link.ifindex,
        kind: facts.kind.clone(),
        up: link.up,
        carrier: link.running,
        not_in_driver: ForwardingFacts::of(link).obstacle(),
        obstacles: obstacles(mirror, link, port),
        loopback: link.loopback,
        to_tune: settings::not_as_advised(Some(&link.name), not_known),
        tells_xdp: facts.xdp_features.is_some(),
        ..Interface::default()
    };
    match choose(&facts, PathAsked::Auto) {
        Ok(choice) => {
            interface.path = choice.path.to_string();
            interface.why_not = choice.report_why_not();
            interface.why = choice.why;
        }
        Err(refusal) => interface.why = refusal.to_string(),
    }
    interface
}

fn obstacles(mirror: &Mirror, link: &Link, port: u16) -> Vec<String> {
    let mut obstacles = Vec::new();
    if let Err(error @ InterfaceError::Carried { .. }) = find_link(mirror, &link.name) {
        obstacles.push(error.to_string());
    }
    let claimed = Claimed {
        ifindex: link.ifindex,
        interface: link.name.clone(),
        addresses: mirror.tables().addresses(link.ifindex).map(|(address, _)| address).collect(),
        ports: vec![port],
    };
    if !link.loopback {
        obstacles.extend(bypassed::look(&claimed).map(|bypassed| bypassed.to_string()));
    }
    obstacles
}
