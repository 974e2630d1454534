//! What would become of frames like a given one, without sending any: which flows they match, which of their fields
//! decide that, and whether something simpler than a worker, such as a program in the kernel, can do the same with all
//! of them.

use twinpath_openflow_wire::{Action, number};

use crate::openflow::pipeline::action_set::SetPart;
use crate::openflow::pipeline::group::{BucketActions, Choice, Group};
use crate::openflow::pipeline::hash::{Seed, mix};
use crate::openflow::pipeline::key::{self, Key};
use crate::openflow::pipeline::parse::{self, Ingress, Layout};
use crate::openflow::pipeline::port::Ports;
use crate::openflow::pipeline::rule::{FlowId, Instructions, Program, Rule};
use crate::openflow::pipeline::table::Tree;
use crate::openflow::pipeline::trie::Trie;

/// Why workers forward frames, and not the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhyNot {
    /// Their headers are changed.
    Rewrites,
    /// They leave by several ports.
    SeveralOutputs,
    /// They leave by no port.
    NoOutput,
    /// A meter counts them.
    Meter,
    /// A group chooses by more than its live buckets, or leads to another group.
    Group,
    /// Controllers get them.
    Controller,
    /// The switch's own forwarding decides.
    Normal,
    /// A field decides that the kernel's programs do not read, or the frames have headers that they do not read.
    Fields,
    /// One of the ports is not an interface of the kernel, or is in another network namespace than the other port.
    Port,
    /// More different masks, or more entries, than the kernel's programs have room for.
    Full,
}

impl WhyNot {
    /// As `show flows` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rewrites => "rewrites",
            Self::SeveralOutputs => "several_outputs",
            Self::NoOutput => "no_output",
            Self::Meter => "meter",
            Self::Group => "group",
            Self::Controller => "controller",
            Self::Normal => "normal",
            Self::Fields => "fields",
            Self::Port => "port",
            Self::Full => "full",
        }
    }
}

/// A flow that frames match on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) table: u8,
    pub(crate) priority: u16,
    /// It is the table-miss entry.
    pub(crate) is_miss: bool,
    /// The flow's counter, which is its name too.
    pub(crate) counter: u32,
    /// The metadata with which the table was searched.
    pub(crate) metadata: u64,
}

/// What frames are counted by on their way through the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub(crate) steps: Vec<Step>,
    /// The table that they match nothing in, and their metadata there: the end of their way.
    pub(crate) missed: Option<(u8, u64)>,
    /// The counters of groups and buckets.
    pub(crate) others: Vec<u32>,
    /// Groups were asked for, there or not.
    pub(crate) has_groups: bool,
}

impl Path {
    /// The flows that the frames match, in the order of their tables.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.steps.iter().map(|step| FlowId::of(step.counter))
    }

    /// Whether the last table has no flow for the frames but the table-miss entry, if that.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        self.missed.is_some() || self.steps.last().is_some_and(|step| step.is_miss)
    }
}

/// Where the EtherType of a frame is that has no tag among its bytes.
const UNTAGGED_TYPE_AT: u16 = 12;

/// Words of an [`ExactKey`].
pub const EXACT_WORDS: usize = 8;

/// The fields of frames that the kernel's programs read, and which of their bits decide. `stack/bpf/bpf/offload.h` has
/// the same places. The port that the frame came in by is always among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExactKey {
    /// The fields; no bit is set that the mask does not have.
    pub value: [u64; EXACT_WORDS],
    /// The bits that decide.
    pub mask: [u64; EXACT_WORDS],
}

impl ExactKey {
    /// The port that the frames come in by; the numbers of reserved ports end in the same 16 bits.
    #[must_use]
    pub const fn in_port(&self) -> u16 {
        (self.value[key::IN_PORT.word] >> key::IN_PORT.shift) as u16
    }

    /// Whether a frame of this key is one of the other's, whichever it is.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let pairs = other.mask.iter().zip(&self.mask).zip(self.value.iter().zip(&other.value));
        pairs.into_iter().all(|((other_mask, mask), (value, other))| {
            other_mask & !mask == 0 && value & other_mask == *other
        })
    }

    /// The fields of a frame of this key, with zeros where it does not say.
    fn frame(&self) -> Key {
        let mut key = Key::default();
        key.0[..EXACT_WORDS].copy_from_slice(&self.value);
        key.set(key::IN_PHY_PORT, self.in_port().into());
        key
    }
}

/// What becomes of a frame, and of all others that are equal to it in the bits that were looked at.
#[derive(Clone, Debug)]
pub struct Trace {
    key: Key,
    looked_at: Key,
    path: Path,
    verdict: Result<u32, WhyNot>,
}

