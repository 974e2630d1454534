//! Withholds an interface from the kernel's own stack, in both directions, and redirects frames between it and the
//! interface that the kernel's stack uses instead.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{ProgramInfo, SchedClassifier, SocketFilter, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_sys::alive::is_alive;
use twinpath_time::Duration;

use crate::SteerError;
use crate::XdpHolder;
use crate::clsact::{self, Listed};
use crate::holder::{processes_holding, tap_of, xdp_holder};
use crate::keep::{Left, switch_of};
use crate::keep_lease::OwnPid;
use crate::layouts::{Crossed, Crossing};
use crate::maps::{typed, wrote};
use crate::names::{OURS, PORT_INGRESS, interface_name};
use crate::offload::Sizes;
use crate::pins::Pins;
use crate::program::{loaded, program};
use crate::served::serve;
use crate::steering::{FILTERS_MAX, attach_filter};
use crate::stuck::{StuckRecords, stuck_after_ns};
use crate::tc::{TcAttach, TcLink};

static BRIDGE: &[u8] = include_bytes_aligned!("../object/bridge.o");

const INGRESS: &str = "twinpath_withhold";
const EGRESS: &str = "twinpath_only_ours";
const CROSS: &str = "twinpath_cross";
const CROSS_WHEN_STUCK: &str = "twinpath_cross_when_stuck";
/// The programs that do the work of these while the process serves, by their indexes in the array of tail calls.
const SERVE: [&str; 3] = ["twinpath_serve_withhold", "twinpath_serve_only_ours", "twinpath_serve_cross"];
/// One program for each worker, with the worker's number at the end.
const LISTEN: &str = "twinpath_listen";
const QUEUE: &str = "twinpath_queue";

/// The programs that withhold an interface. While one is withheld, the kernel's stack receives nothing from it and
/// sends nothing through it. Packet sockets still receive arriving frames. A frame leaves only if it has the mark
/// or was redirected from the kernel's interface. Dropping this returns the interface to the kernel.
pub struct Exclusive {
    /// The array of tail calls. When its last descriptor is closed, the interface immediately belongs to the kernel
    /// again.
    _served: OwnedFd,
    object: Ebpf,
    crossing: Array<MapData, Crossing>,
    crossed: PerCpuArray<MapData, Crossed>,
    stuck: StuckRecords,
    /// The withheld interface, how the programs are attached, and their links on it.
    held: Option<(u32, TcAttach, [TcLink; 2])>,
    /// The link on the kernel's interface, that interface's index, and the name of the program.
    cross: Option<(TcLink, u32, &'static str)>,
}

impl std::fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exclusive").field("ifindex", &self.ifindex()).finish_non_exhaustive()
    }
}

impl Exclusive {
    /// Loads the programs for up to `workers` workers. Nothing is withheld yet. Frames sent with `mark` (SO_MARK,
    /// not 0) will leave; the mark is removed. A worker is stuck when a frame has waited for it for longer than
    /// `fail_open`. Then frames are redirected within the kernel instead, after [`Exclusive::cross_when_stuck`].
    /// With 0, no worker ever counts as stuck.
    ///
    /// # Errors
    /// [`SteerError::Object`], [`SteerError::Map`]; [`SteerError::Queue`] for more than [`FILTERS_MAX`] workers.
    pub fn load(mark: u32, workers: u32, fail_open: Duration) -> Result<Self, SteerError> {
        let (mut object, stuck) = load(BRIDGE, mark, workers, fail_open, None, None)?;
        let (crossing, crossed) = (typed(&mut object, ".bss")?, typed(&mut object, "crossed")?);
        let served = serve(&mut object, &[INGRESS, EGRESS, CROSS, CROSS_WHEN_STUCK], &SERVE)?;
        Ok(Self { _served: served, object, crossing, crossed, stuck, held: None, cross: None })
    }

