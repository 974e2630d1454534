//! Foreign programs at the hooks of the interface while an instance serves. They may come and go: the
//! instance continues to serve, and reports which one is there.

use twinpath_attach::Attachment;
use twinpath_attach::path::choose::choose_without;
use twinpath_attach::path::facts::ForeignXdp;
use twinpath_bpf::{Kept, SteerError, TcAttach, xdp_holder, xdp_program};
use twinpath_config::Path;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::{Instance, Interface};

/// How often to read the revision of the programs at tc ingress: the kernel announces no change of
/// programs that are attached by links.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Limit on how often we move in front of foreign programs at tc ingress. Without it, a program that does
/// the same would never let us finish.
const IN_FRONT_MAX: u32 = 16;

/// When it is time to check tc ingress again; never if the kernel announces changes there, or we have no program there.
pub(super) fn look_due(interface: &Interface) -> Instant {
    let by_links = interface.attachment.as_ref().is_some_and(|it| it.tc() == Some(TcAttach::Tcx));
    if by_links && interface.went_in_front < IN_FRONT_MAX { interface.look_at } else { Instant::NEVER }
}

impl Instance {
    /// Checks which foreign programs are attached: in XDP, and before ours at tc ingress.
    pub(super) fn look_at_foreign_programs(&mut self) {
        self.notice_foreign_xdp();
        self.stay_in_front();
    }

    /// Handles a foreign program before ours that accepts packets with a final verdict. The kernel would
    /// then get a copy of packets that we serve or, on the XDP paths, of packets that our program would
    /// reply to.
    pub(super) fn stay_in_front(&mut self) {
        self.interface.look_at = clock::now() + LOOK_INTERVAL;
        let Interface { name, attachment: Some(attachment), went_in_front, .. } = &mut self.interface else {
            return;
        };
        if attachment.tc().is_none() || *went_in_front >= IN_FRONT_MAX {
            return;
        }
        match attachment.keep_first() {
            Ok(Kept::First) => {}
            Ok(kept) => {
                *went_in_front += 1;
                match kept {
                    Kept::Passed(foreign) => tracing::info!(
                        "{foreign} stood before us at tc ingress of {name}: it is asked after us now"
                    ),
                    _ => tracing::info!("our program at tc ingress of {name} was removed: it is back"),
                }
                if *went_in_front == IN_FRONT_MAX {
                    tracing::warn!(
                        "it or another has come back {IN_FRONT_MAX} times and stays in front from now on: requests that it \
                         passes reach the kernel's sockets"
                    );
                }
            }
            Err(error @ SteerError::NotFirst { .. }) => tracing::warn!("{error}"),
            // Reading the order needs a capability that an instance gives up when it has started.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    /// Asks which XDP program is on the interface, and logs one that was attached or detached. Nothing
    /// else changes: the packet path comes behind any XDP program, and while we are on the XDP path the
    /// kernel refuses others.
    fn notice_foreign_xdp(&mut self) {
        let Some(ifindex) = self.interface.ifindex else { return };
        // Without an answer, the former state is assumed.
        let Ok(on_hook) = xdp_program(ifindex) else { return };
        let own = self.interface.attachment.as_ref().and_then(Attachment::xdp_program_id);
        let foreign = on_hook.filter(|program| Some(*program) != own);
        let known = self.interface.facts.foreign_xdp.as_ref().map(|program| program.id);
        if foreign == known {
            return;
        }
        let holder = foreign.and_then(|_| xdp_holder(ifindex).ok().flatten());
        let now = foreign.map(|id| {
            holder
                .filter(|holder| holder.program_id == id)
                .map_or_else(|| ForeignXdp { id, ..ForeignXdp::default() }, ForeignXdp::from)
        });
        let name = &self.interface.name;
        match (&now, &self.interface.facts.foreign_xdp) {
            (Some(program), _) => tracing::info!("{program} is on {name} now; serving goes on beside it"),
            (None, Some(program)) => tracing::info!("{program} is no longer on {name}"),
            (None, None) => {}
        }
        let gone = now.is_none();
        self.interface.facts.foreign_xdp = now;
        self.explain_anew(gone);
    }

    /// Updates the reported reasons; the path stays the same.
    fn explain_anew(&mut self, gone: bool) {
        let interface = &mut self.interface;
        if interface.choice.path == Path::Kernel {
            return;
        }
        match choose_without(&interface.facts, self.plan.path, &interface.fallback.ruled_out) {
            Ok(choice) if choice.path == interface.choice.path => interface.choice = choice,
            Ok(choice) if gone => {
                interface.choice.why = format!(
                    "no XDP program of others is on the interface any more: a restart would take {}",
                    choice.path
                );
            }
            Ok(_) | Err(_) => {}
        }
    }
}
