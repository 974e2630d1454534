//! Kills a switch whose flows go on in the kernel, and starts it again, while packets pass.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_relative};
use twinpath_bpf::Keep;

use crate::lab::model::Sample;
use crate::lab::session::Session;
use crate::lab::switches::{Kind, Running, Setting};
use crate::lab::topology::SwitchNetwork;
use crate::lab::traffic::address;
use crate::openflow::{Controller, flows};

/// Kills of one measurement.
const KILLS: u32 = 10;
/// Between two packets.
const PACE: Duration = Duration::from_micros(200);
/// The UDP port of the second host.
const PORT: u16 = 7200;
/// For so long packets pass before a kill, after it, and after the controller has put in its flows again.
const BESIDE: Duration = Duration::from_millis(50);
/// Until the kernel forwards the flows, and how often that is looked at.
const START_DEADLINE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// A packet that has not come by then is lost.
const PACKET_DEADLINE: Duration = Duration::from_secs(1);
/// Room for what comes while the receiver has no CPU.
const RECEIVE_BYTES: usize = 4 << 20;

/// One packet every [`PACE`] from the first host to the second, until told to stop.
struct Packets {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    sender: std::thread::JoinHandle<std::io::Result<()>>,
    receiver: std::thread::JoinHandle<std::io::Result<u32>>,
}

impl Packets {
    fn start(network: &SwitchNetwork) -> anyhow::Result<Self> {
        let (from, to) = (network.socket(0, 0)?, network.socket(1, PORT)?);
        to.set_read_timeout(Some(PACKET_DEADLINE))?;
        set_socket_recv_buffer_size(to.as_fd(), RECEIVE_BYTES)?;
        let address = address(PORT);
        // The first packet waits for the address of its destination, and is no part of the count.
        let begun = Instant::now();
        let mut buffer = [0; 8];
        while from.send_to(b"first", address).is_err() || to.recv_from(&mut buffer).is_err() {
            ensure!(begun.elapsed() < START_DEADLINE, "no packet comes through the switch");
        }
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (is_over, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let sender = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                from.send_to(&count.load(Ordering::Relaxed).to_be_bytes(), address)?;
                count.fetch_add(1, Ordering::Relaxed);
                let pace = Timespec { tv_sec: 0, tv_nsec: i64::from(PACE.subsec_nanos()) };
                let _ = clock_nanosleep_relative(ClockId::Monotonic, &pace);
            }
            Ok(())
        });
        let is_over = Arc::clone(&stop);
        let receiver = std::thread::spawn(move || {
            let (mut received, mut buffer) = (0, [0; 8]);
            loop {
                match to.recv_from(&mut buffer) {
                    Ok((4, _)) => received += 1,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        if is_over.load(Ordering::Relaxed) {
                            return Ok(received);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        });
        Ok(Self { stop, sent, sender, receiver })
    }

    /// How many were sent, and how many came.
    fn finish(self) -> anyhow::Result<[u32; 2]> {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().ok().context("the sender panicked")?.context("a host cannot send")?;
        let received = self.receiver.join().ok().context("the receiver panicked")?;
        Ok([self.sent.load(Ordering::Relaxed), received.context("a host cannot receive")?])
    }
}

/// Removes what the last process has left.
struct Left(String);

impl Drop for Left {
    fn drop(&mut self) {
        if let Ok(Some(left)) = Keep::take_left(&self.0) {
            let _ = left.remove();
        }
    }
}

/// Puts in the flows between the two ports, as a controller that connects again and deletes none.
fn put_in(running: &Running) -> anyhow::Result<()> {
    let mut controller = Controller::connect(&running.socket)?;
    for message in flows::two_ports(false)? {
        controller.send(&message)?;
    }
    controller.barrier()
}

/// Values: `lost` of `sent` packets over [`KILLS`] kills, and `absent_ms`, the mean time between a kill and the next process's
/// being ready.
pub(super) async fn lost(session: &Session, network: &SwitchNetwork) -> anyhow::Result<Sample> {
    let name = format!("lab-{}", std::process::id());
    let _left = Left(name.clone());
    let kind = Kind::TwinpathKeeping;
    let setting = || Setting { name: Some(&name), ..Setting::default() };
    let mut running = kind.start_as(session, network, setting()).await?;
    put_in(&running)?;
    let packets = Packets::start(network)?;
    let mut absent = Duration::ZERO;
    for _ in 0..KILLS {
        in_kernel(&running).await?;
        tokio::time::sleep(BESIDE).await;
        let killed = Instant::now();
        running.kill(session).await?;
        running = kind.start_as(session, network, setting()).await?;
        absent += killed.elapsed();
        tokio::time::sleep(BESIDE).await;
        put_in(&running)?;
        tokio::time::sleep(BESIDE).await;
    }
    let finish = tokio::task::spawn_blocking(|| packets.finish());
    let [sent, received] = finish.await.context("counting panicked")??;
    running.stop(session).await?;
    ensure!(received <= sent, "{received} packets came of {sent}");
    let mut sample = Sample::default();
    sample.values.insert("lost", f64::from(sent - received));
    sample.values.insert("sent", f64::from(sent));
    sample.values.insert("kills", f64::from(KILLS));
    sample.values.insert("absent_ms", absent.as_secs_f64() * 1e3 / f64::from(KILLS));
    Ok(sample)
}

/// Waits until the kernel forwards the packets.
async fn in_kernel(running: &Running) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        // The first flow is the one for another kind of frames.
        let flows = running.flows().await?;
        if flows.iter().any(|flow| flow.matches == "in_port=1" && flow.place == "kernel") {
            return Ok(());
        }
        ensure!(begun.elapsed() < START_DEADLINE, "the kernel does not forward the flow: {flows:?}");
        tokio::time::sleep(LOOK).await;
    }
}
