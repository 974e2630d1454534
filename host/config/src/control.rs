//! `[control]`: the command socket, the metrics, and the sandbox of an instance.

use std::path::PathBuf;

use super::key::{Change, section};
use super::{INSTANCES, Wrong};
use crate::values::{MetricsAddress, Sandbox};

/// Longest path of a UNIX socket: `sun_path` of linux/un.h without its terminator.
const SOCKET_PATH_MAX: usize = 107;

section! {
    /// `[control]`
    pub struct Control, ControlOverrides in "control" {
        /// The command socket of `twinpath show` and `twinpath set`
        socket: Option<PathBuf> = None =>
            values_are("a path of at most 107 bytes"), unset("SERVICE-IFACE-PID.sock in the run directory"),
            option("socket", "PATH", INSTANCES), example("\"/run/twinpath/echo.sock\"");

        /// After its start the instance gives up rights, files and system calls that it no longer needs: on or off
        sandbox: Option<Sandbox> = None =>
            unset("on; off in a library"), option("sandbox", "ON_OFF", INSTANCES), example("\"on\"");

        /// Metrics for Prometheus over HTTP at /metrics; without an address on loopback
        metrics: Option<MetricsAddress> = None =>
            values_are("`PORT`, `ADDRESS:PORT`, `[ADDRESS]:PORT`"), unset("none: no metrics"),
            option("metrics", "[ADDRESS:]PORT", INSTANCES), example("\"127.0.0.1:9464\""),
            change(Change::Reload);
    }
}

impl Control {
    /// Everything that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let length = self.socket.as_ref().map_or(1, |socket| socket.as_os_str().len());
        let fits = (1..=SOCKET_PATH_MAX).contains(&length);
        let sentence = || format!("a path of {length} bytes: a UNIX socket takes 1 to {SOCKET_PATH_MAX}");
        let socket = (!fits).then(|| ("control.socket", sentence()));
        socket.into_iter().chain(self.range_faults()).collect()
    }
}
