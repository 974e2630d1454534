//! Which CPUs a thread may run on.

use std::num::ParseIntError;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// The CPU does not exist, is offline, or lies outside this process's cpuset.
    #[error("cannot run on CPU {cpu}: {source}; this process may use CPUs {allowed:?}")]
    Pin {
        /// The CPU requested.
        cpu: usize,
        /// The CPUs that may be used.
        allowed: Vec<usize>,
        /// From `sched_setaffinity(2)`.
        source: rustix::io::Errno,
    },
    /// `sched_getaffinity(2)` failed, or `sched_setaffinity(2)` failed for CPUs that it had returned.
    #[error("cannot read or change which CPUs this process may use: {0}")]
    Read(rustix::io::Errno),
    /// A list of CPUs does not have the form `0,2-3`.
    #[error("\"{list}\" is not a list of CPUs such as 0,2-3")]
    Parse {
        /// The text given.
        list: String,
        /// The error of the number in it that cannot be parsed, if that is the reason.
        source: Option<ParseIntError>,
    },
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// [`AffinityError::Pin`] when the kernel refuses that CPU.
pub fn pin_current_thread(cpu: usize) -> Result<(), AffinityError> {
    let refused = |source| AffinityError::Pin { cpu, allowed: allowed_cpus().unwrap_or_default(), source };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(refused)
}

/// Removes these CPUs from the affinity mask of the calling thread, which threads that it creates later inherit. If
/// no CPU would be left, nothing changes.
///
/// # Errors
/// [`AffinityError::Read`] when a system call fails.
pub fn keep_current_thread_off(cpus: &[usize]) -> Result<(), AffinityError> {
    let others: Vec<_> = allowed_cpus()?.into_iter().filter(|cpu| !cpus.contains(cpu)).collect();
    if cpus.is_empty() || others.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    others.into_iter().for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(AffinityError::Read)
}

/// The CPUs the calling thread may run on, in ascending order.
///
/// # Errors
/// [`AffinityError::Read`] when the system call fails.
pub fn allowed_cpus() -> Result<Vec<usize>, AffinityError> {
    let set = sched_getaffinity(None).map_err(AffinityError::Read)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Upper bound of CPU numbers in a list, beyond any machine. With it, a mistyped number costs neither memory nor
/// time. A number that is merely too large for this machine is reported by the code that uses the CPU.
const NUMBERS: usize = 1 << 16;

/// Parses a list such as `0,2-3` (the kernel's own notation), in the order written.
///
/// # Errors
/// [`AffinityError::Parse`] if the text is not such a list, or names more CPUs than the kernel can have or one
/// beyond 65,535.
pub fn parse_cpu_list(list: &str) -> Result<Vec<usize>, AffinityError> {
    let wrong = |source| AffinityError::Parse { list: list.to_owned(), source };
    let number = |text: &str| text.trim().parse::<usize>().map_err(|error| wrong(Some(error)));
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last || last >= NUMBERS || cpus.len() + (last - first) >= CpuSet::MAX_CPU {
            return Err(wrong(None));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_and_an_error_lists_the_allowed_cpus() {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_current_thread(last).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
        let refused = pin_current_thread(100_000).unwrap_err().to_string();
        assert!(refused.contains("CPU 100000") && refused.contains(&format!("{allowed:?}")), "{refused}");
    }

    #[test]
    fn a_thread_keeps_off_cpus_unless_it_has_no_others() {
        let allowed = allowed_cpus().unwrap();
        std::thread::spawn(move || {
            keep_current_thread_off(&allowed).unwrap();
            assert_eq!(allowed_cpus().unwrap(), allowed);
            keep_current_thread_off(&[]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), allowed);
            let (first, others) = allowed.split_first().unwrap();
            keep_current_thread_off(&[*first]).unwrap();
            let left = if others.is_empty() { &allowed[..] } else { others };
            assert_eq!(allowed_cpus().unwrap(), left);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(parse_cpu_list("0,2-4,1").unwrap(), [0, 2, 3, 4, 1]);
        // Valid as a list, though there is no such CPU here: the code that is to use the CPU reports that.
        assert_eq!(parse_cpu_list("4000").unwrap(), [4000]);
        for wrong in ["", "a", "1-", "3-1", "1,,2", "0-99999999999", "0-4294967295", "-1"] {
            assert!(parse_cpu_list(wrong).is_err(), "{wrong:?}");
        }
    }
}