impl Trace {
    /// The flows that the frame matches; if the verdict is a reason, up to the one whose instructions are the reason.
    #[must_use]
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// The one port that the frame leaves by, unchanged.
    ///
    /// # Errors
    /// Why that is not all that becomes of it.
    pub const fn verdict(&self) -> Result<u32, WhyNot> {
        self.verdict
    }

    /// What becomes of all frames with the addresses of this one, and with its VLAN tag if `by_tag`, where a switch
    /// without tables sends them by one port. `beside` is as in [`Pipeline::trace`](crate::openflow::pipeline::Pipeline::trace). `None`:
    /// this is not a frame, or it has a tag among its bytes, and the kernel's programs leave such frames to workers.
    #[must_use]
    pub fn between_stations(
        head: &[u8],
        beside: Option<u16>,
        in_port: u32,
        by_tag: bool,
        output: u32,
    ) -> Option<Self> {
        let (mut key, mut layout, mut looked_at) = (Key::default(), Layout::default(), Key::default());
        let ingress = Ingress { in_port, in_phy_port: in_port, tunnel_id: 0 };
        parse::parse(head, beside, &ingress, &mut key, &mut layout)?;
        if layout.type_at != UNTAGGED_TYPE_AT {
            return None;
        }
        let address = (1 << 48) - 1;
        looked_at.set(key::ETH_DST, address);
        looked_at.set(key::ETH_SRC, address);
        if by_tag {
            // With the bit that says that there is one.
            looked_at.set(key::VLAN_VID, 0x1fff);
        }
        Some(Self { key, looked_at, path: Path::default(), verdict: Ok(output) })
    }

    /// The fields by which a program in the kernel recognises the frames to which the verdict applies.
    ///
    /// # Errors
    /// [`WhyNot::Fields`].
    pub fn exact_key(&self) -> Result<ExactKey, WhyNot> {
        let mut mask = self.looked_at;
        mask.set(key::IN_PORT, 0xffff);
        // Decided by the port that the frame came in by, by the way through the tables, and by what the programs leave to
        // workers: they take frames of no tunnel, and without extension headers.
        mask.0[key::IN_PHY_PORT.word] &=
            !(0xffff << key::IN_PHY_PORT.shift | 0xffff << key::IPV6_EXTHDR.shift);
        mask.0[key::METADATA] = 0;
        mask.0[key::TUNNEL_ID] = 0;
        let is_odd = self.key.0[key::TUNNEL_ID] != 0
            || self.key.0[key::IPV6_EXTHDR.word] as u16 != 0
            || (self.key.0[0] as u16) & key::Layers::NOT_IN_KERNEL.0 != 0
            || self.key.0[0] as u32 >> 16 != self.key.0[key::IN_PHY_PORT.word] as u32 >> 16;
        if is_odd || mask.0[EXACT_WORDS..].iter().any(|word| *word != 0) {
            return Err(WhyNot::Fields);
        }
        Ok(ExactKey {
            value: std::array::from_fn(|word| self.key.0[word] & mask.0[word]),
            mask: std::array::from_fn(|word| mask.0[word]),
        })
    }
}

/// What a trace goes through.
pub(crate) struct Tables<'a, T> {
    /// A table, by its number.
    pub(crate) table: T,
    pub(crate) groups: &'a Trie<std::sync::Arc<Group>>,
    pub(crate) ports: &'a Ports,
    pub(crate) seed: &'a Seed,
    pub(crate) drop_fragments: bool,
}

impl<'a, T: Fn(u8) -> Option<&'a Tree>> Tables<'a, T> {
    /// Takes the head of a frame through the tables, as a worker would. `beside` is the tag control information of a VLAN
    /// tag that is not among the bytes.
    pub(crate) fn trace(&self, head: &[u8], beside: Option<u16>, ingress: &Ingress) -> Trace {
        let (mut key, mut layout) = (Key::default(), Layout::default());
        let is_frame = parse::parse(head, beside, ingress, &mut key, &mut layout).is_some();
        if self.drop_fragments && layout.is_in_parts {
            // It says nothing of the frames that the programs forward, which leave fragments to workers.
            let (looked_at, path) = (Key::default(), Path::default());
            return Trace { key, looked_at, path, verdict: Err(WhyNot::Fields) };
        }
        self.run(key, ingress.in_port, is_frame)
    }

    /// The same with a frame of a key, of which only what the key says is known: the verdict is right about all of them if
    /// the key is [within](ExactKey::is_within) that of the result.
    pub(crate) fn trace_key(&self, key: &ExactKey) -> Trace {
        self.run(key.frame(), key.in_port().into(), true)
    }

    fn run(&self, mut key: Key, in_port: u32, is_frame: bool) -> Trace {
        let mut looked_at = Key::default();
        let mut run = Run { tables: self, in_port, path: Path::default(), to: None };
        let is_received = self.ports.get(in_port).is_none_or(|port| !port.no_receive);
        let verdict = match is_frame && is_received {
            true => run.tables(&mut key, &mut looked_at),
            false => Err(WhyNot::NoOutput),
        };
        key.0[key::METADATA] = 0;
        Trace { key, looked_at, path: run.path, verdict }
    }
}

