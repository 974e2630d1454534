//! Sends a frame by one port or several, with the VLAN tag that each is to have.

use twinpath_forwarding::learning::{Output, Tagging};
use twinpath_frame::Frame;
use twinpath_inspect::Reason;
use twinpath_port::fit::remove_tag;
use twinpath_worker::Io;

use crate::engine::message::SwitchEvent;

/// Sends a frame by each of its outputs: the last one gets the frame itself, those before it frames with the same bytes.
/// `dropped` is why it goes by none, but perhaps to a mirror.
#[inline]
pub(crate) fn pass_on(
    mut frame: Frame,
    tag_in_bytes: bool,
    dropped: Option<Reason>,
    mut outputs: impl Iterator<Item = Output>,
    io: &mut Io<'_, SwitchEvent>,
) {
    if let Some(reason) = dropped {
        count_drop(frame.meta().port, reason, io);
    }
    let Some(mut output) = outputs.next() else { return io.release(frame) };
    for further in outputs {
        match io.share(&mut frame) {
            Some(twin) => send(twin, tag_in_bytes, output.tagging, output.port, io),
            None => count_drop(output.port, Reason::PoolEmpty, io),
        }
        output = further;
    }
    send(frame, tag_in_bytes, output.tagging, output.port, io);
}

/// Counts a drop at a port, or at the worker if the port is not attached.
pub(crate) fn count_drop(port: u16, reason: Reason, io: &Io<'_, SwitchEvent>) {
    match io.port_numbered(port) {
        Some(attached) => attached.counters().drops.add(reason, 1),
        None => io.drops().add(reason, 1),
    }
}

fn send(mut frame: Frame, tag_in_bytes: bool, tagging: Tagging, to: u16, io: &mut Io<'_, SwitchEvent>) {
    if retag(&mut frame, tag_in_bytes, tagging) {
        io.forward_to(to, Some(frame));
    } else {
        count_drop(to, Reason::OffloadRefused, io);
        io.release(frame);
    }
}

/// Changes the outer tag of a frame. Returns whether that was possible.
#[inline]
fn retag(frame: &mut Frame, tag_in_bytes: bool, tagging: Tagging) -> bool {
    match tagging {
        Tagging::Keep => true,
        Tagging::Strip if tag_in_bytes => remove_tag(frame),
        Tagging::Strip => {
            frame.meta_mut().vlan = None;
            true
        }
        Tagging::Put(control) if tag_in_bytes => {
            let tag = frame.bytes_mut().get_mut(TAG_CONTROL);
            tag.map(|tag| tag.copy_from_slice(&control.to_be_bytes())).is_some()
        }
        // A port that has no tags beside frames takes it in (`twinpath_port::fit`).
        Tagging::Put(control) => {
            frame.meta_mut().vlan = Some(control);
            true
        }
    }
}

/// Where the control information of a tag is among a frame's bytes: after the addresses and the tag's own type.
const TAG_CONTROL: std::ops::Range<usize> = 14..16;

/// Sends a frame as it is by a port, and a copy of it to that port's mirror.
#[inline]
pub(crate) fn send_as_it_is(mut frame: Frame, to: u16, mirror: Option<u16>, io: &mut Io<'_, SwitchEvent>) {
    if let Some(mirror) = mirror {
        copy_to(&mut frame, mirror, io);
    }
    io.forward_to(to, Some(frame));
}

/// Sends a copy of a frame by a port.
#[cold]
pub(crate) fn copy_to(frame: &mut Frame, to: u16, io: &mut Io<'_, SwitchEvent>) {
    match io.share(frame) {
        Some(twin) => io.forward_to(to, Some(twin)),
        None => count_drop(to, Reason::PoolEmpty, io),
    }
}
