//! What a former process of the switch has left, and what this one will leave.

use twinpath_bpf::{Keep, KeepError};
use twinpath_config::OnExit;
use twinpath_sys::clock;
use twinpath_sys::event_loop::sleep;
use twinpath_time::Duration;

use super::SwitchPlan;

/// How long to wait for a process that has been killed and still has its switch.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Takes what a former process has left, if this one goes on with it, and removes it otherwise. Returns for how long
/// flows are to go on after this one.
pub(super) async fn take(plan: &SwitchPlan) -> Result<Option<(Keep, Duration)>, KeepError> {
    let name = &plan.name;
    let OnExit::Keep(seconds) = plan.switch().on_exit else {
        if let Some(left) = patiently(|| Keep::take_left(name)).await? {
            tracing::info!(
                "what the former process of {name} has left is removed, as on_exit is {}",
                plan.switch().on_exit
            );
            left.remove()?;
        }
        return Ok(None);
    };
    let keep = patiently(|| Keep::take(name)).await?;
    let left = keep.left(clock::now());
    match (left.interfaces, left.until) {
        (0, _) => {}
        (interfaces, Some(until)) => tracing::info!(
            "the former process of {name} has left its flows at {interfaces} interfaces: they go on for {} s, unless flows of \
             controllers say otherwise",
            until.since(clock::now()).as_secs()
        ),
        (interfaces, None) => {
            tracing::info!(
                "the former process of {name} ended too long ago: what it has left at {interfaces} interfaces is removed"
            );
        }
    }
    Ok(Some((keep, Duration::from_secs(seconds.into()))))
}

/// Waits for a process that is just ending.
async fn patiently<T>(mut take: impl FnMut() -> Result<T, KeepError>) -> Result<T, KeepError> {
    let since = clock::now();
    loop {
        match take() {
            Err(KeepError::Taken { .. }) if clock::now() < since + ENDS_WITHIN => {
                sleep(LOOK_EVERY).await;
            }
            outcome => return outcome,
        }
    }
}
