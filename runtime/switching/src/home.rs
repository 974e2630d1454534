//! The network namespaces that ports are in, each with a mirror of its links.

use std::collections::BTreeSet;

use twinpath_mirror::table::{Link, Tables};
use twinpath_mirror::{Event, Mirror, MirrorError, MirrorLimits};
use twinpath_sys::Namespace;
use twinpath_sys::netns::NetnsError;

use super::SwitchError;

/// A namespace.
struct Home {
    /// As it is named for its ports; `None`: our own.
    name: Option<String>,
    namespace: Option<Namespace>,
    mirror: Mirror,
}

/// All of them; the first is our own.
pub(super) struct Homes(Vec<Home>);

/// The place of a namespace among those known.
pub(super) type HomeAt = usize;

impl Homes {
    pub(super) async fn own() -> Result<Self, MirrorError> {
        let mirror = Mirror::open(MirrorLimits::default()).await?;
        Ok(Self(vec![Home { name: None, namespace: None, mirror }]))
    }

    /// The place of a namespace, which is opened if it is not known.
    pub(super) async fn at(&mut self, name: Option<&str>) -> Result<HomeAt, SwitchError> {
        if let Some(at) = self.0.iter().position(|home| home.name.as_deref() == name) {
            return Ok(at);
        }
        let namespace = Namespace::named(name.unwrap_or_default())?;
        let mirror = {
            // Nothing else runs on this thread until its sockets are there: they stay in the namespace.
            let _visit = namespace.visit()?;
            Mirror::open(MirrorLimits::default()).await?
        };
        self.0.push(Home { name: name.map(str::to_owned), namespace: Some(namespace), mirror });
        Ok(self.0.len() - 1)
    }

    /// The links of a namespace.
    pub(super) fn tables(&self, at: HomeAt) -> &Tables {
        self.0[at].mirror.tables()
    }

    /// A link of a namespace as last heard.
    pub(super) fn link(&self, at: HomeAt, ifindex: u32) -> Option<&Link> {
        self.tables(at).link(ifindex)
    }

    /// Does something in a namespace, on this thread.
    pub(super) fn within<R>(&self, at: HomeAt, work: impl FnOnce() -> R) -> Result<R, NetnsError> {
        let visit = self.0[at].namespace.as_ref().map(Namespace::visit).transpose()?;
        let result = work();
        drop(visit);
        Ok(result)
    }

    /// Waits for a change in any of them. Cancelling it loses nothing.
    pub(super) async fn next(&mut self) -> Result<(HomeAt, Event), MirrorError> {
        let each = self
            .0
            .iter_mut()
            .enumerate()
            .map(|(at, home)| Box::pin(async move { (at, home.mirror.next().await) }));
        let ((at, event), ..) = futures_util::future::select_all(each).await;
        Ok((at, event?))
    }

    /// How often notifications were lost.
    pub(super) fn overruns(&self) -> u64 {
        self.0.iter().map(|home| home.mirror.counters().overruns).sum()
    }

    /// The names of a namespace's links, for messages.
    pub(super) fn names(&self, at: HomeAt) -> String {
        let names: BTreeSet<&str> = self.tables(at).links().map(|link| link.name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}