    /// Withholds the interface, by programs at tc ingress and egress in front of all others. Without BPF links at tc they
    /// outlive a process that is killed, and then do nothing.
    ///
    /// # Errors
    /// [`SteerError::TcxHeld`] if another twinpath instance uses the interface; [`SteerError::Program`],
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`].
    pub fn hold(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        refuse_if_held(ifindex, &interface_name(ifindex)?)?;
        let links = attach_both(&mut self.object, [INGRESS, EGRESS], ifindex, how)?;
        self.held = Some((ifindex, how, links));
        Ok(())
    }

    /// Stops redirecting and returns the interface to the kernel. It may be gone already.
    ///
    /// # Errors
    /// [`SteerError::Map`]; the interface is returned nevertheless.
    pub fn release(&mut self) -> Result<(), SteerError> {
        let outcome = self.cross_no_more();
        self.held = None;
        outcome
    }

    /// The withheld interface.
    #[must_use]
    pub fn ifindex(&self) -> Option<u32> {
        self.held.as_ref().map(|(ifindex, ..)| *ifindex)
    }

    /// Attaches the filter to a worker's packet socket. The socket then receives the frames that this worker is to
    /// carry, and no others.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::OtherPath`], [`SteerError::Program`], [`SteerError::Filter`].
    pub fn attach_socket_filter(&mut self, worker: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        attach_filter(&mut self.object, (LISTEN, &format!("{LISTEN}_{worker}")), worker, socket)
    }

    /// The program that a TAP interface must run for each frame that it puts into a queue (TUNSETFILTEREBPF). The
    /// queues belong to the workers in order. `None` if no worker ever counts as stuck.
    ///
    /// # Errors
    /// [`SteerError::Program`].
    pub fn queue_filter(&mut self) -> Result<Option<BorrowedFd<'_>>, SteerError> {
        if !self.stuck.fails_open() {
            return Ok(None);
        }
        let filter: &mut SocketFilter = program(&mut self.object, QUEUE)?;
        if filter.fd().is_err() {
            loaded(QUEUE, || filter.load())?;
        }
        let fd = filter.fd().map_err(|error| SteerError::Program { name: QUEUE, error: Box::new(error) })?;
        Ok(Some(fd.as_fd()))
    }

    /// Starts redirecting frames within the kernel between the device and that interface, which must be in the same
    /// network namespace. A frame that arrives on the device is received on the interface, and a frame sent through
    /// the interface leaves through the device. A super-frame crosses whole; before it leaves, the kernel does the
    /// offloads that the device cannot do (segmentation, checksums). Packet sockets on the device still see
    /// arriving frames. Frames sent past the qdisc (PACKET_QDISC_BYPASS) are not redirected.
    ///
    /// # Errors
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Map`]: then nothing is redirected.
    pub fn cross_to(&mut self, kernel: u32) -> Result<(), SteerError> {
        self.cross(kernel, false)
    }

    /// Redirects frames in this way only while a worker is stuck. Otherwise workers carry them.
    ///
    /// # Errors
    /// As [`Exclusive::cross_to`].
    pub fn cross_when_stuck(&mut self, kernel: u32) -> Result<(), SteerError> {
        self.cross(kernel, true)
    }

    fn cross(&mut self, kernel: u32, only_when_stuck: bool) -> Result<(), SteerError> {
        let Some((port, how, _)) = self.held else { return Ok(()) };
        let name = if only_when_stuck { CROSS_WHEN_STUCK } else { CROSS };
        if self.cross.as_ref().is_none_or(|(_, ifindex, attached)| (*ifindex, *attached) != (kernel, name)) {
            self.cross_no_more()?;
            let link = attach(&mut self.object, name, kernel, TcAttachType::Egress, how)?;
            self.cross = Some((link, kernel, name));
        }
        // The next frame shows whether a worker is stuck now.
        self.set(Crossing { port, kernel, only_when_stuck: only_when_stuck.into(), one_stuck: 1 })
    }

    /// Stops redirecting frames within the kernel.
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

    /// Counts of the frames redirected so far.
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
            given: 0,
        }))
    }

    /// The words that tell since when a frame has waited for a worker, to be mapped like those of
    /// [`Steering::pending`](crate::Steering::pending). A worker has two: for frames of the device, and for frames
    /// of the kernel's interface. `None` if no worker ever counts as stuck.
    #[must_use]
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.words()
    }

    /// Becomes readable when the programs have found a worker stuck, and stays so until [`Exclusive::read_stuck`].
    /// `None` if no worker ever counts as stuck.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.readable()
    }

    /// Acknowledges that.
    pub fn read_stuck(&mut self) {
        self.stuck.discard();
    }
}

/// Loads an object that withholds interfaces, for up to `workers` workers: with the mark of frames that may leave, and the
/// records of stuck workers.
pub(crate) fn load(
    object: &[u8],
    mark: u32,
    workers: u32,
    fail_open: Duration,
    offload: Option<&Sizes>,
    keep: Option<(&Pins, &OwnPid)>,
) -> Result<(Ebpf, StuckRecords), SteerError> {
    if workers > FILTERS_MAX {
        return Err(SteerError::Queue { queue: workers, max: FILTERS_MAX });
    }
    let fail_open_ns = stuck_after_ns(fail_open);
    let mut loader = EbpfLoader::new();
    loader.override_global("mark", &mark, true);
    loader.override_global("fail_open_ns", &fail_open_ns, true);
    // Only programs that look at the words of all workers have this variable.
    loader.override_global("workers", &workers, false);
    offload.into_iter().for_each(|sizes| sizes.apply(&mut loader));
    if let Some((pins, pid)) = keep {
        pins.apply(&mut loader);
        pid.apply(&mut loader);
    }
    let mut object = loader.load(object).map_err(|error| SteerError::Object(Box::new(error)))?;
    let stuck = StuckRecords::take(&mut object, fail_open_ns)?;
    Ok((object, stuck))
}

/// Attaches two programs to an interface, at ingress and at egress, in front of all others. Filters that dead instances have
/// left there are removed first.
pub(crate) fn attach_both(
    object: &mut Ebpf,
    [ingress, egress]: [&'static str; 2],
    ifindex: u32,
    how: TcAttach,
) -> Result<[TcLink; 2], SteerError> {
    // Those that cannot be removed change nothing.
    let _ = clsact::tidy(Some(ifindex));
    Ok([
        attach(object, ingress, ifindex, TcAttachType::Ingress, how)?,
        attach(object, egress, ifindex, TcAttachType::Egress, how)?,
    ])
}

/// Attaches a program of the object in front of all others, and loads it first if necessary.
fn attach(
    object: &mut Ebpf,
    name: &'static str,
    ifindex: u32,
    hook: TcAttachType,
    how: TcAttach,
) -> Result<TcLink, SteerError> {
    let classifier: &mut SchedClassifier = program(object, name)?;
    if classifier.fd().is_err() {
        loaded(name, || classifier.load())?;
    }
    crate::tc::attach(classifier, name, ifindex, hook, how)
}

/// An interface that an exception port or a switch withholds: its frames reach only the port's own sockets, not the
/// kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The process that holds it, if we may see it: process ID and command.
    pub holder: Option<(u32, String)>,
    /// The interface that the kernel's stack uses instead, if we may look into the process.
    pub kernel: Option<String>,
}

/// Whether an exception port withholds the interface. It is found by its program, even if it belongs to another
/// user or has its command socket in another directory. Also `None` if the kernel does not list programs (without
/// CAP_SYS_ADMIN).
#[must_use]
pub fn withheld(ifindex: u32) -> Option<Withheld> {
    let interface = interface_name(ifindex).ok()?;
    let Ours { name, program_id } = ours_at_ingress(ifindex, &interface)?;
    let ours = [INGRESS, PORT_INGRESS];
    if name.len() < NAME_MAX || !ours.iter().any(|known| known.starts_with(&name)) {
        return None;
    }
    let holder = processes_holding(program_id).into_iter().next();
    let kernel = holder.as_ref().and_then(|(pid, _)| tap_of(*pid));
    Some(Withheld { holder, kernel })
}

/// Whether an exception port redirects frames between the interface and its device, so that frames arriving there
/// come from a program. Also `false` if the kernel does not list programs.
#[must_use]
pub fn crosses(ifindex: u32) -> bool {
    let Ok(interface) = interface_name(ifindex) else { return false };
    let by_link = SchedClassifier::query_tcx(&interface, TcAttachType::Egress)
        .is_ok_and(|(_, programs)| programs.iter().any(|program| program.name_as_str() == Some(CROSS)));
    let is_living =
        |filter: &Listed| filter.tag().is_some_and(|tag| tag.program == CROSS && is_alive(tag.id));
    by_link || clsact::at(ifindex, TcAttachType::Egress).is_ok_and(|filters| filters.iter().any(is_living))
}

/// Characters of a program's name that the kernel keeps (`BPF_OBJ_NAME_LEN`, without the terminating zero).
const NAME_MAX: usize = 15;

/// A program of a running twinpath instance.
struct Ours {
    /// The name, truncated as the kernel keeps it.
    name: String,
    program_id: u32,
}

/// The first such program at tc ingress. If the kernel does not list programs, none is assumed: attaching will report
/// the reason.
fn ours_at_ingress(ifindex: u32, interface: &str) -> Option<Ours> {
    let by_link = || {
        let (_, programs) = SchedClassifier::query_tcx(interface, TcAttachType::Ingress).ok()?;
        let ours = |program: ProgramInfo| {
            let name = program.name_as_str().filter(|name| is_ours(name))?;
            Some(Ours { name: name.to_owned(), program_id: program.id() })
        };
        programs.into_iter().find_map(ours)
    };
    let by_filter = || {
        let living = |filter: &Listed| filter.tag().filter(|tag| is_alive(tag.id));
        let filters = clsact::at(ifindex, TcAttachType::Ingress).ok()?;
        filters
            .iter()
            .find_map(|filter| Some(Ours { name: living(filter)?.program, program_id: filter.program_id? }))
    };
    by_link().or_else(by_filter)
}

fn is_ours(program: &str) -> bool {
    program.starts_with(OURS)
}

/// Refuses an interface that another instance holds: another exception port would send every frame a second time, and
/// a service's claims would share their flows with ours.
pub(crate) fn refuse_if_held(ifindex: u32, interface: &str) -> Result<(), SteerError> {
    let held = |processes: &[(u32, String)]| {
        let holder = processes.first().map_or_else(
            || "by a process that can't be seen from here".to_owned(),
            |(pid, command)| format!("by {command} (pid {pid})"),
        );
        Err(SteerError::TcxHeld { interface: interface.to_owned(), holder })
    };
    if let Some(Ours { program_id, .. }) = ours_at_ingress(ifindex, interface) {
        if let Some(Left { switch, .. }) = switch_of(program_id) {
            return Err(SteerError::TcxKept { interface: interface.to_owned(), switch });
        }
        return held(&processes_holding(program_id));
    }
    // On the XDP path a service takes its frames before they reach tc.
    match xdp_holder(ifindex) {
        Ok(Some(XdpHolder { name: Some(name), processes, .. })) if is_ours(&name) => held(&processes),
        _ => Ok(()),
    }
}
