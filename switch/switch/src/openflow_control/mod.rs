//! OpenFlow in a switch: its tables, its controllers, and how far workers are with them.
//!
//! Control changes the tables ([`Tables`]), and tells workers a new version of them when all have the one before, so at
//! most one is on its way. Everything that a controller waits for, such as a barrier, follows from that.

mod control;
mod counts;
mod datapath;
mod fail;
mod identity;
mod kernel;
mod packets;
mod ports;
mod reconfigure;
mod reports;
mod speeds;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinpath_bpf::{KeptEntry, Offload};
use twinpath_config::{Endpoint, Switch};
use twinpath_forwarding::openflow::pipeline::{Pipeline, Snapshot, Worker};
use twinpath_forwarding::openflow::{OpenFlowSwitch, SwitchInfo};
use twinpath_sys::event_loop::sleep_until;
use twinpath_sys::{clock, race};

use crate::controllers::{Bound, Controllers, Tls, TlsError};

pub use self::control::Workers;
pub use self::counts::{Counts, PortCounts};
pub use self::ports::PortFacts;

use self::datapath::Tables;
use self::fail::Fail;
use self::packets::Packets;
use self::versions::Versions;

/// Why a switch cannot have controllers as they are configured.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address that cannot be listened at.
    #[error(
        "cannot wait for OpenFlow controllers at {endpoint}: {error}; give another address, or end what has it"
    )]
    Listen {
        /// The address.
        endpoint: Endpoint,
        /// Why.
        error: io::Error,
    },
    /// A socket in a folder that the sandbox does not have.
    #[error(
        "cannot wait for OpenFlow controllers at {endpoint}: a switch that runs may make sockets only in the folders where it had a \
         listener when it started ({folders}); use one of them, or restart the switch"
    )]
    Confined {
        /// The address.
        endpoint: Endpoint,
        /// Those, for people.
        folders: String,
    },
    /// A file for TLS.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

/// Listens for controllers.
async fn bind(endpoint: &Endpoint, tls: Option<Tls>) -> Result<Bound, StartError> {
    let bound = crate::controllers::bind(endpoint, tls).await;
    bound.map_err(|error| StartError::Listen { endpoint: endpoint.clone(), error })
}

/// The folder of a socket in the file system.
fn folder_of(endpoint: &Endpoint) -> Option<PathBuf> {
    let Endpoint::Unix(path) = endpoint else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some(folder.unwrap_or(Path::new(".")).to_owned())
}

/// OpenFlow in a switch that has tables.
pub struct OpenFlow {
    controllers: Controllers<Tables>,
    /// The folders of listeners when it started: the sandbox has no others.
    folders: BTreeSet<PathBuf>,
    datapath_id: u64,
    flows_max: u32,
    packet_in_rate: u32,
    versions: Versions,
    /// The last version that was published, for workers that were late.
    last: Option<Arc<Snapshot>>,
    packets: Packets,
    fail: Fail,
    /// The number here of the port that is LOCAL there, as workers know it.
    local: Option<u16>,
    is_captured: bool,
    /// Workers have memory for samples.
    has_samples: bool,
    /// Ports that controllers have configured, with whether they are to be down, until they are asked for.
    configured: BTreeMap<u32, bool>,
}

impl OpenFlow {
    /// Tables without flows for this number of workers, and controllers as they are configured. `seed` is random and
    /// secret.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn start(
        name: &str,
        switch: &Switch,
        workers: usize,
        seed: [u64; 2],
    ) -> Result<Self, StartError> {
        let datapath_id = switch.datapath_id.map_or_else(|| identity::datapath_id(name), |id| id.0);
        let tls = match (&switch.tls_key, &switch.tls_certificate, &switch.tls_ca) {
            (Some(key), Some(certificate), Some(authority)) => Some(Tls::load(key, certificate, authority)?),
            // The configuration has all of them or needs none.
            _ => None,
        };
        let info = SwitchInfo {
            datapath_id,
            desc: identity::description(name),
            flows_max: switch.flows_max,
            packet_in_rate: switch.packet_in_limit,
        };
        let tables = Tables::new(Pipeline::new(workers, seed));
        let mut controllers = Controllers::new(OpenFlowSwitch::new(info, tables), tls.clone());
        for endpoint in &switch.listen {
            controllers.add_listener(bind(endpoint, tls.clone()).await?);
        }
        switch.controller.iter().for_each(|endpoint| controllers.connect(endpoint.clone()));
        Ok(Self {
            controllers,
            folders: switch.listen.iter().filter_map(folder_of).collect(),
            datapath_id,
            flows_max: switch.flows_max,
            packet_in_rate: switch.packet_in_limit,
            versions: Versions::new(workers),
            last: None,
            packets: Packets::new(workers),
            fail: Fail::new(switch.fail_mode, clock::now()),
            local: None,
            is_captured: false,
            has_samples: false,
            configured: BTreeMap::new(),
        })
    }

    /// Has the kernel forward flows between the interfaces of a network namespace, by its place, from now on; with the
    /// entries that a former process has left.
    pub fn add_kernel(&mut self, home: usize, offload: Offload, left: Vec<KeptEntry>, workers: &mut Workers) {
        self.tables().kernel.add(home, offload, left);
        if !std::mem::replace(&mut self.has_samples, true) {
            self.lend_samples(workers);
        }
    }

    /// A network namespace has no ports any more. What the kernel has counted there stays with the flows.
    pub fn remove_kernel(&mut self, home: usize) {
        let Tables { kernel, pipeline, .. } = self.tables();
        kernel.remove(home, pipeline);
    }

    /// Entries of a former process in the kernel that no flow has confirmed yet.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.controllers.switch_ref().datapath_ref().kernel.kept()
    }

    /// While captures run, workers forward all frames, so that the captures have them.
    pub fn set_captured(&mut self, is_captured: bool) {
        self.is_captured = is_captured;
        self.suspend_kernel();
    }

    /// A worker's end of the tables; `None`: there are fewer workers.
    #[must_use]
    pub fn worker(&mut self, number: usize) -> Option<Worker> {
        self.tables().pipeline.worker(number)
    }

    const fn tables(&mut self) -> &mut Tables {
        self.controllers.switch().datapath()
    }

    /// Waits until there is something to do for controllers, or a deadline has come.
    pub async fn wait(&mut self) {
        let now = clock::now();
        let kept_until = self.tables().kernel.kept_until();
        let deadline = self.fail.deadline().min(self.versions.deadline()).min(kept_until);
        race!(self.controllers.wait(now), sleep_until(deadline));
    }
}
