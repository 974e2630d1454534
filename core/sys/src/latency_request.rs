//! A CPU latency request: while one is held, the kernel chooses only idle states that it can leave within the given
//! time.
//!
//! It holds for all CPUs of the machine and ends when its file descriptor is closed, so it dies with the process
//! (Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs").

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, write};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A request in force; dropping it withdraws it.
#[derive(Debug)]
pub struct LatencyRequest {
    _device: OwnedFd,
    max_latency_us: i32,
}

/// Why no request could be made.
#[derive(Debug, thiserror::Error)]
pub enum LatencyRequestError {
    /// The device is missing or may not be opened.
    #[error("cannot open {DEVICE}: {0}; a CPU latency request needs root or write access to that device")]
    Open(Errno),
    /// The kernel refused the value.
    #[error("{DEVICE} refused a latency of {max_latency_us} us: {source}")]
    Write {
        /// The value written.
        max_latency_us: i32,
        /// From `write(2)`.
        source: Errno,
    },
}

impl LatencyRequest {
    /// Requests that no CPU takes longer than `max_latency_us` to leave idle; 0 keeps them in the shallowest state.
    ///
    /// Whether this shortens a wake-up depends on the machine: without a cpuidle driver it has no effect.
    ///
    /// # Errors
    /// [`LatencyRequestError`] when the device cannot be opened or refuses the value.
    pub fn open(max_latency_us: i32) -> Result<Self, LatencyRequestError> {
        let device = open(DEVICE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(LatencyRequestError::Open)?;
        // Four bytes are the binary form (kernel/power/qos.c, cpu_latency_qos_write).
        write(&device, &max_latency_us.to_ne_bytes())
            .map_err(|source| LatencyRequestError::Write { max_latency_us, source })?;
        Ok(Self { _device: device, max_latency_us })
    }

    /// The latency requested, us.
    #[must_use]
    pub fn max_latency_us(&self) -> i32 {
        self.max_latency_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest request in force on the machine, from the device.
    fn in_force_us() -> i32 {
        let device = open(DEVICE, OFlags::RDONLY, Mode::empty()).unwrap();
        let mut value = [0; 4];
        assert_eq!(rustix::io::read(&device, &mut value).unwrap(), 4);
        i32::from_ne_bytes(value)
    }

    #[test]
    fn a_request_is_in_force_while_held() {
        match LatencyRequest::open(0) {
            Ok(request) => {
                assert_eq!((request.max_latency_us(), in_force_us()), (0, 0));
            }
            Err(error) => twinpath_test_rig::skip(error),
        }
    }
}
