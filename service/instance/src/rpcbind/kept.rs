//! Keeps registrations: makes them again when rpcbind has started.

use std::sync::{Arc, Mutex, PoisonError};

use twinpath_sys::event_loop::channel::{Receiver, Sender, bounded};
use twinpath_sys::event_loop::{Task, sleep_until, spawn};
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};

use crate::rpcbind::Registration;
use crate::rpcbind::client::{self, Known, RpcbindError};
use crate::rpcbind::signs::Signs;

/// Maximum number of attempts after our start, and after a sign that rpcbind starts. The interval begins
/// with `FIRST_TRY` and doubles each time, 102 s in all. So an rpcbind that gives no sign is found if
/// it starts soon, and a host without rpcbind is not asked for ever.
const TRIES: u32 = 10;
const FIRST_TRY: Duration = Duration::from_millis(100);
/// Minimum interval between signs that restart the attempts. Anybody may open the lock file; this limits
/// the work that it causes.
const BETWEEN_SIGNS: Duration = Duration::from_secs(1);

/// Registrations that are kept until they are [removed](Self::unset). Dropping this leaves them registered.
#[derive(Default)]
pub struct Registered {
    known: Arc<Mutex<Known>>,
    keeper: Option<(Task, Sender<()>)>,
}

impl Registered {
    /// Registers the programs, and warns of those that cannot be registered; they are served anyway. Called
    /// within an event loop, in which it continues.
    pub async fn set(wanted: &[Registration]) -> Self {
        let mut registered = Self::default();
        if wanted.is_empty() {
            return registered;
        }
        // Opened before the first call to rpcbind, so that no start is missed.
        let signs = Signs::open();
        let (ask, asked) = bounded(1);
        let first = Keeper { wanted: wanted.to_vec(), known: Arc::clone(&registered.known), asked };
        let failed = first.try_once().await.err();
        if let Some(error) = &failed {
            tracing::warn!(
                "not registered with rpcbind: {error}. Clients have to be told the port until it is started (systemctl start rpcbind)"
            );
        }
        match spawn(first.keep(signs, failed.is_some())) {
            Ok(task) => registered.keeper = Some((task, ask)),
            Err(error) => tracing::warn!("registrations with rpcbind are not kept: {error}"),
        }
        registered
    }

    /// Checks whether everything is registered, and registers what is missing.
    pub fn look_again(&self) {
        if let Some((_, ask)) = &self.keeper {
            // If there is no room, it has been asked already.
            let _ = ask.try_send(());
        }
    }

    /// Removes the registrations.
    pub async fn unset(mut self) {
        self.stop();
        let ours = std::mem::take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner).ours);
        if ours.is_empty() {
            return;
        }
        if let Err(error) = client::unset(&ours).await {
            tracing::warn!(
                "still registered with rpcbind: {error}. Remove it with rpcinfo -d PROGRAM VERSION"
            );
        }
    }

    fn stop(&mut self) {
        self.keeper.take().into_iter().for_each(|(task, _)| task.abort());
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The task that keeps registrations.
struct Keeper {
    wanted: Vec<Registration>,
    known: Arc<Mutex<Known>>,
    /// A check is requested.
    asked: Receiver<()>,
}

impl Keeper {
    async fn try_once(&self) -> Result<(), RpcbindError> {
        client::set(&self.wanted, &self.known).await
    }

    async fn keep(mut self, mut signs: Signs, mut is_due: bool) {
        loop {
            if is_due {
                self.try_for_a_while(&mut signs).await;
            }
            let rested = clock::now() + BETWEEN_SIGNS;
            self.sign(&mut signs).await;
            sleep_until(rested).await;
            is_due = true;
        }
    }

    /// Waits until rpcbind may have started, or until a check is requested.
    async fn sign(&mut self, signs: &mut Signs) {
        let asked = async {
            if self.asked.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        };
        race!(signs.next(), asked);
    }

    /// Repeats until rpcbind has answered, or the attempts are used up; a sign starts over.
    async fn try_for_a_while(&mut self, signs: &mut Signs) {
        let (mut tries, mut pause, mut due): (u32, Duration, Instant) =
            (0, FIRST_TRY, clock::now() + FIRST_TRY);
        while tries < TRIES {
            let is_due = async {
                sleep_until(due).await;
                true
            };
            let sign = async {
                self.sign(signs).await;
                false
            };
            if !race!(is_due, sign) {
                // A sign never delays an attempt that is already due.
                (tries, pause) = (0, pause.min(BETWEEN_SIGNS));
                due = due.min(clock::now() + pause);
                continue;
            }
            (tries, pause) = (tries + 1, 2 * pause);
            due = clock::now() + pause;
            match self.try_once().await {
                Ok(()) => return,
                Err(error) => tracing::debug!("not registered with rpcbind: {error}"),
            }
        }
        tracing::warn!(
            "not registered with rpcbind, which did not answer: it is asked again once it starts, if that is seen in /run here, and \
             at the next twinpath reload"
        );
    }
}
