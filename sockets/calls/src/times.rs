//! Time-outs as the C library has them.

use std::time::Duration;

use libc::timespec;

/// `None` is for ever. An error if the kernel would refuse it.
pub(crate) fn duration(timeout: Option<&timespec>) -> Result<Option<Duration>, ()> {
    let Some(timeout) = timeout else { return Ok(None) };
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| ())?;
    let nanos = u32::try_from(timeout.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(())?;
    Ok(Some(Duration::new(seconds, nanos)))
}

/// The other way round.
pub(crate) fn as_timespec(timeout: Option<Duration>) -> Option<libc::timespec> {
    timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    })
}

pub(crate) const fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}
