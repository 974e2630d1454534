//! Evaluates captures at both ends of a link: how long frames were in transit, and how long an end waited between
//! frames. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::plain::tap::Passed;

/// Durations in nanoseconds, unordered.
pub(super) type Times = Vec<u64>;

/// The waiting times of an end between frames.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Gaps {
    /// From the last frame of a reply to the first frame of the next call.
    pub(super) next_call: Times,
    /// From the last frame of a reply to the first frame that acknowledges all of it: a call, or a pure
    /// acknowledgement.
    pub(super) acknowledged: Times,
}

/// The transit time of each frame of one direction.
///
/// Frames are matched by their content. Data frames are matched by the first byte's position in the stream: a frame
/// that is segmented on the way counts once per segment, and one that is coalesced with an earlier one counts from the
/// earlier one's time, so a result is never less than the real time. Frames without data are matched by sequence and
/// acknowledgement numbers, in order. Retransmitted data counts once.
pub(super) fn transit(from: &[Passed], to: &[Passed], from_server: bool) -> Times {
    let side = |frames: &[Passed]| -> Vec<Passed> {
        let mut side: Vec<_> =
            frames.iter().filter(|frame| frame.from_server == from_server).copied().collect();
        side.sort_by_key(|frame| frame.at_ns);
        side
    };
    let (from, to) = (side(from), side(to));
    let Some(base) = from.first().map(|frame| frame.seq) else { return Vec::new() };
    let place = |frame: &Passed| frame.seq.wrapping_sub(base);
    let mut data: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mut empty: HashMap<(u32, u32), VecDeque<u64>> = HashMap::new();
    for frame in &from {
        if frame.payload > 0 {
            data.entry(place(frame)).or_insert((frame.payload, frame.at_ns));
        } else {
            empty.entry((frame.seq, frame.ack)).or_default().push_back(frame.at_ns);
        }
    }
    let mut arrived = std::collections::BTreeSet::new();
    let mut times = Vec::with_capacity(to.len());
    for frame in &to {
        let left = if frame.payload > 0 {
            let first = place(frame);
            if !arrived.insert(first) {
                continue;
            }
            let covering = data.range(..=first).next_back();
            covering.filter(|(start, (payload, _))| first - **start < *payload).map(|(_, (_, at))| *at)
        } else {
            empty.get_mut(&(frame.seq, frame.ack)).and_then(VecDeque::pop_front)
        };
        times.extend(left.and_then(|left| frame.at_ns.checked_sub(left)));
    }
    times
}

/// The waiting times as seen at one place.
pub(super) fn gaps(frames: &[Passed]) -> Gaps {
    let mut frames = frames.to_vec();
    frames.sort_by_key(|frame| frame.at_ns);
    let mut gaps = Gaps::default();
    // When the reply's last frame passed, and the number that acknowledges all of it.
    let mut reply: Option<(u64, u32)> = None;
    let mut unacknowledged = false;
    for frame in &frames {
        if frame.from_server {
            if frame.payload > 0 {
                reply = Some((frame.at_ns, frame.seq.wrapping_add(frame.payload)));
                unacknowledged = true;
            }
            continue;
        }
        let Some((at_ns, end)) = reply else { continue };
        let gap = frame.at_ns.saturating_sub(at_ns);
        if unacknowledged && frame.ack.wrapping_sub(end).cast_signed() >= 0 {
            gaps.acknowledged.push(gap);
            unacknowledged = false;
        }
        if frame.payload > 0 {
            gaps.next_call.push(gap);
            reply = None;
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at_ns: u64, from_server: bool, seq: u32, ack: u32, payload: u32) -> Passed {
        Passed { at_ns, from_server, seq, ack, payload }
    }

    #[test]
    fn segmented_coalesced_and_repeated_data_and_empty_frames_are_matched() {
        let near_the_end = u32::MAX - 99;
        let from = [
            frame(0, true, near_the_end, 7, 3000),
            frame(50, true, near_the_end.wrapping_add(3000), 7, 10),
            frame(60, true, near_the_end.wrapping_add(3010), 7, 10),
            frame(70, true, near_the_end.wrapping_add(3020), 7, 0),
            frame(80, true, near_the_end.wrapping_add(3020), 7, 0),
            frame(90, false, 7, 0, 10),
        ];
        let to = [
            // Segmented into three on the way.
            frame(1000, true, near_the_end, 7, 1448),
            frame(1001, true, near_the_end.wrapping_add(1448), 7, 1448),
            frame(1002, true, near_the_end.wrapping_add(2896), 7, 104),
            // Coalesced, and retransmitted.
            frame(1100, true, near_the_end.wrapping_add(3000), 7, 20),
            frame(9000, true, near_the_end, 7, 1448),
            frame(1170, true, near_the_end.wrapping_add(3020), 7, 0),
            frame(1190, true, near_the_end.wrapping_add(3020), 7, 0),
            // No frame of this kind is left.
            frame(1200, true, near_the_end.wrapping_add(3020), 7, 0),
        ];
        assert_eq!(transit(&from, &to, true), [1000, 1001, 1002, 1050, 1100, 1110]);
        assert_eq!(transit(&from, &[frame(95, false, 7, 0, 10)], false), [5]);
        assert!(transit(&[], &to, true).is_empty());
    }

    #[test]
    fn gaps_begin_with_the_last_frame_of_a_reply() {
        let frames = [
            frame(0, false, 0, 0, 100),
            // A reply in two frames, with an acknowledgement before the next call.
            frame(10, true, 0, 100, 1448),
            frame(11, false, 100, 1448, 0),
            frame(12, true, 1448, 100, 52),
            frame(15, false, 100, 1500, 0),
            frame(20, false, 100, 1500, 100),
            // A reply that the next call acknowledges.
            frame(30, true, 1500, 200, 100),
            frame(37, false, 200, 1600, 100),
        ];
        let expected = Gaps { next_call: vec![8, 7], acknowledged: vec![1, 3, 7] };
        assert_eq!(gaps(&frames), expected);
    }
}
