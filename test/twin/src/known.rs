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

    fn actor(&self) -> &str {
        let mut words = self.last().split(' ');
        match words.next() {
            Some("join") => words.next().unwrap_or("-"),
            first => first.map_or("-", |first| first.trim_end_matches('&')),
        }
    }

    fn has(&self, text: &str) -> bool {
        self.steps.iter().any(|step| step.contains(text))
    }

    fn is_of(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.difference.kind.ends_with(kind))
    }

    /// The frames since some calls ago.
    fn last_frames(&self) -> impl Iterator<Item = &str> {
        let recent = self.steps.len().saturating_sub(14);
        self.steps[recent..].iter().map(String::as_str).filter(|step| step.starts_with("frame udp"))
    }

    fn last_frame_has(&self, texts: &[&str]) -> bool {
        self.last_frames().any(|frame| texts.iter().any(|text| frame.contains(text)))
    }

    fn is_wait(&self) -> bool {
        ["poll", "select", "epoll_wait", "epoll_pwait", "epoll_pwait2", "join"]
            .iter()
            .any(|call| self.difference.kind.split(':').next().is_some_and(|kind| kind.ends_with(call)))
    }

    /// Whether all values of `mflags` are alike but for these.
    fn flags_differ_by(&self, flags: u64) -> bool {
        let values = |answer: &str| -> Vec<u64> {
            let flags = answer.split(' ').filter_map(|word| word.strip_prefix("mflags="));
            flags.filter_map(|value| u64::from_str_radix(value, 16).ok()).collect()
        };
        let (ours, theirs) = (values(&self.difference.plain), values(&self.difference.leased));
        ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(one, other)| (one ^ other) & !flags == 0)
    }

    fn is_cut(&self) -> bool {
        let plain = self.difference.plain.split(' ').filter_map(|word| word.strip_prefix("mflags="));
        plain.filter_map(|value| u64::from_str_radix(value, 16).ok()).any(|flags| flags & 8 != 0)
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

/// Sources that the kernel judges by its routes and addresses.
const ODD_SOURCES: [&str; 16] = [
    "src=0.",
    "src=127.",
    "src=240.",
    "src=255.",
    "src=224.",
    "src=10.9.0.1 ",
    "src=10.9.0.11",
    "src=10.8.",
    "src=192.168.",
    "src=10.9.0.25",
    "src=169.254",
    "src=::",
    "src=ff0",
    "src=fd09::1",
    "src=fd08",
    "src=fe80::ff:fe00:1 ",
];

/// Options that end a lease. Who has given up his rights may not be able to say so.
const ENDING: [&str; 5] = ["UDP_GRO", "SO_TIMESTAMP", "SO_RXQ_OVFL", " filter ", "SO_PEEK_OFF"];

/// All of them.
const KNOWN: &[Known] = &[
    Known {
        name: "open: point 15, numbers of descriptors",
        matches: |found| found.is_of(&[":fd", "descriptors:open"]),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 8, FIONREAD",
        matches: |found| found.is_of(&["ioctl:value"]) && found.last().contains("FIONREAD"),
        then: Then::GoOn,
    },
    Known {
        name: "open: MSG_CMSG_CLOEXEC is not in msg_flags",
        matches: |found| found.is_of(&[":mflags"]) && found.flags_differ_by(0x4000_0000),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 14, recvmmsg's rest of time",
        matches: |found| found.is_of(&[":rest"]) && found.difference.plain.contains("[0]"),
        then: Then::GoOn,
    },
    Known {
        name: "open: MSG_OOB finds nothing in the ring",
        matches: |found| found.last().contains("MSG_OOB"),
        then: Then::End,
    },
    Known {
        name: "open: point 7, a child by _Fork or clone dies",
        matches: |found| {
            let starts = [format!("_fork {}", found.actor()), format!("clone {}", found.actor())];
            ["died", "waits"].contains(&found.difference.leased.as_str())
                && found.steps.iter().any(|step| starts.iter().any(|start| step.ends_with(start)))
        },
        then: Then::End,
    },
    Known {
        name: "open: point 6, shutdown",
        matches: |found| !found.is_of(&[":time"]) && found.has(" shutdown "),
        then: Then::End,
    },
    Known {
        name: "open: point 14, SO_PEEK_OFF in use",
        matches: |found| found.has("SO_PEEK_OFF"),
        then: Then::End,
    },
    Known {
        name: "open: point 14, pointers that lead nowhere",
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
        name: "open: point 9, control data that do not fit",
        matches: |found| found.is_of(&[":clen", ":cmsgs", ":mflags"]) && found.is_cut(),
        then: Then::GoOn,
    },
    Known {
        name: "open: point 9, the interface of a datagram that came before IP_PKTINFO was asked for",
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
        name: "open: readv of no bytes takes a datagram",
        matches: |found| {
            found.has("readv ")
                && found.steps.iter().any(|step| step.contains("readv ") && step.ends_with(" 0"))
        },
        then: Then::End,
    },
    Known {
        name: "open: points 2 and 5, readiness of what is refused then",
        matches: |found| {
            found.is_wait()
                && (found.last_frame_has(&["udpsum=", "ipsum=bad", "udplen", "iplen"])
                    || found.last_frame_has(&ODD_SOURCES))
        },
        then: Then::End,
    },
    Known {
        name: "open: point 5, sources",
        matches: |found| found.is_of(&[":ret"]) && found.last_frame_has(&ODD_SOURCES),
        then: Then::End,
    },
    Known {
        name: "open: point 4, a lease that ends while the descriptor lives",
        matches: |found| {
            found.reasons.iter().any(|why| why.contains("from now on"))
                || found.has(" setuid") && ENDING.iter().any(|option| found.has(option))
        },
        then: Then::End,
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
        name: "open: an error that waits comes after a datagram of the ring",
        matches: |found| {
            let error = found.difference.plain.split(' ').find_map(|word| word.strip_prefix("errno="));
            error.is_some_and(|error| !["-", "EAGAIN", "EFAULT", "EBADF"].contains(&error))
                && found.has("frame icmp")
        },
        then: Then::End,
    },
    Known {
        name: "open: POLLIN is told of beside an error that waits",
        matches: |found| {
            found.is_of(&[":revents"])
                && found.has("frame icmp") | found.has(" send")
                && found.difference.plain.contains("revents=8,")
                && found.difference.leased.contains("revents=9,")
        },
        then: Then::GoOn,
    },
    Known {
        name: "open: point 14, EPOLLOUT is not told of with EPOLLIN",
        matches: |found| found.is_of(&[":events"]) && found.has("EPOLLOUT"),
        then: Then::GoOn,
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
        name: "open: point 14, lengths at their limits",
        matches: |found| found.last().contains(" -1 ") || found.last().ends_with(" -1"),
        then: Then::End,
    },
    Known { name: "open: points 11 and 13, exec", matches: |found| found.has(" exec"), then: Then::End },
    Known {
        name: "open: point 13, a descriptor that was passed",
        matches: |found| found.has(" take "),
        then: Then::End,
    },
    Known {
        name: "open: point 13, a child",
        matches: |found| found.is_of(&[":ret", ":waits"]) && (found.has("fork a") || found.has(" clone a")),
        then: Then::End,
    },
];
