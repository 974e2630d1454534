//! Settings of the system under test, as `sysctl` and `ip` name them, and what they mean to the engine.

use std::collections::BTreeMap;

use twinpath_tcp::{Config, CongestionKind, Ecn, IcmpError, Segment};
use twinpath_time::Duration;
use twinpath_wire::tcp::Flags;

use crate::packet::Quoted;
use crate::profile::Profile;

/// The settings.
#[derive(Debug)]
pub(crate) struct Knobs {
    profile: Profile,
    values: BTreeMap<String, String>,
    /// What a packet may have, bytes: the interface's, and the route's if it says so.
    pub(crate) mtu: u16,
    route_mtu: Option<u16>,
    initial_window: u32,
}

const LINUX: &[(&str, &str)] =
    &[("net.ipv4.tcp_rmem", "4096 131072 6291456"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];

const FREEBSD: &[(&str, &str)] = &[
    ("kern.ipc.maxsockbuf", "2097152"),
    ("net.inet.tcp.recvspace", "65536"),
    ("net.inet.tcp.sendspace", "32768"),
    ("net.inet.tcp.keepidle", "7200000"),
    ("net.inet.tcp.keepinit", "75000"),
    ("net.inet.tcp.keepintvl", "75000"),
    ("net.inet.tcp.keepcnt", "8"),
];

impl Knobs {
    pub(crate) fn new(profile: Profile) -> Self {
        let defaults = match profile {
            Profile::Linux => LINUX,
            Profile::FreeBsd => FREEBSD,
        };
        Self {
            profile,
            values: defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            mtu: 1500,
            route_mtu: None,
            initial_window: 10,
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The setting as a number, decimal or hexadecimal.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        let text = self.get(name)?;
        match text.strip_prefix("0x") {
            Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16).ok(),
            None => text.parse().ok(),
        }
    }

    fn is_on(&self, name: &str, default: bool) -> bool {
        self.number(name).map_or(default, |value| value != 0)
    }

    fn small<T: TryFrom<i64>>(&self, name: &str, default: T) -> T {
        self.number(name).and_then(|value| T::try_from(value).ok()).unwrap_or(default)
    }

    fn milliseconds(&self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.small(name, default))
    }

    /// The `index`th number of a setting that has three: least, default and most.
    fn of_three(&self, name: &str, index: usize) -> Option<u32> {
        self.get(name)?.split_whitespace().nth(index)?.parse().ok()
    }

    /// What `ip route` says of the way to the peer.
    pub(crate) fn route(&mut self, words: &[String]) {
        let after = |word: &str| {
            let at = words.iter().position(|it| it == word)?;
            words[at + 1..].iter().find_map(|it| it.parse::<u32>().ok())
        };
        if let Some(mtu) = after("mtu") {
            self.route_mtu = u16::try_from(mtu).ok();
        }
        if let Some(window) = after("initcwnd") {
            self.initial_window = window;
        }
    }

    /// Whether the host drops a segment before TCP sees it (FreeBSD's `drop_synfin`).
    pub(crate) fn drops(&self, segment: &Segment<'_>) -> bool {
        let both = Flags::SYN | Flags::FIN;
        segment.flags.0 & both == both && self.is_on("net.inet.tcp.drop_synfin", false)
    }

    /// What an ICMP error means to a connection; `None`: nothing. A hard one says that nobody takes the segment, or may
    /// (RFC 1122 section 4.2.3.9, RFC 4443 section 3.1).
    pub(crate) fn icmp(&self, quoted: &Quoted) -> Option<IcmpError> {
        let Quoted { is_ipv4, kind, code, mtu, .. } = *quoted;
        let too_big = || Some(IcmpError::TooBig(u16::try_from(mtu).unwrap_or(u16::MAX)));
        let error = match (is_ipv4, kind, code) {
            (true, 3, 4) | (false, 2, _) => return too_big(),
            (true, 3, 2 | 3 | 9 | 10 | 13) | (false, 1, 1 | 4) | (false, 4, 1) => IcmpError::Hard,
            // FreeBSD takes a lifetime that has run out for one, too (`tcp_ctlinput_viaudp` and its like).
            (true, 11, 0) | (false, 3, 0) if self.profile == Profile::FreeBsd => IcmpError::Hard,
            (true, 3 | 11 | 12, _) | (false, 1 | 3 | 4, _) => IcmpError::Soft,
            _ => return None,
        };
        let ends = self.profile == Profile::Linux || self.is_on("net.inet.tcp.icmp_may_rst", true);
        Some(if ends { error } else { IcmpError::Soft })
    }

    /// Bytes of a socket's receive and send buffers, until it sets them.
    pub(crate) fn buffers(&self) -> (u32, u32) {
        match self.profile {
            Profile::Linux => (
                self.of_three("net.ipv4.tcp_rmem", 1).unwrap_or(131_072),
                self.of_three("net.ipv4.tcp_wmem", 1).unwrap_or(16_384),
            ),
            Profile::FreeBsd => {
                (self.small("net.inet.tcp.recvspace", 65_536), self.small("net.inet.tcp.sendspace", 32_768))
            }
        }
    }

    pub(crate) fn unsent_low(&self) -> u32 {
        self.small("net.ipv4.tcp_notsent_lowat", u32::MAX)
    }

    pub(crate) fn path_mtu(&self) -> u16 {
        self.route_mtu.unwrap_or(self.mtu)
    }

    /// What the engine is configured with.
    pub(crate) fn config(&self) -> Config {
        let common = Config {
            mtu: self.path_mtu(),
            initial_window: self.initial_window,
            // A script counts on each challenge: one per half second and connection at most, but all of them.
            challenges_per_second: 1_000_000,
            ..Config::default()
        };
        match self.profile {
            Profile::Linux => self.linux(common),
            Profile::FreeBsd => self.freebsd(common),
        }
    }

    fn linux(&self, common: Config) -> Config {
        let receive_max = self.of_three("net.ipv4.tcp_rmem", 2).unwrap_or(common.receive_max);
        Config {
            receive_initial: 65_535,
            receive_max,
            send_max: self.of_three("net.ipv4.tcp_wmem", 2).unwrap_or(common.send_max),
            // Linux's `tcp_select_initial_window`.
            scale: Some((receive_max.ilog2() as u8).saturating_sub(15).min(14)),
            sack: self.is_on("net.ipv4.tcp_sack", true),
            dsack: self.is_on("net.ipv4.tcp_dsack", true),
            timestamps: self.is_on("net.ipv4.tcp_timestamps", true),
            window_scale: self.is_on("net.ipv4.tcp_window_scaling", true),
            // Linux's `tcp_ecn_fallback`: only the first SYN asks.
            ecn_syns: 1,
            ecn: match self.number("net.ipv4.tcp_ecn") {
                Some(0) => Ecn::Off,
                // 4 asks as 1 does, and would also take accurate ECN of the peer.
                Some(1 | 4) => Ecn::Request,
                _ => Ecn::Accept,
            },
            congestion: match self.get("net.ipv4.tcp_congestion_control") {
                Some("reno") => CongestionKind::NewReno,
                _ => CongestionKind::Cubic,
            },
            reordering: self.small("net.ipv4.tcp_reordering", 3),
            rack: self.is_on("net.ipv4.tcp_recovery", true),
            tail_loss_probe: self.small("net.ipv4.tcp_early_retrans", 3_u8) >= 3,
            frto: self.is_on("net.ipv4.tcp_frto", true),
            slow_start_after_idle: self.is_on("net.ipv4.tcp_slow_start_after_idle", true),
            segments_at_once: self.small("net.ipv4.tcp_min_tso_segs", 2),
            syn_retries: self.small("net.ipv4.tcp_syn_retries", 6),
            syn_ack_retries: self.small("net.ipv4.tcp_synack_retries", 5),
            retries: self.small("net.ipv4.tcp_retries2", 15),
            ..common
        }
    }

    fn freebsd(&self, common: Config) -> Config {
        let (receive, send) = self.buffers();
        let most: u64 = self.small("kern.ipc.maxsockbuf", 2_097_152);
        let is_on = self.is_on("net.inet.tcp.rfc1323", true);
        Config {
            receive_initial: receive,
            receive_max: receive,
            send_max: send,
            // FreeBSD's `syncache_add` and `tcp_usr_connect`.
            scale: Some((0..14).find(|shift| 65_535_u64 << shift >= most).unwrap_or(14)),
            sack: self.is_on("net.inet.tcp.sack.enable", true),
            timestamps: is_on,
            window_scale: is_on,
            challenge_resets: !self.is_on("net.inet.tcp.insecure_rst", false),
            challenge_syns: !self.is_on("net.inet.tcp.insecure_syn", false),
            ecn_syns: self.small("net.inet.tcp.ecn.maxretries", 1_u8).saturating_add(1),
            ecn: match self.number("net.inet.tcp.ecn.enable") {
                Some(0) => Ecn::Off,
                // 4 asks as 1 does, and would also take accurate ECN of the peer.
                Some(1 | 4) => Ecn::Request,
                _ => Ecn::Accept,
            },
            // The scripts have each segment as a packet of its own.
            super_segment: 0,
            delayed_ack: self.milliseconds("net.inet.tcp.delacktime", 40),
            // FreeBSD's TCP_MAXRXTSHIFT and TCPTV_REXMTMAX; until then `keepinit` ends it.
            syn_retries: 11,
            rto_max: Duration::from_secs(64),
            ..common
        }
    }
}
