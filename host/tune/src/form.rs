//! Converts values between the kernel's formats and the one in which they are compared and shown.

use twinpath_sys::affinity::parse_cpu_list;

use super::napi;

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A number that is not negative.
    Number,
    /// One word, such as a governor's name.
    Word,
    /// Names, each with a number or a word: `adaptive-rx off, rx-usecs 3`.
    Named,
    /// The values of a device and its NAPI instances: `2, by instance 0,2`.
    Napi,
    /// All choices, with the present one in brackets: `always [madvise] never`.
    Choice,
    /// CPUs as `0,2-3`.
    CpuList,
    /// CPUs as bits, 32 per group, highest group first: `00000000,00000005`.
    CpuMask,
}

/// Longest value, bytes: a NAPI parameter of a thousand instances.
const VALUE_LEN_MAX: usize = 16 * 1024;

/// The text for an empty set of CPUs.
const NONE: &str = "none";

impl Form {
    /// Converts a value from the kernel's format to ours. A value that cannot be parsed is not changed.
    pub(crate) fn canonical(self, raw: &str) -> String {
        let raw = raw.trim();
        let canonical = match self {
            Self::Number | Self::Word | Self::Named | Self::Napi => None,
            Self::Choice => raw
                .split_whitespace()
                .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
                .map(str::to_owned),
            Self::CpuList if raw.is_empty() => Some(NONE.to_owned()),
            Self::CpuList => parse_cpu_list(raw).ok().map(|cpus| cpu_list(&cpus)),
            Self::CpuMask => mask(raw).map(|cpus| cpu_list(&cpus)),
        };
        canonical.unwrap_or_else(|| raw.to_owned())
    }

    /// Whether a text is a value in our format. No other text is ever written, because values are read back from a
    /// file.
    pub(crate) fn is_value(self, canonical: &str) -> bool {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-/".contains(&byte))
        };
        canonical.len() <= VALUE_LEN_MAX
            && !canonical.contains(char::is_control)
            && match self {
                Self::Number => number(canonical),
                Self::Word | Self::Choice => word(canonical),
                Self::Named => canonical
                    .split(", ")
                    .all(|part| part.split_once(' ').is_some_and(|(name, value)| word(name) && word(value))),
                Self::Napi => {
                    let (device, each) = canonical.split_once(napi::BY_INSTANCE).unwrap_or(("0", canonical));
                    number(device) && each.split(',').all(number)
                }
                Self::CpuList | Self::CpuMask => canonical == NONE || parse_cpu_list(canonical).is_ok(),
            }
    }

    /// Converts a value from our format to the kernel's.
    pub(crate) fn raw(self, canonical: &str) -> String {
        match self {
            Self::CpuMask if canonical == NONE => "0".to_owned(),
            Self::CpuMask => {
                parse_cpu_list(canonical).map_or_else(|_| canonical.to_owned(), |cpus| bits(&cpus))
            }
            _ => canonical.to_owned(),
        }
    }
}

/// CPUs in the kernel's notation: `0,2-3`; `none` for none.
#[must_use]
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    if ranges.is_empty() {
        return NONE.to_owned();
    }
    let range = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

fn mask(raw: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for (group, digits) in raw.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| group * 32 + bit));
    }
    Some(cpus)
}

fn bits(cpus: &[usize]) -> String {
    let mut groups = vec![0u32; cpus.iter().max().map_or(1, |cpu| cpu / 32 + 1)];
    for cpu in cpus {
        groups[cpu / 32] |= 1 << (cpu % 32);
    }
    groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_comes_back_as_it_went() {
        for (form, raw, canonical) in [
            (Form::Word, "performance\n", "performance"),
            (Form::Choice, "always [madvise] never", "madvise"),
            (Form::CpuList, "0,1,2,5", "0-2,5"),
            (Form::CpuList, "", "none"),
            (Form::CpuMask, "00000000,00000003", "0-1"),
            (Form::CpuMask, "1,80000001,00000000", "32,63-64"),
            (Form::CpuMask, "0", "none"),
            (Form::CpuMask, "what", "what"),
        ] {
            assert_eq!(form.canonical(raw), canonical, "{raw:?}");
            if form != Form::Choice {
                assert_eq!(form.canonical(&form.raw(canonical)), canonical, "{raw:?}");
            }
        }
        assert_eq!(Form::CpuMask.raw("1,33"), "00000002,00000002");
    }

    #[test]
    fn a_value_has_the_form_of_its_setting_and_is_one_line() {
        for (form, good, bad) in [
            (Form::Number, &["0", "20000"][..], &["", "-1", "1 2", "1\n2", "0x10", "a"][..]),
            (Form::Word, &["performance", "n/a"], &["", "a b", "a\nb", "a;b", "\u{1b}[2J"]),
            (Form::Choice, &["madvise"], &["[madvise]", "always never"]),
            (
                Form::Named,
                &["rx-usecs 3", "adaptive-rx off, rx-frames 1"],
                &["", "rx-usecs", "a b c", "a b\n"],
            ),
            (
                Form::Napi,
                &["2", "2,0", "2, by instance 2,0"],
                &["", "2,", "x, by instance 1", "2, by instance "],
            ),
            (Form::CpuList, &["none", "0,2-3"], &["0\n1", "0\n", "x", "../.."]),
            (Form::CpuMask, &["none", "0,2-3"], &["ffzz"]),
        ] {
            good.iter().for_each(|value| assert!(form.is_value(value), "{form:?} {value:?}"));
            bad.iter().for_each(|value| assert!(!form.is_value(value), "{form:?} {value:?}"));
        }
    }
}
