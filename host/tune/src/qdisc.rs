//! Reads the queueing disciplines of an interface over netlink (linux/rtnetlink.h, linux/pkt_sched.h).

use twinpath_netlink::{Body, Message, Netlink, Protocol, Request};

use super::system::Trouble;

// linux/rtnetlink.h
const RTM_GETQDISC: u16 = 38;
/// Length of `struct tcmsg`, bytes.
const TCMSG_LEN: usize = 20;
/// Offsets in it: the interface's index, and the class to which the discipline belongs.
const TCM_IFINDEX: usize = 4;
const TCM_PARENT: usize = 12;
const TCA_KIND: u16 = 1;

// linux/pkt_sched.h
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;

/// The kinds of the disciplines through which the interface sends, without repetition, the root first.
pub(crate) fn of(ifindex: u32) -> Result<String, Trouble> {
    let body = Body::new([0; TCMSG_LEN]);
    let request = Request::list("list the queueing disciplines", RTM_GETQDISC, &body);
    let answers = Netlink::open(Protocol::Route).and_then(|netlink| netlink.request(&request));
    let answers = answers.map_err(|error| Trouble::of_read(&error))?;
    let mut kinds: Vec<(bool, String)> = Vec::new();
    for found in answers.iter().filter_map(|message| kind(&message, ifindex)) {
        if !kinds.contains(&found) {
            kinds.push(found);
        }
    }
    kinds.sort_by_key(|(is_root, _)| !is_root);
    match kinds.is_empty() {
        true => Err(Trouble::Absent),
        false => Ok(kinds.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>().join(", ")),
    }
}

/// Whether a discipline is the root, and its kind; none if it is another interface's, or one for received frames.
fn kind(message: &Message<'_>, ifindex: u32) -> Option<(bool, String)> {
    let (header, attributes) = message.parts::<TCMSG_LEN>()?;
    let number = |at: usize| Some(u32::from_ne_bytes(*header.get(at..)?.first_chunk()?));
    let parent = number(TCM_PARENT)?;
    (number(TCM_IFINDEX)? == ifindex && parent != TC_H_INGRESS).then_some(())?;
    Some((parent == TC_H_ROOT, attributes.text(TCA_KIND)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_has_none() {
        assert_eq!(of(u32::MAX >> 1), Err(Trouble::Absent));
    }

    #[test]
    fn a_message_that_is_cut_off_is_no_discipline() {
        let mut body = [0; TCMSG_LEN + 8];
        body[TCM_IFINDEX] = 7;
        body[TCM_PARENT..TCM_PARENT + 4].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
        body[TCMSG_LEN..].copy_from_slice(&[8, 0, TCA_KIND as u8, 0, b'f', b'q', 0, 0]);
        let kind = |body, ifindex| kind(&Message::new(36, body), ifindex);
        assert_eq!(kind(&body, 7), Some((true, "fq".to_owned())));
        assert_eq!(kind(&body, 8), None);
        (0..TCMSG_LEN + 7).for_each(|len| assert_eq!(kind(&body[..len], 7), None));
    }
}
