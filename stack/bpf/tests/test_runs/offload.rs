//! Entries by which the kernel forwards frames: when they are void, and what they count. test/fuzz compares with an
//! interpreter which frames they match.

use aya::programs::{TestRun as _, TestRunOptions};
use twinpath_bpf::{Offload, OffloadCount, OffloadEntry, PortPrograms, TcAttach, Unserved};
use twinpath_sys::{clock, netns::Namespace};
use twinpath_time::{Duration, Instant};

/// `lo`, which test runs arrive at.
const IFINDEX: u32 = 1;
const PORT: u16 = 3;
const MASK: u8 = 2;
const TC_ACT_REDIRECT: u32 = 7;
const TC_ACT_SHOT: u32 = 2;

/// EtherType and port decide.
const BITS: [u64; 8] = [0xffff << 48 | 0xffff << 16, 0, 0, 0, 0, 0, 0, 0];

fn key(ethertype: u64) -> [u64; 8] {
    [ethertype << 48 | u64::from(PORT) << 16, 0, 0, 0, 0, 0, 0, 0]
}

fn entry(number: u32) -> OffloadEntry {
    OffloadEntry {
        number,
        ifindex: 99,
        peer: None,
        frame_len_max: 1514,
        by_xdp: false,
        deadline: None,
        idle: None,
        unmoved: None,
    }
}

fn frame(ethertype: [u8; 2], len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype);
    // As much of IPv4 and TCP as is read.
    frame.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    frame.resize(len, 0);
    frame
}

/// Whether the programs forward a frame. `gso_size` is that of a super-frame, or 0.
fn forwards(Kernel { programs, .. }: &mut Kernel, frame: &[u8], gso_size: u32) -> bool {
    let mut context = [0; 180];
    context[176..].copy_from_slice(&gso_size.to_ne_bytes());
    let program = programs.program("twinpath_serve_in").unwrap();
    let options =
        TestRunOptions { data_in: Some(frame), ctx_in: Some(&context), ..TestRunOptions::default() };
    match program.test_run(options).unwrap().return_value {
        TC_ACT_REDIRECT => true,
        TC_ACT_SHOT => false,
        other => panic!("verdict {other}"),
    }
}

/// The programs at `lo`, and the entries.
struct Kernel {
    programs: PortPrograms,
    offload: Offload,
}

fn with_programs(test: impl FnOnce(Kernel) + Send) {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let ran = namespace.run(|| {
        let mut programs = PortPrograms::load(7, 1, Duration::ZERO, 8).unwrap();
        programs.hold(IFINDEX, Unserved::Dropped, TcAttach::here()).unwrap();
        let mut offload = programs.take_offload().unwrap();
        offload.set_mask(MASK, &BITS).unwrap();
        offload.look_for_entries(IFINDEX, PORT, 1 << MASK).unwrap();
        test(Kernel { programs, offload });
    });
    ran.unwrap();
}

const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

#[test]
fn an_entry_is_void_by_itself_at_its_deadline_and_when_it_has_been_idle() {
    with_programs(|mut kernel| {
        let now = clock::now();
        let ago = |time: Duration| Instant::from_nanos(now.as_nanos() - time.as_nanos() as u64);
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        // The machine may not have run for long.
        let second = Duration::from_millis(1000);
        let put = |kernel: &mut Kernel, used: Instant, entry: OffloadEntry| {
            kernel.offload.put(MASK, &key(0x88b5), &entry, used).unwrap();
            forwards(kernel, &frame(EXPERIMENT, 60), 0)
        };
        assert!(put(&mut kernel, now, entry(1)));
        assert!(put(&mut kernel, now, OffloadEntry { deadline: Some(now + hour), ..entry(1) }));
        assert!(!put(&mut kernel, now, OffloadEntry { deadline: Some(now), ..entry(1) }));
        assert!(put(&mut kernel, now, OffloadEntry { idle: Some(minute), ..entry(1) }));
        let seldom = OffloadEntry { idle: Some(second / 2), ..entry(1) };
        assert!(!put(&mut kernel, ago(second), seldom));
        kernel.offload.used_at(1, clock::now());
        assert!(forwards(&mut kernel, &frame(EXPERIMENT, 60), 0), "its flow has been used elsewhere");
        assert_eq!(kernel.offload.count(1), OffloadCount { packets: 4, bytes: 240 });
    });
}

#[test]
fn one_store_makes_all_entries_void_and_an_entry_can_be_taken_out() {
    with_programs(|mut kernel| {
        let now = clock::now();
        let passes = |kernel: &mut Kernel| forwards(kernel, &frame(EXPERIMENT, 60), 0);
        assert!(!passes(&mut kernel));
        let offload = &mut kernel.offload;
        offload.put(MASK, &key(0x88b5), &entry(1), now).unwrap();
        offload.put(MASK, &key(0x88b6), &entry(2), now).unwrap();
        assert!(passes(&mut kernel));
        kernel.offload.void_all();
        assert!(!passes(&mut kernel));
        kernel.offload.put(MASK, &key(0x88b5), &entry(3), now).unwrap();
        assert!(passes(&mut kernel));
        kernel.offload.remove(MASK, &key(0x88b5)).unwrap();
        assert!(!passes(&mut kernel));
        let offload = &mut kernel.offload;
        offload.remove(MASK, &key(0x88b5)).unwrap();
        offload.settle().unwrap();
        assert_eq!(offload.grace_periods(), 0, "no program was running");
        let packets = [1, 2, 3].map(|number| offload.count(number).packets);
        assert_eq!(packets, [1, 0, 1]);
        let since = clock::now().as_nanos() - offload.used(3).as_nanos();
        assert!(since < 60_000_000_000, "used a moment ago, not {since} ns");
    });
}

#[test]
fn a_super_frame_counts_as_its_packets_and_none_is_longer_than_the_interface_takes() {
    with_programs(|mut kernel| {
        let now = clock::now();
        for (ethertype, number) in [(0x0800, 1), (0x88b5, 2)] {
            kernel.offload.put(MASK, &key(ethertype), &entry(number), now).unwrap();
        }
        let tcp = |payload: usize| frame([8, 0], 54 + payload);
        assert!(forwards(&mut kernel, &tcp(2500), 1000));
        assert_eq!(kernel.offload.count(1), OffloadCount { packets: 3, bytes: 2554 });
        assert!(forwards(&mut kernel, &tcp(1460), 0) && !forwards(&mut kernel, &tcp(1461), 0));
        assert!(forwards(&mut kernel, &tcp(2920), 1460) && !forwards(&mut kernel, &tcp(2922), 1461));
        assert!(!forwards(&mut kernel, &frame(EXPERIMENT, 3000), 1000), "who would cut that?");
        assert_eq!(kernel.offload.count(2), OffloadCount::default());
    });
}
