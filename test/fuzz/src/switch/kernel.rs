//! Passes frames between learned addresses through the programs that forward them in the kernel (BPF_PROG_TEST_RUN): what they
//! forward leaves by the port that the naive switch says, unchanged, and is counted once; everything else goes to the worker.

use fastrand::Rng;
use twinpath_bpf::{PortPrograms, TcAttach, Unserved};
use twinpath_forwarding::learning::OnMove;
use twinpath_switch::offload::{KernelPort, Learned, Moves};
use twinpath_sys::clock;
use twinpath_sys::netns::Namespace;

use super::*;
use crate::pipeline::kernel::{IFINDEX, OUT, TC_ACT_REDIRECT, run_tc};

/// The place of the only namespace.
const HOME: usize = 0;

/// The programs at `lo`, where every frame arrives, and the entries.
struct Kernel {
    programs: PortPrograms,
    learned: Learned,
}

impl Kernel {
    fn load(pair: &Pair, moves: Arc<Moves>) -> Self {
        let mut programs = PortPrograms::load(7, 1, Duration::ZERO, 64).expect("loaded");
        programs.hold(IFINDEX, Unserved::Kernel, TcAttach::here()).expect("held");
        let mut learned = Learned::new(Arc::clone(pair.switch.shared()), moves);
        learned.add(HOME, programs.take_offload().expect("asked for"));
        let port = |number: u32| KernelPort {
            ifindex: OUT + number,
            peer: None,
            frame_len_max: 1514,
            has_xdp: false,
            takes_xdp: false,
        };
        let ports: Vec<_> = (0..8).map(|number| (number, Some((HOME, port(number))))).collect();
        learned.set_ports(&ports, pair.now, pair.switch.snapshot());
        Self { programs, learned }
    }

    fn counts(&mut self) -> Vec<(u64, u64)> {
        let offload = self.learned.offloaded_mut(HOME).expect("added").offload();
        let count = |number| offload.count(number);
        (0..offload.capacity()).map(count).map(|count| (count.packets, count.bytes)).collect()
    }

    /// The port that the kernel sends a frame by; `None`: it leaves it to the worker.
    fn pass(&mut self, frame: &Frame) -> Option<u16> {
        let (bytes, beside) = bytes_of(frame);
        // Test runs take no frame without payload.
        if bytes.len() <= 14 {
            return None;
        }
        let before = self.counts();
        let offloaded = self.learned.offloaded_mut(HOME).expect("added");
        let masks = offloaded.entries().masks_of(frame.port.into());
        offloaded.offload_mut().look_for_entries(IFINDEX, frame.port, masks).expect("no map fails");
        let forwarded = run_tc(&mut self.programs, &bytes, beside)? == TC_ACT_REDIRECT;
        let after = self.counts();
        let counted: Vec<u32> = (0..)
            .zip(before.iter().zip(&after))
            .filter(|(_, (one, two))| one != two)
            .map(|(number, _)| number)
            .collect();
        if !forwarded {
            assert_eq!(counted, [] as [u32; 0], "nothing is counted that is not forwarded");
            return None;
        }
        let [number] = counted[..] else { panic!("one entry counts, not {counted:?}") };
        let (before, after) = (before[number as usize], after[number as usize]);
        assert_eq!(after, (before.0 + 1, before.1 + bytes.len() as u64));
        let entry = self.learned.offloaded_mut(HOME).and_then(|it| it.entries().get(number).cloned());
        Some(entry.expect("there").output as u16)
    }
}

/// A frame's bytes, of a type whose headers nobody reads, and the tag beside them.
fn bytes_of(frame: &Frame) -> (Vec<u8>, Option<u16>) {
    let (mut bytes, beside) = frame.bytes();
    if frame.cut.is_none() {
        let at = bytes.len() - 6;
        bytes[at..at + 2].copy_from_slice(&[0x88, 0xb5]);
    }
    (bytes, beside)
}

/// How many frames the kernel has forwarded, and how many there were.
fn run(seed: u64) -> [u32; 2] {
    let (mut random, mut passed) = (Rng::with_seed(seed), [0, 0]);
    let limited = random.bool();
    let mut configs = configs(limited);
    for config in &mut configs {
        // More ports of one VLAN than there are otherwise.
        config.ports.extend([access(5, 10), access(7, 10)]);
    }
    let moves = Arc::new(Moves::new(SEED));
    let shared = Shared::new(0, SEED).expect("memory").heard_by(Arc::clone(&moves) as Arc<dyn OnMove>);
    let mut pair = Pair::of(configs, limited, shared);
    let mut kernel = Kernel::load(&pair, moves);
    let mut sent = 0;
    for _ in 0..400 {
        // The programs' clock goes on by itself.
        pair.now = clock::now();
        if random.u8(..40) == 0 {
            // All but the time.
            let snapshot = Arc::clone(pair.switch.snapshot());
            kernel.learned.suspend(true, pair.now, &snapshot);
            pair.change([random.u8(2..6), random.u8(..)]);
            kernel.learned.suspend(false, pair.now, pair.switch.snapshot());
            continue;
        }
        let mut described: [u8; 5] = std::array::from_fn(|_| random.u8(..));
        // Few stations, mostly where they were, mostly without a tag.
        described[1] = 2 + random.u8(..6);
        described[2] = if random.u8(..4) == 0 { random.u8(..) } else { 2 + random.u8(..6) };
        described[0] =
            if random.u8(..8) == 0 { random.u8(..) } else { [1, 5, 7, 3][usize::from(described[1] % 4)] };
        described[4] &= if described[0] == 3 {
            6
        } else if random.u8(..8) == 0 {
            0x1f
        } else {
            4
        };
        let frame = frame(described);
        passed[1] += 1;
        if let Some(port) = kernel.pass(&frame) {
            passed[0] += 1;
            sent += 1;
            let expected = (None, vec![(port, frame.tags.clone(), false)]);
            assert_eq!(pair.naive.judge(pair.now, &frame), expected, "seed {seed}: {frame:?}");
            kernel.learned.tell(pair.now, pair.switch.snapshot());
        } else {
            let ((bytes, beside), port) = (bytes_of(&frame), frame.port);
            pair.waiting.push(frame);
            pair.judge();
            kernel.learned.sampled(pair.now, pair.switch.snapshot(), port, &bytes, beside);
        }
        if random.u8(..30) == 0 {
            let later = pair.now + pair.switch.snapshot().ageing() / 8;
            kernel.learned.look_after(later, pair.switch.snapshot());
        }
    }
    kernel.learned.record(pair.now);
    let forwarded: Vec<_> = (0..8).map(|port| kernel.learned.forwarded(port)).collect();
    assert_eq!(forwarded.iter().map(|port| port.packets_in).sum::<u64>(), sent);
    assert_eq!(forwarded.iter().map(|port| port.packets_out).sum::<u64>(), sent);
    passed
}

#[test]
fn what_the_kernel_forwards_is_what_the_naive_switch_forwards() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let ran = Namespace::new().expect("a namespace").run(|| (0..60).map(run).collect::<Vec<_>>());
    let [forwarded, all] =
        ran.expect("ran").into_iter().fold([0, 0], |sum, run| [sum[0] + run[0], sum[1] + run[1]]);
    println!("forwarded {forwarded} of {all} frames");
    assert!(forwarded > 300, "{forwarded} of {all} frames");
}
