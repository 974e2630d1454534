//! Frames of a claimed EtherType: the service gets and answers whole frames. They have only the fast path,
//! because no kernel socket can hold such a claim.

use twinpath_frame::{Checksum, Frame};
use twinpath_inspect::Reason;
use twinpath_service::{Answer, EthernetFrame, Service};
use twinpath_wire::eth;

use crate::handlers::Guarded;

use twinpath_inspect::ServeCounters;

/// The offset of the EtherType in a frame (IEEE 802.3, 3.1.1).
const TYPE_AT: usize = 12;

/// Whether an untagged frame has this EtherType. A tagged frame never matches, because its first EtherType
/// is that of the tag.
#[inline]
pub(crate) fn is_of(frame: &Frame, ethertype: u16) -> bool {
    frame.bytes().get(TYPE_AT..eth::HEADER_LEN) == Some(&ethertype.to_be_bytes())
}

/// Passes `frame` to the service, which answers it in place.
///
/// # Errors
/// The reason for dropping the frame.
#[inline]
pub(crate) fn serve<S: Service>(
    service: &mut Guarded<S>,
    frame: &mut Frame,
    entry: usize,
    counters: &ServeCounters,
) -> Result<(), Reason> {
    let len = frame.bytes().len();
    let view = eth::Frame::parse(frame.bytes()).map_err(|_| Reason::Truncated)?;
    // The source is a group address or our own: an answer would reach everybody, or nobody (IEEE 802.3,
    // 3.2.3).
    if view.source().is_group() || view.source() == view.destination() {
        return Err(Reason::MartianSource);
    }
    counters.came_fast(entry);
    frame.set_len(frame.capacity()).map_err(|_| Reason::FrameTooLarge)?;
    let len = match service
        .call("frame", |service| service.frame(&mut EthernetFrame::new(frame.bytes_mut(), len)))?
    {
        Answer::Reply { len } => len,
        Answer::Drop(reason) => return Err(reason),
        // A frame can only be answered in its own buffer.
        Answer::Nothing | Answer::Long | Answer::Later => return Err(Reason::NoReply),
    };
    frame.set_len(len).map_err(|_| Reason::FrameTooLarge)?;
    // There is no transport checksum that a device would have to complete.
    frame.meta_mut().checksum = Checksum::Verified;
    counters.fast_replies.add(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use twinpath_frame::Pool;
    use twinpath_service::{Echo, Reflect};

    use super::*;

    fn outcome<S: Service>(service: S, bytes: &[u8]) -> (Result<(), Reason>, Vec<u8>, u64) {
        let mut pool = Pool::new(1).expect("pool");
        let mut frame = pool.take().expect("free");
        frame.copy_from(bytes).expect("fits");
        let counters = ServeCounters::default();
        let served = serve(&mut Guarded::new(service, Default::default()), &mut frame, 0, &counters);
        let answer = frame.bytes().to_vec();
        pool.release(frame);
        (served, answer, counters.fast_replies.get())
    }

    #[test]
    fn a_frame_is_answered_where_it_stands() {
        let frame = b"\x02ddddd\x02sssss\x88\xb5payload";
        assert_eq!(outcome(Reflect, frame), (Ok(()), b"\x02sssss\x02ddddd\x88\xb5payload".to_vec(), 1));
    }

    #[test]
    fn what_cannot_or_need_not_be_answered_is_dropped_under_a_name() {
        let reason = |bytes: &[u8]| outcome(Reflect, bytes).0;
        assert_eq!(reason(b"\x02dddd"), Err(Reason::Truncated));
        assert_eq!(reason(b"\x02ddddd\x03sssss\x88\xb5from a group"), Err(Reason::MartianSource));
        assert_eq!(reason(b"\x02ddddd\x02ddddd\x88\xb5from ourselves"), Err(Reason::MartianSource));
        let (served, _, replies) = outcome(Echo, b"\x02ddddd\x02sssss\x88\xb5to a service of datagrams");
        assert_eq!((served, replies), (Err(Reason::NoReply), 0));
    }
}
