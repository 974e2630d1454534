//! `plain relay`: hands the frames of two interfaces from one to the other, each after a delay, and loses some of them by chance.

use std::collections::VecDeque;

use anyhow::{Context, ensure};
use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_sys::{PacketSocket, clock};
use twinpath_time::{Duration, Instant};

use crate::plain::reflect::interface_index;

/// All EtherTypes (linux/if_ether.h).
const ETH_P_ALL: u16 = 3;
/// A frame of an MTU of 1500, with tags.
const FRAME_BYTES: usize = 1536;
/// Most frames on their way in one direction. More are lost, as in a router.
const QUEUE: usize = 1000;
/// The longest wait before the thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface of the first host
    #[arg(long, value_name = "IFACE")]
    one: String,
    /// That of the other
    #[arg(long, value_name = "IFACE")]
    other: String,
    /// Milliseconds that each frame is on its way
    #[arg(long, default_value_t = 0.0)]
    delay_ms: f64,
    /// Percent of the frames of each direction that are lost
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Draws them
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// From one interface to the other.
struct Way {
    from: PacketSocket,
    /// The interface that frames leave by.
    to: PacketSocket,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    random: Rng,
    lost: u64,
    overflowed: u64,
    passed: u64,
}

impl Way {
    fn new(from: u32, to: u32, seed: u64) -> anyhow::Result<Self> {
        let open =
            |index, ethertype| PacketSocket::open(index, ethertype).context("cannot open a packet socket");
        let from = open(from, ETH_P_ALL)?;
        rustix::io::ioctl_fionbio(&from, true)?;
        let (under_way, random) = (VecDeque::with_capacity(QUEUE), Rng::with_seed(seed));
        Ok(Self { from, to: open(to, 0)?, under_way, random, lost: 0, overflowed: 0, passed: 0 })
    }

    /// Takes what has come, and sends what is due; returns when the next one is.
    fn turn(&mut self, delay: Duration, loss: f64) -> anyhow::Result<Option<Instant>> {
        let mut frame = [0; FRAME_BYTES];
        loop {
            match self.from.receive(&mut frame) {
                Ok(len) => {
                    ensure!(
                        len <= FRAME_BYTES,
                        "a frame of {len} bytes came: offloads of the hosts have to be off"
                    );
                    if self.random.f64() < loss {
                        self.lost += 1;
                    } else if self.under_way.len() == QUEUE {
                        self.overflowed += 1;
                    } else {
                        self.under_way.push_back((clock::now() + delay, frame[..len].to_vec()));
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::NETDOWN) => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
        let now = clock::now();
        while self.under_way.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, frame)) = self.under_way.pop_front()
        {
            match self.to.send(&frame) {
                Ok(()) => self.passed += 1,
                Err(Errno::NOBUFS | Errno::NETDOWN) => self.overflowed += 1,
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(self.under_way.front().map(|(due, _)| *due))
    }
}

/// Relays until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!((0.0..=100.0).contains(&args.loss), "--loss {} is no share: write percent", args.loss);
    let delay = super::seconds(args.delay_ms / 1e3)?;
    let [one, other] = [interface_index(&args.one)?, interface_index(&args.other)?];
    let mut ways = [Way::new(one, other, args.seed)?, Way::new(other, one, args.seed.wrapping_add(1))?];
    let stop = Stop::new();
    let (ended, _) = attend(&stop, None, || -> anyhow::Result<()> {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        while !stop.is_requested() {
            let mut next = clock::now() + LOOK;
            for way in &mut ways {
                next = way.turn(delay, args.loss / 100.0)?.map_or(next, |due| due.min(next));
            }
            let left = Duration::from_nanos(next.nanos_since(clock::now()));
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut come = ways.each_ref().map(|way| PollFd::new(&way.from, PollFlags::IN));
            match poll(&mut come, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for frames"),
            }
        }
        Ok(())
    })?;
    ended?;
    let of = |way: &Way| json!({ "passed": way.passed, "lost": way.lost, "overflowed": way.overflowed });
    Ok(print(json!({ "ways": [of(&ways[0]), of(&ways[1])] }))?)
}
