//! Keeps registrations: makes them again when rpcbind has started.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep_until};

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
#[derive(Debug, Default)]
pub struct Registered {
    known: Arc<Mutex<Known>>,
    again: Arc<Notify>,
    keeper: Option<JoinHandle<()>>,
}

impl Registered {
    /// Registers the programs, and warns of those that cannot be registered; they are served anyway. Must
    /// be called on a tokio runtime, on which it continues.
    pub async fn set(wanted: &[Registration]) -> Self {
        let mut registered = Self::default();
        if wanted.is_empty() {
            return registered;
        }
        // Opened before the first call to rpcbind, so that no start is missed.
        let signs = Signs::open();
        let first = registered.keeper_of(wanted);
        let failed = first.try_once().await.err();
        if let Some(error) = &failed {
            tracing::warn!(
                "not registered with rpcbind: {error}. Clients have to be told the port until it is started (systemctl start rpcbind)"
            );
        }
        registered.keeper = Some(tokio::spawn(first.keep(signs, failed.is_some())));
        registered
    }

    fn keeper_of(&self, wanted: &[Registration]) -> Keeper {
        Keeper { wanted: wanted.to_vec(), known: Arc::clone(&self.known), again: Arc::clone(&self.again) }
    }

    /// Checks whether everything is registered, and registers what is missing.
    pub fn look_again(&self) {
        self.again.notify_one();
    }

    /// Removes the registrations.
    pub async fn unset(mut self) {
        self.stop().await;
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

    async fn stop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.abort();
            // The task was asked to end, so it ends immediately.
            let _ = keeper.await;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.keeper.iter().for_each(JoinHandle::abort);
    }
}

/// The task that keeps registrations.
struct Keeper {
    wanted: Vec<Registration>,
    known: Arc<Mutex<Known>>,
    again: Arc<Notify>,
}

impl Keeper {
    async fn try_once(&self) -> Result<(), RpcbindError> {
        client::set(&self.wanted, &self.known).await
    }

    async fn keep(self, mut signs: Signs, mut is_due: bool) {
        loop {
            if is_due {
                self.try_for_a_while(&mut signs).await;
            }
            let rested = Instant::now() + BETWEEN_SIGNS;
            self.sign(&mut signs).await;
            sleep_until(rested).await;
            is_due = true;
        }
    }

    /// Waits until rpcbind may have started, or until a check is requested.
    async fn sign(&self, signs: &mut Signs) {
        tokio::select! {
            () = signs.next() => {}
            () = self.again.notified() => {}
        }
    }

    /// Repeats until rpcbind has answered, or the attempts are used up; a sign starts over.
    async fn try_for_a_while(&self, signs: &mut Signs) {
        let (mut tries, mut pause, mut due) = (0, FIRST_TRY, Instant::now() + FIRST_TRY);
        while tries < TRIES {
            tokio::select! {
                () = sleep_until(due) => (tries, pause) = (tries + 1, 2 * pause),
                () = self.sign(signs) => {
                    // A sign never delays an attempt that is already due.
                    (tries, pause) = (0, pause.min(BETWEEN_SIGNS));
                    due = due.min(Instant::now() + pause);
                    continue;
                }
            }
            due = Instant::now() + pause;
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