struct Run<'a, 'b, T> {
    tables: &'b Tables<'a, T>,
    in_port: u32,
    path: Path,
    to: Option<u32>,
}

impl<'a, T: Fn(u8) -> Option<&'a Tree>> Run<'a, '_, T> {
    fn tables(&mut self, key: &mut Key, looked_at: &mut Key) -> Result<u32, WhyNot> {
        let mut set = SetPart::default();
        let mut table = 0;
        loop {
            let metadata = key.0[key::METADATA];
            let tree = (self.tables.table)(table);
            let Some(rule) = tree.and_then(|tree| tree.trace(key, self.tables.seed, looked_at)) else {
                // What was sent on the way has been sent; the action set is not done.
                self.path.missed = Some((table, metadata));
                return self.to.ok_or(WhyNot::NoOutput);
            };
            let Rule { priority, counter, is_miss, .. } = *rule;
            self.path.steps.push(Step { table, priority, is_miss, counter, metadata });
            let Program::Many(program) = &rule.program else {
                if let Program::Output { port, .. } = rule.program {
                    self.output(port)?;
                }
                break;
            };
            self.instructions(program, &mut set)?;
            if let Some((bits, mask)) = program.metadata {
                key.0[key::METADATA] = metadata & !mask | bits;
            }
            match program.goto {
                Some(next) if next > table => table = next,
                _ => break,
            }
        }
        set.actions().try_for_each(|action| self.act(&action))?;
        self.to.ok_or(WhyNot::NoOutput)
    }

    fn instructions(&mut self, program: &Instructions, set: &mut SetPart) -> Result<(), WhyNot> {
        if program.meter.is_some() {
            return Err(WhyNot::Meter);
        }
        program.apply.iter().try_for_each(|action| self.act(action))?;
        if program.clear {
            set.clear();
        }
        if let Some(part) = &program.write {
            set.merge(part);
        }
        Ok(())
    }

    fn act(&mut self, action: &Action) -> Result<(), WhyNot> {
        match *action {
            Action::Output { port, .. } => self.output(port),
            Action::Group(group) => self.group(group),
            // No port has queues, and no experimenter's action is supported.
            Action::SetQueue(_) | Action::Experimenter { .. } => Ok(()),
            _ => Err(WhyNot::Rewrites),
        }
    }

    fn output(&mut self, port: u32) -> Result<(), WhyNot> {
        use number::port::{ALL, CONTROLLER, FLOOD, IN_PORT, NORMAL};
        match port {
            NORMAL | FLOOD => Err(WhyNot::Normal),
            ALL => Err(WhyNot::SeveralOutputs),
            CONTROLLER => Err(WhyNot::Controller),
            IN_PORT => self.output_to(self.in_port),
            _ if port == self.in_port => Ok(()),
            _ => self.output_to(port),
        }
    }

    fn output_to(&mut self, port: u32) -> Result<(), WhyNot> {
        if self.tables.ports.get(port).is_none_or(|port| port.no_forward) {
            return Ok(());
        }
        match self.to.replace(port) {
            None => Ok(()),
            Some(_) => Err(WhyNot::SeveralOutputs),
        }
    }

    fn group(&mut self, number: u32) -> Result<(), WhyNot> {
        self.path.has_groups = true;
        let Some(group) = self.tables.groups.get(mix(u64::from(number))) else { return Ok(()) };
        let bucket = match (&group.choice, &*group.buckets) {
            (Choice::All, []) | (Choice::One(None), _) => None,
            (Choice::All, [bucket]) => Some(bucket),
            (Choice::One(Some(number)), buckets) => buckets.get(usize::from(*number)),
            (Choice::All | Choice::Weighted(_), _) => return Err(WhyNot::Group),
        };
        self.path.others.push(group.counter);
        let Some(BucketActions { actions, counter }) = bucket else { return Ok(()) };
        self.path.others.push(*counter);
        actions.iter().try_for_each(|action| match action {
            Action::Group(_) => Err(WhyNot::Group),
            _ => self.act(action),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
