//! Differences that are known: each is a line of the manual, with its reason, or not mended yet. What matches none of them is a failure.

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

    fn is_wait(&self) -> bool {
        ["poll", "select", "epoll_wait", "epoll_pwait", "epoll_pwait2", "join"]
            .iter()
            .any(|call| self.difference.kind.split(':').next().is_some_and(|kind| kind.ends_with(call)))
    }
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

/// All of them.
const KNOWN: &[Known] = &[
    Known {
        name: "manual: the connection to the owner has a number",
        matches: |found| found.is_of(&[":fd", "descriptors:open"]),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 8, FIONREAD",
        matches: |found| found.is_of(&["ioctl:value"]) && found.last().contains("FIONREAD"),
        then: Then::GoOn,
    },
    Known {
        name: "manual: pointers that lead nowhere",
        matches: |found| {
            found.last().split(' ').skip(3).any(|word| ["null", "wild"].contains(&word)) && !found.is_wait()
        },
        then: Then::End,
    },
    Known {
        name: "open: point 9, control data that a lease does not know",
        matches: |found| {
            found.is_of(&[":clen", ":cmsgs", ":mflags"])
                && OTHER_CONTROL.iter().any(|option| found.has(option))
        },
        then: Then::GoOn,
    },
    Known {
        name: "manual: the interface of a datagram that came before IP_PKTINFO was asked for",
        matches: |found| found.is_of(&[":cmsgs"]) && found.difference.plain.contains("0/8/12:00000000"),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 9, an IPv6 socket that is asked for IP_PKTINFO while a call waits",
        matches: |found| {
            found.is_of(&["join:clen", "join:cmsgs", "join:mflags"])
                && found.has("AF_INET6")
                && found.steps.iter().rev().take(4).any(|step| step.contains("IP_PKTINFO 1"))
        },
        then: Then::GoOn,
    },
    Known {
        name: "open: point 14, handlers on small stacks",
        matches: |found| found.difference.leased.contains("ended") && found.has("handle_receiving"),
        then: Then::End,
    },
    Known {
        name: "open: point 14, SIOCGSTAMPNS",
        matches: |found| found.last().contains("SIOCGSTAMPNS"),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 14, SO_RCVBUF as the bound of what waits",
        matches: |found| found.is_of(&[":ret"]) && found.has("SO_RCVBUF "),
        then: Then::End,
    },
    Known {
        name: "manual: an error that waits comes after what is in the ring",
        matches: |found| {
            let error = found.difference.plain.split(' ').find_map(|word| word.strip_prefix("errno="));
            error.is_some_and(|error| !["-", "EAGAIN", "EFAULT", "EBADF"].contains(&error))
                && found.has("frame icmp")
        },
        then: Then::End,
    },
    Known {
        name: "open: point 11, EPOLLONESHOT, EPOLLEXCLUSIVE, sets in sets",
        matches: |found| {
            found.is_of(&[":ret", ":waits"])
                && (found.has("EPOLLONESHOT") || found.has("EPOLLEXCLUSIVE") || found.has(" EPOLLIN 99"))
        },
        then: Then::End,
    },
    Known {
        name: "open: point 3, close by another thread",
        matches: |found| {
            found.last().starts_with("join")
                && found.steps.iter().rev().take(6).any(|step| step.contains(" close "))
        },
        then: Then::End,
    },
    Known {
        name: "open: point 13, a child",
        matches: |found| found.is_of(&[":ret", ":waits"]) && (found.has("fork a") || found.has(" clone a")),
        then: Then::End,
    },
    Known {
        name: "manual: what an owner hands over of its own accord comes some ms later",
        matches: |found| found.is_of(&[":ret", ":waits"]) && found.has(" exec"),
        then: Then::End,
    },
];
