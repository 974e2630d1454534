//! Differences that are known. Each is a line of the manual, with its reason, or is not fixed yet. Any other difference
//! is a failure.

use twinpath_worker::idle::Mode;

use crate::compare::Difference;

/// What becomes of a script at a known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Both sides are still in the same state.
    GoOn,
    /// They are not, so what comes next means nothing.
    End,
}

/// A difference, and where it was found.
#[derive(Clone, Copy)]
pub struct FoundAt<'a> {
    /// The steps up to it.
    pub steps: &'a [String],
    /// How calls wait.
    pub mode: Mode,
    /// What differs.
    pub difference: &'a Difference,
    /// Why sockets of the leased side went back to the kernel.
    pub reasons: &'a [String],
}

/// A known difference.
pub struct Known {
    /// The point of the list that it belongs to, or the place in the manual.
    pub name: &'static str,
    /// Whether it is this one.
    matches: fn(FoundAt<'_>) -> bool,
    /// What becomes of the script.
    pub then: Then,
}

/// The known difference that this one is; not one whose name has one of the `struck` texts.
#[must_use]
pub fn find(found: FoundAt<'_>, struck: &[String]) -> Option<&'static Known> {
    let stands = |known: &&Known| !struck.iter().any(|text| known.name.contains(text));
    KNOWN.iter().filter(stands).find(|known| (known.matches)(found))
}

impl FoundAt<'_> {
    fn last(&self) -> &str {
        self.steps.last().map_or("", String::as_str)
    }

    fn has(&self, text: &str) -> bool {
        self.steps.iter().any(|step| step.contains(text))
    }

    fn is_of(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.difference.kind.ends_with(kind))
    }

    /// Whether a call of epoll has returned as many events as it had room for, on both sides.
    fn is_full(&self) -> bool {
        let last = self.last();
        let call = match last.strip_prefix("join ") {
            Some(actor) => self.steps.iter().rev().find(|step| step.starts_with(&format!("{actor}& "))),
            None => self.steps.last(),
        };
        let words: Vec<&str> = call.map_or("", String::as_str).split(' ').collect();
        let room = words.get(3).filter(|_| words.get(1).is_some_and(|call| call.starts_with("epoll_")));
        let Difference { plain, leased, .. } = self.difference;
        room.is_some_and(|room| {
            [plain, leased].iter().all(|answer| answer.starts_with(&format!("ret={room} ")))
        })
    }

    fn is_wait(&self) -> bool {
        ["poll", "select", "epoll_wait", "epoll_pwait", "epoll_pwait2", "join"]
            .iter()
            .any(|call| self.difference.kind.split(':').next().is_some_and(|kind| kind.ends_with(call)))
    }
}

/// Of a sender whose datagrams come in another order on the leased side.
pub const BEHIND: &str = "manual: what is handed over comes behind what the kernel has got before";

/// Whether a step may have had what is in a ring handed over to other processes.
#[must_use]
pub fn hands_over(steps: &[String]) -> bool {
    let ways = [" give ", " fork ", " exec", " close ", " dup2 ", " dup3 "];
    steps.iter().any(|step| ways.iter().any(|way| step.contains(way)))
}

/// Of a sender whose datagrams came by two interfaces: a ring is of one of them, and what is in it is received first.
pub const TWO_INTERFACES: &str = "manual: datagrams of one sender that come by two interfaces";

/// Whether datagrams have come by another interface than the ring's.
#[must_use]
pub fn comes_by_two(steps: &[String]) -> bool {
    steps.iter().any(|step| step.starts_with("frame") && step.contains(" via=1"))
}

/// Whether one of the last steps has received a datagram of which its answer says nothing, as there was no room for any of it.
fn receives_unseen(steps: &[String]) -> bool {
    steps.iter().rev().skip(1).take(3).any(|step| {
        let words: Vec<&str> = step.split(' ').collect();
        words.get(1).is_some_and(|call| call.starts_with("re")) && words.get(3) == Some(&"0")
    })
}

/// Options for control data that a lease does not give.
const OTHER_CONTROL: [&str; 12] = [
    "SO_RCVMARK",
    "SO_RCVPRIORITY",
    "IP_CHECKSUM",
    "IPV6_2292",
    "ORIGDSTADDR",
    "HOPOPTS",
    "DSTOPTS",
    "RTHDR",
    "FRAGSIZE",
    "FLOWINFO",
    "IP_RECVOPTS",
    "IP_RETOPTS",
];

/// Whether IP_PKTINFO, of which there may be a part only, names no interface.
fn is_without_interface(answer: &str) -> bool {
    let data = answer.split("0/8/").nth(1).and_then(|data| data.split_once(':'));
    data.is_some_and(|(_, data)| data.starts_with("00000000"))
}

