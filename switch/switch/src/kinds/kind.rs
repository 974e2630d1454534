//! What a kind of port is to the switch. All calls are made on the control thread.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use twinpath_attach::AttachError;
use twinpath_config::{PortName, Switch, SwitchPort};
use twinpath_frame::BURST_MAX;
use twinpath_port::{GsoKinds, PortId, PortQueue};
use twinpath_sys::TrustedDir;
use twinpath_time::Duration;
use twinpath_vnet::QUEUE_FRAMES;

use super::carried::Carried;
use crate::homes::{Held, HomeAt, Homes};

/// Frames of one worker's pool for a queue of a socket or a TAP interface: what it can hold, and a burst that waits to leave by it.
///
/// (33 + 66 + 33 + 64) x 2 KiB = 0.4 MiB.
pub(crate) const FRAMES_PER_QUEUE: u32 = QUEUE_FRAMES + BURST_MAX as u32;

/// Why a port could not be opened. The sentence does not name the port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// What it is on is not there. It is opened once that comes.
    #[error("there is no interface {name}; there is {available}")]
    NoInterface { name: String, available: String },
    #[error("{number} is the number of port {by}, which has it until it is gone: give another one")]
    NumberTaken { number: u16, by: PortName },
    #[error("all numbers of ports are in use until ports that were taken out have gone: try again")]
    Numbers,
    #[error("cannot listen at {path} for the application: {error}")]
    Listen { path: String, error: std::io::Error },
    /// A reason of its kind.
    #[error("{0}")]
    Kind(Box<dyn Error + Send + Sync>),
}

impl OpenError {
    /// A reason of a kind of port.
    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Kind(Box::new(error))
    }
}

/// What a port is made from. Nothing is opened yet.
pub(crate) struct Making<'a> {
    pub(crate) name: &'a PortName,
    /// The name of the switch.
    pub(crate) switch: &'a str,
    /// Where other processes connect to ports.
    pub(crate) folder: &'a Path,
}

impl Making<'_> {
    /// The path of a socket where another process connects to the port. Its folder is made.
    ///
    /// # Errors
    /// The folder belongs to somebody else, or cannot be made.
    pub(crate) fn socket(&self) -> Result<PathBuf, OpenError> {
        let path = self.folder.join(format!("{}-{}", self.switch, self.name.name()));
        match TrustedDir::make_shared(self.folder) {
            Ok(_) => Ok(path),
            Err(error) => Err(OpenError::Listen {
                path: path.display().to_string(),
                error: std::io::Error::other(error),
            }),
        }
    }
}

/// What a port is opened with.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a PortName,
    pub(crate) config: &'a SwitchPort,
    /// Its number.
    pub(crate) number: u16,
    /// The network namespace that it is in.
    pub(crate) home: HomeAt,
    pub(crate) homes: &'a mut Homes,
    /// The configuration of the switch.
    pub(crate) switch: &'a Switch,
    /// How long a worker may leave frames waiting before the kernel has them instead; zero: for ever.
    pub(crate) fail_open: Duration,
    pub(crate) workers: usize,
    /// Ports that a change is about to make, beside those of the configuration.
    pub(crate) coming: &'a [PortName],
    /// The kinds of super-frames that the kernel takes from us.
    pub(crate) segmentation: GsoKinds,
    /// The port that is on that interface now.
    pub(crate) port_on: &'a dyn Fn(HomeAt, u32) -> Option<PortName>,
}

impl Opening<'_> {
    /// The name of one of its own queues.
    pub(crate) const fn queue(&self, queue: u16) -> PortId {
        PortId { port: self.number, queue }
    }
}

/// What was opened for a port.
pub(crate) enum Opened {
    /// It has nothing yet.
    Nothing,
    /// Queues of its own: one, or several up to the number of workers, each for another one.
    Queues(Vec<Box<dyn PortQueue>>),
    /// The interface with that index, which the queues of its network namespace carry.
    Interface(u32, Held),
}

/// What a process that connects to a port has done.
pub(crate) enum Step {
    /// Nothing that the switch has to know.
    Nothing,
    /// It has the port from now on: these are the port's queues. With who it is, as in `process 7 is connected`.
    Connected(Vec<Box<dyn PortQueue>>, String),
    /// It has the port no longer. With a sentence that says why.
    Left(String),
}

/// What a sentence about a port is made from.
pub(crate) struct About<'a> {
    pub(crate) config: &'a SwitchPort,
    /// The name of the switch.
    pub(crate) switch: &'a str,
    /// Whether the port carries frames; otherwise what it is on is not there.
    pub(crate) is_attached: bool,
}

/// Is ready once a port has something to do.
pub(crate) type Due<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What a port is on, with what it holds for that.
///
/// A port is made, opened, and opened again after what it is on was gone. A kind whose ports are for other processes
/// opens nothing: the process connects ([`Self::due`], [`Self::step`]) and may do so again after it has left.
/// [`Self::release`] is called between, when no worker has a queue of the port any more.
pub(crate) trait Kind {
    /// Opens what the port is on, if it is there.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is held then.
    fn open(&mut self, opening: Opening<'_>) -> Result<Opened, OpenError>;

    /// Gives back what was opened, if no worker has got it yet. Queues of its own only need to be dropped.
    ///
    /// # Errors
    /// The kernel did not take it; it has it once the process has ended.
    fn take_back(&mut self, _homes: &mut Homes, _home: HomeAt, _opened: Opened) -> Result<(), AttachError> {
        Ok(())
    }

    /// Gives up what it holds while it is open. No worker has a queue of it any more.
    fn release(&mut self) {}

    /// Waits until [`Self::step`] has something to do. Cancelling it loses nothing. `None`: it never has.
    fn due(&self) -> Option<Due<'_>> {
        None
    }

    /// Does what is due. `number` is the port's, if it may be attached now.
    fn step(&mut self, _number: Option<u16>) -> Step {
        Step::Nothing
    }

    /// Its interface, if the queues of a network namespace carry that. All other ports have queues of their own.
    fn carried(&self) -> Option<&Carried> {
        None
    }

    /// The same, to change it.
    fn carried_mut(&mut self) -> Option<&mut Carried> {
        None
    }

    /// Whether it works on although its interface is not in its network namespace any more.
    fn has_moved(&self) -> bool {
        false
    }

    /// Frames of the workers' pools for its own queues.
    fn pool_frames(&self) -> u32 {
        FRAMES_PER_QUEUE
    }

    /// The word for its state while what it is on is not there.
    fn absent(&self) -> &'static str {
        "gone"
    }

    /// The longest packet that hosts behind it can send, in bytes; `None`: its interface says so.
    fn mtu(&self) -> Option<u32> {
        None
    }

    /// A sentence about what it is on.
    fn why(&self, about: &About<'_>) -> String;
}
