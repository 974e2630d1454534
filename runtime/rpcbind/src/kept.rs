//! Registrations that are kept: made again when rpcbind has started.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};

use crate::Registration;
use crate::client::{self, RpcbindError};
use crate::signs::Signs;

/// After the start, and after a sign that rpcbind starts, it is tried so often, first after this time and then each time
/// after twice as long: for 102 s. So an rpcbind that gives no sign here is found if it starts soon, and a host without
/// one is asked no more.
const TRIES: u32 = 10;
const FIRST_TRY: Duration = Duration::from_millis(100);

/// What is registered, and stays so until it is [removed](Self::unset). Dropped, it leaves the registrations alone.
#[derive(Debug, Default)]
pub struct Registered {
    ours: Arc<Mutex<Vec<Registration>>>,
    again: Arc<Notify>,
    keeper: Option<JoinHandle<()>>,
}

impl Registered {
    /// Registers the programs, and warns of those that cannot be registered: they are served all the same. Called on a
    /// tokio runtime, on which it continues.
    pub async fn set(wanted: &[Registration]) -> Self {
        let mut registered = Self::default();
        if wanted.is_empty() {
            return registered;
        }
        // Before it is asked for the first time, so that no start is missed.
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
        Keeper { wanted: wanted.to_vec(), ours: Arc::clone(&self.ours), again: Arc::clone(&self.again) }
    }

    /// Looks whether all is registered, and registers what is not.
    pub fn look_again(&self) {
        self.again.notify_one();
    }

    /// Removes the registrations.
    pub async fn unset(mut self) {
        self.stop().await;
        let ours = std::mem::take(&mut *self.ours.lock().unwrap_or_else(PoisonError::into_inner));
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
            // It ends at once, as it was asked to.
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
    ours: Arc<Mutex<Vec<Registration>>>,
    again: Arc<Notify>,
}

impl Keeper {
    async fn try_once(&self) -> Result<(), RpcbindError> {
        let known = self.ours.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = client::set(&self.wanted, &known).await?;
        *self.ours.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    async fn keep(self, mut signs: Signs, mut is_due: bool) {
        loop {
            if is_due {
                self.try_for_a_while(&mut signs).await;
            }
            self.sign(&mut signs).await;
            is_due = true;
        }
    }

    /// Waits until rpcbind may have started, or somebody asks to look again.
    async fn sign(&self, signs: &mut Signs) {
        tokio::select! {
            () = signs.next() => {}
            () = self.again.notified() => {}
        }
    }

    /// Tries until rpcbind has answered, or it has been tried often enough; a sign begins anew.
    async fn try_for_a_while(&self, signs: &mut Signs) {
        let (mut tries, mut pause) = (0, FIRST_TRY);
        while tries < TRIES {
            tokio::select! {
                () = sleep(pause) => (tries, pause) = (tries + 1, 2 * pause),
                () = self.sign(signs) => {
                    (tries, pause) = (0, FIRST_TRY);
                    continue;
                }
            }
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
