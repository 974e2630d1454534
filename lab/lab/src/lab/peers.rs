//! The command lines of all child processes, which anyone could type.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::process::words;
#[cfg(feature = "all")]
use super::session::Session;
use super::topology::{CLIENT, SERVER};

/// The port of twinpath.
pub(crate) const FAST_PORT: u16 = 7000;
/// The port of the plain UDP servers.
pub(crate) const PLAIN_PORT: u16 = 7001;
/// The port of the plain TCP echo server.
pub(crate) const TCP_PORT: u16 = 7002;
/// The port of the bulk TCP server.
pub(crate) const BULK_PORT: u16 = 7003;

/// The port of a second plain UDP server, for scale.
pub(crate) const SCALE_PORT: u16 = 7004;

/// Enough to learn neighbours, fill caches and, for the adaptive mode, the gaps between arrivals.
const WARMUP_S: f64 = 0.05;

/// How long instances hold a latency request after the last packet. This is shorter than the default of a second, so that
/// a row that needs an idle instance need not wait as long; traffic back to back has no gap that would end it.
pub(crate) const LINGER_MS: u64 = 100;

/// An address on the server's side.
pub(crate) fn server(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(SERVER.ipv4), port)
}

/// The parameters of a client.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) target: SocketAddr,
    pub(crate) tcp: bool,
    /// `kernel`, or a fast path on the client's interface.
    pub(crate) path: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) inflight: u32,
    pub(crate) rate: Option<f64>,
    pub(crate) count: Option<u64>,
    pub(crate) duration: Duration,
}

impl Bench {
    /// Round trips of 64 B over UDP, one in flight.
    pub(crate) fn round_trips(port: u16, path: &'static str, mode: &'static str, duration: Duration) -> Self {
        let target = server(port);
        Self { target, tcp: false, path, mode, inflight: 1, rate: None, count: None, duration }
    }

    /// As many requests as the server answers, from the fastest client available here, the same for every server.
    pub(crate) fn flood(port: u16, duration: Duration) -> Self {
        Self { inflight: 64, ..Self::round_trips(port, "xdp", "poll", duration) }
    }

    pub(crate) fn args(&self) -> Vec<String> {
        let mut args = words("bench echo");
        args.push(self.target.to_string());
        args.push(if self.tcp { "--tcp" } else { "--udp" }.to_owned());
        if self.path != "kernel" {
            args.extend(["--on".to_owned(), CLIENT.interface.to_owned()]);
        }
        args.extend(words(&format!(
            "--path {} --mode {} --size 64 --inflight {}",
            self.path, self.mode, self.inflight
        )));
        if self.path == "kernel" && self.inflight > 1 {
            args.push("--batch".to_owned());
        }
        if let Some(rate) = self.rate {
            args.extend(words(&format!("--rate {rate:.0}")));
        }
        match self.count {
            Some(count) => args.extend(words(&format!("--count {count} --warmup 0"))),
            None => {
                args.extend(words(&format!(
                    "--duration {:.3} --warmup {WARMUP_S}",
                    self.duration.as_secs_f64()
                )));
            }
        }
        args.push("--json".to_owned());
        args
    }
}

/// `twinpath serve` of that, with these options, on the server's interface, with one worker on the server's CPU.
#[cfg(feature = "all")]
pub(crate) fn serve_by_one(session: &Session, what: &str) -> Vec<String> {
    let (on, cpu, socket) = (SERVER.interface, session.cpus[1], session.socket("serve"));
    words(&format!("serve {what} --on {on} --workers 1 --cpu {cpu} --socket {socket}"))
}

/// `twinpath serve echo` on the server's interface, all of it by workers. A lab sends at full speed from one source, so
/// the limit for that is off.
pub(crate) fn serve(path: &str, cpu: usize, socket: &Path) -> Vec<String> {
    serve_in(path, "adaptive", cpu, socket)
}

/// The same in another mode.
pub(crate) fn serve_in(path: &str, mode: &str, cpu: usize, socket: &Path) -> Vec<String> {
    serve_on(SERVER.interface, path, mode, cpu, socket)
}

/// The same on another interface.
pub(crate) fn serve_on(on: &str, path: &str, mode: &str, cpu: usize, socket: &Path) -> Vec<String> {
    let mut args = words(&format!(
        "serve echo --on {on} --udp {FAST_PORT} --path {path} --mode {mode} --workers 1 --cpu {cpu} --linger-ms {LINGER_MS} \
         --reply-rate 0 --reflex off --socket"
    ));
    args.push(socket.display().to_string());
    args
}

/// A plain UDP echo server.
pub(crate) fn udp_echo(method: &str, mode: &str) -> Vec<String> {
    udp_echo_on(PLAIN_PORT, method, mode)
}

/// The same on another port.
pub(crate) fn udp_echo_on(port: u16, method: &str, mode: &str) -> Vec<String> {
    words(&format!("plain udp-echo --listen {} --method {method} --mode {mode}", server(port)))
}

/// The plain TCP echo server.
pub(crate) fn tcp_echo() -> Vec<String> {
    words(&format!("plain tcp-echo --listen {} --mode interrupt", server(TCP_PORT)))
}

/// The plain receiver of bulk TCP.
pub(crate) fn tcp_sink() -> Vec<String> {
    words(&format!("plain tcp-sink --listen {}", server(BULK_PORT)))
}

/// The plain sender of bulk TCP.
pub(crate) fn tcp_bulk(duration: Duration) -> Vec<String> {
    words(&format!("plain tcp-bulk {} --duration {:.3}", server(BULK_PORT), duration.as_secs_f64()))
}

/// Two threads that wake each other and sleep in between.
pub(crate) fn eventfd_pingpong(cpus: [usize; 2], duration: Duration) -> Vec<String> {
    words(&format!(
        "plain eventfd-pingpong --cpus {},{} --duration {:.3}",
        cpus[0],
        cpus[1],
        duration.as_secs_f64()
    ))
}

/// A source of frames on an interface, from one address to another.
#[cfg(feature = "all")]
pub(crate) fn frame_source(on: &str, from: [u8; 6], to: [u8; 6], options: &str) -> Vec<String> {
    let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    words(&format!("plain frame-source --on {on} --from {} --to {} {options}", mac(from), mac(to)))
}
