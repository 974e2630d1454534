//! An interface withheld from the kernel's own stack, both ways; and the way across to the one where the stack lives.

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::SteerError;
use crate::holder::processes_holding;
use crate::layout::{Crossed, Crossing};
use crate::maps::{typed, wrote};
use crate::steering::{interface_name, loaded, program};

static BRIDGE: &[u8] = include_bytes_aligned!("../object/bridge.o");

const INGRESS: &str = "twinpath_withhold";
const EGRESS: &str = "twinpath_only_ours";
const CROSS: &str = "twinpath_cross";

/// While it lives, the kernel's stack receives nothing from the interface and sends nothing by it. Packet sockets see
/// what arrives all the same; what leaves must carry the mark, or have crossed from the kernel's interface.
pub struct Exclusive {
    object: Ebpf,
    ifindex: u32,
    crossing: Array<MapData, Crossing>,
    crossed: PerCpuArray<MapData, Crossed>,
    // Held, not read: the programs are in force while these are open, and no longer.
    _links: [FdLink; 2],
    /// Of the kernel's interface, and its index.
    cross: Option<(FdLink, u32)>,
}

impl std::fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exclusive").field("ifindex", &self.ifindex).finish_non_exhaustive()
    }
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
        let (crossing, crossed) = (typed(&mut object, ".bss")?, typed(&mut object, "crossed")?);
        let links = [
            attach(&mut object, INGRESS, &interface, TcAttachType::Ingress)?,
            attach(&mut object, EGRESS, &interface, TcAttachType::Egress)?,
        ];
        Ok(Self { object, ifindex, crossing, crossed, _links: links, cross: None })
    }

    /// From now on frames cross within the kernel between the device and that interface, which must be in the same network
    /// namespace: what arrives on the one has arrived on the other, what is sent by that one leaves by the device. A
    /// super-frame crosses whole; what the device cannot do (segmentation, checksums) the kernel does before it leaves.
    /// Packet sockets on the device still see what arrives. What is sent past the queueing discipline
    /// (PACKET_QDISC_BYPASS) does not cross.
    ///
    /// # Errors
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Map`]: then nothing crosses.
    pub fn cross_to(&mut self, kernel: u32) -> Result<(), SteerError> {
        if self.cross.as_ref().is_none_or(|(_, ifindex)| *ifindex != kernel) {
            self.cross_no_more()?;
            let link = attach(&mut self.object, CROSS, &interface_name(kernel)?, TcAttachType::Egress)?;
            self.cross = Some((link, kernel));
        }
        self.set(Crossing { port: self.ifindex, kernel })
    }

    /// From now on nothing crosses within the kernel.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn cross_no_more(&mut self) -> Result<(), SteerError> {
        self.cross = None;
        self.set(Crossing::default())
    }

    fn set(&mut self, crossing: Crossing) -> Result<(), SteerError> {
        self.crossing.set(0, crossing, 0).map_err(wrote(".bss"))
    }

    /// What has crossed so far.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn crossed(&self) -> Result<Crossed, SteerError> {
        let cpus = self.crossed.get(&0, 0).map_err(|error| SteerError::Map {
            map: "crossed",
            action: "reading",
            error: Box::new(error),
        })?;
        Ok(cpus.iter().fold(Crossed::default(), |sum, cpu| Crossed {
            frames_in: sum.frames_in + cpu.frames_in,
            bytes_in: sum.bytes_in + cpu.bytes_in,
            frames_out: sum.frames_out + cpu.frames_out,
            bytes_out: sum.bytes_out + cpu.bytes_out,
        }))
    }
}

fn attach(
    object: &mut Ebpf,
    name: &'static str,
    interface: &str,
    place: TcAttachType,
) -> Result<FdLink, SteerError> {
    let classifier: &mut SchedClassifier = program(object, name)?;
    if classifier.fd().is_err() {
        loaded(name, classifier.load())?;
    }
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    let link = classifier
        .attach_with_options(interface, place, order)
        .and_then(|id| classifier.take_link(id))
        .map_err(|error| SteerError::Tcx { interface: interface.to_owned(), error: Box::new(error) })?;
    FdLink::try_from(link).map_err(|_| SteerError::TcxWithoutLink(interface.to_owned()))
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