/// All of them.
const KNOWN: &[Known] = &[
    Known {
        name: "manual: the connection to the owner has a number",
        matches: |found| found.is_of(&[":fd", "descriptors:open"]),
        then: Then::GoOn,
    },
    Known {
        name: "manual: the length of an address that cannot be written",
        matches: |found| found.is_of(&[":namelen"]) && found.difference.plain.contains("errno=EFAULT"),
        then: Then::End,
    },
    Known {
        name: "manual: control data that are asked for while datagrams wait",
        matches: |found| {
            found.is_of(&[":clen", ":cmsgs", ":mflags"])
                && OTHER_CONTROL.iter().any(|option| found.has(option))
        },
        then: Then::GoOn,
    },
    Known {
        name: "manual: the interface of a datagram that came before IP_PKTINFO was asked for",
        matches: |found| found.is_of(&[":cmsgs"]) && is_without_interface(&found.difference.plain),
        then: Then::GoOn,
    },
    Known {
        name: "manual: SIOCGSTAMP of what came before it was asked for",
        matches: |found| found.last().contains("SIOCGSTAMP"),
        then: Then::GoOn,
    },
    Known {
        name: "manual: readiness of a socket that does not block, by a datagram with a wrong checksum",
        matches: |found| {
            // The socket may refuse what came behind it, or what came before it was received since.
            let is_bad = |step: &&String| step.contains("udpsum=bad");
            let port =
                |step: &str| step.split(' ').find(|word| word.starts_with("dport=")).map(str::to_owned);
            let frames = || found.steps.iter().rev().filter(|step| step.starts_with("frame"));
            let is_last = frames().find(is_bad).is_some_and(|bad| {
                frames().find(|frame| port(frame) == port(bad)).is_some_and(|last| is_bad(&last))
            });
            let is_refused = found.steps.iter().rev().take(6).any(|step| is_bad(&step));
            (is_refused || is_last) && found.is_wait() && found.is_of(&[":ret"]) && found.has("SOCK_NONBLOCK")
        },
        then: Then::End,
    },
    Known {
        name: "manual: a receive buffer that is made smaller while datagrams wait",
        matches: |found| found.is_of(&[":ret", ":len"]) && found.has("SO_RCVBUF "),
        then: Then::End,
    },
    Known {
        name: "manual: an error that waits comes after what is in the ring",
        matches: |found| {
            let error = found.difference.plain.split(' ').find_map(|word| word.strip_prefix("errno="));
            error.is_some_and(|error| !["-", "EAGAIN", "EFAULT", "EBADF"].contains(&error))
                && (found.has("frame icmp") || found.has(" send"))
        },
        then: Then::End,
    },
    Known {
        name: "manual: poll or select for a socket that another thread closes",
        matches: |found| {
            let ends = ["revents=20", "errno=EBADF"].iter().any(|end| found.difference.leased.contains(end));
            ends && found.last().starts_with("join")
                && found.steps.iter().rev().take(8).any(|step| step.contains(" close "))
        },
        then: Then::End,
    },
    Known {
        name: "manual: a child that was made by clone or _Fork",
        matches: |found| found.is_of(&[":ret", ":waits"]) && (found.has(" _fork a") || found.has(" clone a")),
        then: Then::End,
    },
    Known {
        name: "manual: an edge of a socket that stays writable, for a datagram that was received since",
        matches: |found| {
            found.is_wait()
                && found.is_of(&[":ret", ":events"])
                && found.difference.plain.contains(":4,")
                && ["EPOLLET", "EPOLLOUT"].iter().all(|flag| found.has(flag))
        },
        then: Then::End,
    },
    Known {
        name: "twin: which of several sockets that are ready, if there is room for fewer",
        matches: |found| found.is_of(&[":events"]) && found.is_full(),
        then: Then::End,
    },
    Known {
        name: "manual: select for a socket that another thread closes",
        matches: |found| {
            let closed = found.steps.iter().rev().take(8).any(|step| step.contains(" close "));
            let selects = found
                .steps
                .iter()
                .rev()
                .take(8)
                .any(|step| step.contains("& select ") || step.contains("& pselect "));
            found.last().starts_with("join") && closed && selects
        },
        then: Then::End,
    },
    Known {
        name: "manual: what is handed over arrives as if it came now, also at a set that is told of edges",
        matches: |found| {
            let is_told_once_more =
                ["waits", "ret=0 "].iter().any(|nothing| found.difference.plain.starts_with(nothing));
            found.is_wait()
                && is_told_once_more
                && found.has("EPOLLET")
                && (hands_over(found.steps)
                    || ["SO_BINDTODEVICE", " connect ", "SO_RCVBUF ", " filter "]
                        .iter()
                        .any(|way| found.has(way)))
        },
        then: Then::End,
    },
    Known {
        name: "twin: a call without room has received a datagram that was handed over, or another one",
        matches: |found| {
            !found.is_wait()
                && (hands_over(found.steps) || comes_by_two(found.steps))
                && receives_unseen(found.steps)
        },
        then: Then::End,
    },
    Known {
        name: "manual: SO_RXQ_OVFL counts what the kernel has dropped",
        matches: |found| {
            found.is_of(&[":clen", ":cmsgs", ":mflags"]) && found.has("SO_RXQ_OVFL") && found.has("sum=bad")
        },
        then: Then::GoOn,
    },
    Known {
        name: "twin: a signal that ends the process may do so before the call that sends it returns",
        matches: |found| found.difference.kind == "signal:ended",
        then: Then::End,
    },
    Known {
        name: "manual: what an owner hands over of its own accord comes some ms later",
        matches: |found| found.is_of(&[":ret", ":waits"]) && found.has(" exec"),
        then: Then::End,
    },
];
