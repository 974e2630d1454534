//! An interface withheld from the kernel's own stack, both ways.

use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{EbpfLoader, include_bytes_aligned};

use crate::SteerError;
use crate::holder::processes_holding;
use crate::steering::{interface_name, loaded, program};

static BRIDGE: &[u8] = include_bytes_aligned!("../object/bridge.o");

const INGRESS: &str = "twinpath_withhold";
const EGRESS: &str = "twinpath_only_ours";

/// While it lives, the kernel's stack receives nothing from the interface and sends nothing by it. Packet sockets see
/// what arrives all the same; what leaves must carry the mark.
#[derive(Debug)]
pub struct Exclusive {
    // Held, not read: the programs are in force while these are open, and no longer.
    _links: [FdLink; 2],
}

impl Exclusive {
    /// Withholds the interface, by links at tc ingress and egress in front of all others. Frames that are sent with `mark`
    /// (SO_MARK, not 0) leave; the mark is taken off them.
    ///
    /// # Errors
    /// [`SteerError::TcxHeld`] if another twinpath is at work there; [`SteerError::Object`], [`SteerError::Program`],
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`].
    pub fn hold(ifindex: u32, mark: u32) -> Result<Self, SteerError> {
        let interface = interface_name(ifindex)?;
        refuse_if_held(&interface)?;
        let mut loader = EbpfLoader::new();
        loader.override_global("mark", &mark, true);
        let mut object = loader.load(BRIDGE).map_err(|error| SteerError::Object(Box::new(error)))?;
        let mut attach = |name, place| {
            let classifier: &mut SchedClassifier = program(&mut object, name)?;
            loaded(name, classifier.load())?;
            let order = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = classifier
                .attach_with_options(&interface, place, order)
                .and_then(|id| classifier.take_link(id))
                .map_err(|error| SteerError::Tcx { interface: interface.clone(), error: Box::new(error) })?;
            FdLink::try_from(link).map_err(|_| SteerError::TcxWithoutLink(interface.clone()))
        };
        Ok(Self { _links: [attach(INGRESS, TcAttachType::Ingress)?, attach(EGRESS, TcAttachType::Egress)?] })
    }
}

/// Another exception port would send every frame a second time, and a claim's owner would share its flows with ours.
fn refuse_if_held(interface: &str) -> Result<(), SteerError> {
    // What can't be asked for can't be held: attaching will say why.
    let Ok((_, programs)) = SchedClassifier::query_tcx(interface, TcAttachType::Ingress) else {
        return Ok(());
    };
    let ours = |name: Option<&str>| name.is_some_and(|name| name.starts_with("twinpath_"));
    let Some(program) = programs.iter().find(|program| ours(program.name_as_str())) else { return Ok(()) };
    let processes = processes_holding(program.id());
    let holder = processes.first().map_or_else(
        || "by a process that can't be seen from here".to_owned(),
        |(pid, command)| format!("by {command} (pid {pid})"),
    );
    Err(SteerError::TcxHeld { interface: interface.to_owned(), holder })
}
