//! Order is compared per sender. What came by two interfaces, or partly by a ring and partly by the kernel, has no order
//! across senders. So where both sides have received datagrams of different senders, all that waits on the socket is
//! received from both, and each sender's datagrams are compared.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::subject::Subject;

/// Maximum number of datagrams that wait on a socket.
const WAIT_MAX: usize = 4_096;
/// Maximum time of a call that does not block.
const PROMPT: Duration = Duration::from_secs(2);
/// An owner hands over what is in a ring within this time: the manual says so.
const HANDED_OVER: Duration = Duration::from_millis(30);

/// A call whose answer depends on what waits on a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The socket's name in the script.
    socket: String,
    /// What it returns waits no longer.
    takes: bool,
}

impl Look {
    /// The call of a step, `aN CALL SOCKET ...`; `None`: it is none of these.
    #[must_use]
    pub fn of(words: &[&str]) -> Option<Self> {
        let [_, call, socket, rest @ ..] = words else { return None };
        let has = |flag: &str| rest.iter().any(|word| word.split('|').any(|part| part == flag));
        let takes = match *call {
            "recv" | "recv_chk" | "recvfrom" | "read" | "readv" | "recvmsg" | "recvmmsg" => {
                if has("MSG_ERRQUEUE") {
                    return None;
                }
                !has("MSG_PEEK")
            }
            "ioctl" if has("FIONREAD") => false,
            _ => return None,
        };
        Some(Self { socket: (*socket).to_owned(), takes })
    }
}

/// A datagram as an answer describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    /// Its first bytes.
    head: String,
    hash: String,
    /// The sender; nothing if the call has not asked for it.
    name: String,
}

/// The datagrams in an answer; none if the call has failed.
fn datagrams(answer: &str) -> Vec<Datagram> {
    let mut found: Vec<Datagram> = Vec::new();
    if answer.starts_with("ret=-") {
        return found;
    }
    for word in answer.split(' ') {
        match word.split_once('=') {
            Some(("head", head)) => {
                found.push(Datagram { head: head.to_owned(), hash: String::new(), name: String::new() })
            }
            Some(("hash", hash)) => {
                found.iter_mut().last().into_iter().for_each(|last| hash.clone_into(&mut last.hash))
            }
            Some(("name", name)) => {
                found.iter_mut().last().into_iter().for_each(|last| name.clone_into(&mut last.name))
            }
            _ => {}
        }
    }
    found
}

/// Receives all that waits on a socket. `least`: so many will come, if nothing is lost.
fn drain(side: &mut Subject, actor: usize, socket: &str, least: usize) -> Result<Vec<Datagram>> {
    let mut found = Vec::new();
    let mut failed = 0;
    let deadline = Instant::now() + HANDED_OVER;
    while found.len() < WAIT_MAX && failed < 8 {
        side.tell(actor, &format!("recvfrom {socket} 65536 MSG_DONTWAIT 28"));
        let answer = side.answer_or_state(actor, PROMPT)?;
        if answer.contains("errno=EAGAIN") {
            if found.len() >= least || Instant::now() >= deadline {
                break;
            }
        } else if answer.contains(" namelen=0 ") {
            // The receiving side is shut down.
            break;
        } else if answer.starts_with("ret=-") {
            failed += 1;
        } else {
            found.extend(datagrams(&answer));
        }
        if !answer.starts_with("ret=") {
            break;
        }
    }
    Ok(found)
}

/// What a call has taken, as another side has received it that has all of it: the call may have cut it.
fn whole(taken: Vec<Datagram>, own_rest: &[Datagram], other_rest: &[Datagram]) -> Vec<Datagram> {
    let mut left: Vec<&Datagram> = other_rest.iter().filter(|other| !own_rest.contains(other)).collect();
    let found = taken.into_iter().map(|cut| {
        // A short one is the beginning of others, too.
        let is_it = |other: &&Datagram| other.head == cut.head && other.hash == cut.hash;
        let is_its_begin = |other: &&Datagram| other.head.starts_with(&cut.head);
        let at = left.iter().position(is_it).or_else(|| left.iter().position(is_its_begin));
        at.map_or(cut, |at| left.remove(at).clone())
    });
    found.collect()
}

/// In what two orders differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each sender's datagrams are in the same one.
    OfEachSame,
    /// A sender's datagrams are the same, but in another one.
    OfOneAnother,
}

/// `None`: there are other datagrams.
fn order_of(ours: &[Datagram], theirs: &[Datagram]) -> Option<Order> {
    let of = |all: &[Datagram], name: &str| -> Vec<Datagram> {
        all.iter().filter(|one| one.name == name).cloned().collect()
    };
    let sorted = |all: &[Datagram]| {
        let mut all = all.to_vec();
        all.sort();
        all
    };
    if sorted(ours) != sorted(theirs) {
        return None;
    }
    let is_same = ours.iter().all(|one| of(ours, &one.name) == of(theirs, &one.name));
    Some(if is_same { Order::OfEachSame } else { Order::OfOneAnother })
}

