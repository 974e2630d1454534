//! The ways in which the kernel writes a value down, and the one in which it is compared and shown here.

use serde::{Deserialize, Serialize};
use twinpath_sys::affinity::parse_cpu_list;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As it stands.
    Word,
    /// All choices, the one in force in brackets: `always [madvise] never`.
    Choice,
    /// CPUs as `0,2-3`.
    CpuList,
    /// CPUs as bits, 32 per group, highest group first: `00000000,00000005`.
    CpuMask,
}

/// What stands for an empty set of CPUs.
const NONE: &str = "none";

impl Form {
    /// What is shown and compared, from what the kernel says. What it cannot read stays as it is.
    pub(crate) fn canonical(self, raw: &str) -> String {
        let raw = raw.trim();
        let canonical = match self {
            Self::Word => None,
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

    /// What the kernel takes, from what is shown.
    pub(crate) fn raw(self, canonical: &str) -> String {
        match self {
            Self::CpuMask if canonical == NONE => "0".to_owned(),
            Self::CpuMask => {
                parse_cpu_list(canonical).map_or_else(|_| canonical.to_owned(), |cpus| bits(&cpus))
            }
            Self::Word | Self::Choice | Self::CpuList => canonical.to_owned(),
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
}
