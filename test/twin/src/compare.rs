//! Compares two answers: all of them, except for measured values, which only have a bound.

use twinpath_idle::SPIN_MAX;
use twinpath_worker::idle::Mode;

/// Something that a program would see.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step.
    pub step: usize,
    /// The call, and what of its answer.
    pub kind: String,
    /// What the plain side says.
    pub plain: String,
    /// What the leased side says.
    pub leased: String,
}

impl Difference {
    /// Whether it is about a measured value.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        [":time", ":cpu", ":wake-ups"].iter().any(|end| self.kind.ends_with(end))
    }
}

/// What a call may take on the leased side beyond twice what it takes on the plain one: on a machine that others use too.
const LATE_US: u64 = 60_000;
/// A first lease is waited for, where a rule says so.
const LEND_US: u64 = 3_000_000;
const CPU_US: u64 = 3_000;
/// From here on the kernel chooses ports.
const RANDOM_PORTS: u16 = 32_768;
const SLEEPS: u64 = 6;

/// How long a call that waits for so long may spin, us.
fn spin_us(mode: Mode, wall_us: u64) -> u64 {
    match mode {
        Mode::Poll => wall_us,
        Mode::Adaptive => wall_us.min(SPIN_MAX.as_micros() as u64),
        Mode::Interrupt => 0,
    }
}

fn measured(answer: &str, name: &str) -> Option<u64> {
    answer.split(' ').find_map(|word| word.strip_prefix(name)).and_then(|value| value.parse().ok())
}

/// Whether the call may be the one that a socket's lease is given in.
#[must_use]
pub fn may_lend(call: &str) -> bool {
    matches!(call, "bind" | "connect" | "sendto" | "fork" | "_fork" | "clone" | "exec")
}

/// A name of a socket without its port, if the kernel has chosen that.
fn without_random_port(word: &str) -> String {
    let port = word.strip_prefix("name=").and_then(|name| name.get(4..8));
    let port = port.filter(|port| u16::from_str_radix(port, 16).is_ok_and(|port| port >= RANDOM_PORTS));
    port.map_or_else(|| word.to_owned(), |port| word.replacen(port, "some", 1))
}

/// The differences between two answers.
#[must_use]
pub fn differences(step: usize, words: &[&str], plain: &str, leased: &str, mode: Mode) -> Vec<Difference> {
    let call = if words[0].starts_with("join") { words[0] } else { words[1] };
    let found = |what: &str| Difference {
        step,
        kind: format!("{call}:{what}"),
        plain: plain.to_owned(),
        leased: leased.to_owned(),
    };
    let values = |answer: &str| -> Vec<String> {
        let words = answer.split(' ').filter(|word| !word.starts_with('~'));
        words.map(|word| if call == "names" { without_random_port(word) } else { word.to_owned() }).collect()
    };
    let (mut ours, mut theirs) = (values(plain), values(leased));
    // The kernel may leave bytes behind a datagram, of one that it has refused. The other side has no reason to.
    if ours.iter().any(|word| word.starts_with("beyond=")) {
        for values in [&mut ours, &mut theirs] {
            values.retain(|word| !word.starts_with("beyond="));
        }
    }
    let mut differences = Vec::new();
    for at in 0..ours.len().max(theirs.len()) {
        let (one, other) = (ours.get(at), theirs.get(at));
        if one != other {
            let name = one.or(other).and_then(|word| word.split('=').next()).unwrap_or("");
            differences.push(found(name));
        }
    }
    if !differences.is_empty() || plain == "waits" || plain == "ended" {
        return differences;
    }
    let pair = |name: &str| Some((measured(plain, name)?, measured(leased, name)?));
    if let Some((before, after)) = pair("~wall=")
        && after > 2 * before + LATE_US + if may_lend(call) { LEND_US } else { 0 }
    {
        differences.push(found("time"));
    }
    if let (Some((before, after)), Some((_, wall))) = (pair("~cpu="), pair("~wall="))
        && after > 2 * before + CPU_US + spin_us(mode, wall) + if may_lend(call) { LEND_US } else { 0 }
    {
        differences.push(found("cpu"));
    }
    if let Some((before, after)) = pair("~sleeps=")
        && after > 2 * before + SLEEPS
        && !may_lend(call)
    {
        differences.push(found("wake-ups"));
    }
    differences
}
