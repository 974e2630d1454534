//! Measures one row of `lab three-rtts` once.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_port::PortId;
use twinpath_shm::{Listener, Offer, SLOTS_DEFAULT, ShmConfig, ShmPort};
use twinpath_sys::LatencyRequest;
use twinpath_worker::idle::Mode;

use super::drive::{self, Driven, ETHERTYPE, Role};
use crate::lab::client::eventfd_floor;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::serve_by_one;
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    /// Duration of one measurement.
    pub(super) time: Duration,
}

impl Bench<'_> {
    pub(super) async fn measure(&self, row: &str) -> anyhow::Result<Sample> {
        // All sleeping rows hold the same latency request, and no others do: pairs differ only in the path.
        let sleeps = ["direct-interrupt", "shm-sleeping", "packet-sleeping", "floor-eventfd"];
        let request = sleeps.contains(&row).then(|| LatencyRequest::open(0));
        let mut sample = match row {
            "direct-poll" => self.direct("poll").await?,
            "direct-interrupt" => self.direct("interrupt").await?,
            "direct-one-thread" => self.one_thread(Role::Direct, Mode::Poll).await?,
            "shm-spinning" => self.shared_memory("poll").await?,
            "shm-sleeping" => self.shared_memory("interrupt").await?,
            "packet-spinning" => self.packet_socket("poll").await?,
            "packet-sleeping" => self.packet_socket("interrupt").await?,
            "floor-eventfd" => eventfd_floor(self.session, self.time).await?,
            _ => bail!("no such row: {row}"),
        };
        sample.notes.extend(match request {
            Some(Ok(_)) => Some("latency request held".to_owned()),
            Some(Err(error)) => Some(format!("no latency request held: {error}")),
            None => None,
        });
        Ok(sample)
    }

    /// The service on a worker in a process of its own, on the server's CPU.
    async fn direct(&self, mode: &'static str) -> anyhow::Result<Sample> {
        let serves = format!(
            "reflect --ethertype {ETHERTYPE:#06x} --path packet --mode {mode} --latency-request never"
        );
        let args = serve_by_one(self.session, &serves);
        let measure = async |_: &Instance| self.one_thread(Role::Generator, of_name(mode)).await;
        Instance::during(&self.session.launcher, &args, measure).await
    }

    /// The application on a packet socket, on the server's CPU.
    async fn packet_socket(&self, mode: &'static str) -> anyhow::Result<Sample> {
        let line = format!(
            "plain packet-reflect --on {} --ethertype {ETHERTYPE:#06x} --mode {mode}",
            SERVER.interface
        );
        let measure = async |_: &Server| self.one_thread(Role::Generator, of_name(mode)).await;
        self.session.launcher.beside(Side::Server, &words(&line), measure).await
    }

    /// The application on the server's CPU, with the worker in the generator's thread.
    async fn shared_memory(&self, mode: &'static str) -> anyhow::Result<Sample> {
        let path = self.session.run_dir.path().join("shm.sock");
        let listener = Listener::bind(&path)
            .with_context(|| format!("cannot listen for the application at {}", path.display()))?;
        let config = ShmConfig { id: PortId { port: drive::APPLICATION, queue: 0 }, slots: SLOTS_DEFAULT };
        let (port, offer) = ShmPort::create(&config)?;
        let mut args = words(&format!("plain shm-reflect --mode {mode} --socket"));
        args.push(path.display().to_string());
        // It reports that it is ready only after it has been answered.
        let (server, connection) = tokio::try_join!(self.launch(&args), answer(&listener, &offer))?;
        let result = self.one_thread(Role::HandOver(Box::new(port)), of_name(mode)).await;
        // Closing it ends the application.
        drop(connection);
        self.session.launcher.stop(server).await?;
        result
    }

    async fn launch(&self, args: &[String]) -> anyhow::Result<Server> {
        self.session.launcher.server(Side::Server, args).await
    }

    /// Runs the generator, and the role that shares its thread, on the client's CPU.
    async fn one_thread(&self, role: Role, mode: Mode) -> anyhow::Result<Sample> {
        let topology = self.session.launcher.topology();
        let driven = Driven {
            client: topology.client.duplicate()?,
            server: topology.server.duplicate()?,
            cpu: self.session.cpus[0],
            mode,
            time: self.time,
            role,
        };
        let summary = tokio::task::spawn_blocking(move || drive::run(driven)).await??;
        ensure!(summary.corrupt == 0, "{} of {} frames came back wrong", summary.corrupt, summary.received);
        let rtt = RttUs::of(&summary.histogram)
            .with_context(|| format!("none of {} frames came back", summary.sent))?;
        let mut values = rtt.values();
        values.insert("requests_per_s", summary.requests_per_s());
        values.insert("lost", summary.lost as f64);
        Ok(Sample { values, histogram: buckets(&summary.histogram), ..Sample::default() })
    }
}

/// Waits for the application and gives it its end of the port; the returned descriptor hangs up when it dies.
async fn answer(listener: &Listener, offer: &Offer) -> anyhow::Result<OwnedFd> {
    let waiting = readable(listener.as_fd().try_clone_to_owned()?)?;
    let connection = loop {
        waiting.readable().await?.clear_ready();
        if let Some(connection) = listener.accept()? {
            break connection;
        }
    };
    let spoken = readable(connection)?;
    spoken.readable().await?.retain_ready();
    offer.answer(spoken.get_ref())?;
    Ok(spoken.into_inner())
}

#[allow(deprecated, reason = "AsyncFd asks for an fd that stays open: it owns this one")]
fn readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

fn of_name(mode: &str) -> Mode {
    if mode == "poll" { Mode::Poll } else { Mode::Interrupt }
}