/// Whether two answers to a call differ in the order of datagrams alone, and in which. Receives all that waits on the
/// socket, on both sides: they are in the same state afterwards if there is a result.
///
/// # Errors
/// Of the system.
pub fn differs_alone(
    sides: &mut [Subject; 2],
    actor: usize,
    look: &Look,
    answers: &[String; 2],
) -> Result<Option<Order>> {
    let is_good = |answer: &String| answer.starts_with("ret=") && !answer.starts_with("ret=-");
    let has_nothing = |answer: &String| look.takes && datagrams(answer).is_empty();
    if !answers.iter().all(is_good)
        || answers.iter().any(has_nothing)
        || !sides.iter().all(|side| side.is_idle(actor))
    {
        return Ok(None);
    }
    let take = |answer: &str| if look.takes { datagrams(answer) } else { Vec::new() };
    let [ours, theirs] = answers.each_ref().map(|answer| take(answer));
    let [plain, leased] = sides;
    let our_rest = drain(plain, actor, &look.socket, 0)?;
    let their_rest =
        drain(leased, actor, &look.socket, (ours.len() + our_rest.len()).saturating_sub(theirs.len()))?;
    let mut ours = whole(ours, &our_rest, &their_rest);
    let mut theirs = whole(theirs, &their_rest, &our_rest);
    ours.extend(our_rest);
    theirs.extend(their_rest);
    Ok(order_of(&ours, &theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(head: &str, name: &str) -> Datagram {
        Datagram { head: head.to_owned(), hash: format!("of {head}"), name: name.to_owned() }
    }

    #[test]
    fn calls_that_receive_look_at_a_socket() {
        let of = |step: &str| Look::of(&step.split(' ').collect::<Vec<_>>());
        let takes = |step: &str| of(step).map(|look| look.takes);
        assert_eq!(takes("a0 recv s0 2000 MSG_DONTWAIT"), Some(true));
        assert_eq!(takes("a1& recvmsg s0 10+5 0 28 256"), Some(true));
        assert_eq!(takes("a0 recv s0 2000 MSG_DONTWAIT|MSG_PEEK"), Some(false));
        assert_eq!(takes("a0 ioctl s0 FIONREAD"), Some(false));
        for other in ["a0 ioctl s0 SIOCINQ7", "a0 poll 0 s0:POLLIN", "a0 recv s0 9 MSG_ERRQUEUE", "join a0"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn each_datagram_of_an_answer_is_found() {
        let one = datagrams("ret=3 errno=- head=48d305 hash=4b43 namelen=16 name=02000f ~wall=6");
        assert_eq!(one, [Datagram { head: "48d305".into(), hash: "4b43".into(), name: "02000f".into() }]);
        let two = datagrams(
            "ret=2 errno=- [0] len=1 head=aa hash=1 namelen=16 name=x [1] len=1 head=bb hash=2 name=y",
        );
        assert_eq!(two.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(datagrams("ret=-1 errno=EAGAIN head= hash=cbf2"), []);
    }

    #[test]
    fn what_a_call_has_cut_is_what_the_other_side_has_left() {
        let (a, b) = (datagram("0001aa", "x"), datagram("0002bb", "y"));
        let cut = Datagram { head: "0001".into(), hash: "of 0001".into(), name: String::new() };
        assert_eq!(whole(vec![cut.clone()], std::slice::from_ref(&b), &[b.clone(), a.clone()]), [a]);
        assert_eq!(whole(vec![cut.clone()], &[], std::slice::from_ref(&b)), [cut]);
        // An empty one is the beginning of all.
        let empty = datagram("", "x");
        assert_eq!(whole(vec![empty.clone()], &[], &[b, empty.clone()]), [empty]);
    }

    #[test]
    fn order_counts_within_a_sender_alone() {
        let [a, b] = ["1", "2"].map(|head| datagram(head, "x"));
        let c = datagram("3", "y");
        let order = |ours: [&Datagram; 3], theirs: &[&Datagram]| {
            let owned = |all: &[&Datagram]| all.iter().map(|one| (*one).clone()).collect::<Vec<_>>();
            order_of(&owned(&ours), &owned(theirs))
        };
        assert_eq!(order([&a, &b, &c], &[&c, &a, &b]), Some(Order::OfEachSame));
        assert_eq!(order([&a, &b, &c], &[&a, &c, &b]), Some(Order::OfEachSame));
        assert_eq!(order([&a, &b, &c], &[&b, &a, &c]), Some(Order::OfOneAnother));
        assert_eq!(order([&a, &b, &c], &[&a, &b]), None, "one is missing");
        assert_eq!(order([&a, &b, &c], &[&a, &b, &b]), None, "one is another one");
    }
}
