//! Single test runs: the frames that they accept, the results, and the CPU.

use aya::programs::{TestRun, TestRunOptions, TestRunResult};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The least length that Linux 6.18 accepts for a socket buffer in a test run (net/bpf/test_run.c).
pub(crate) fn least_for_skb(frame: &[u8]) -> usize {
    match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 15,
    }
}

/// The filter's note is per CPU, so such a test must not migrate.
pub(crate) fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(None).expect("a thread may ask for its own");
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("it runs on one");
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).expect("it is one of those that are allowed");
}

/// A test run of one frame: the program's return value, and the frame afterwards.
pub(crate) fn changed<P>(program: &P, frame: &[u8]) -> (u32, Vec<u8>)
where
    P: for<'a> TestRun<Opts<'a> = TestRunOptions<'a>, Result = TestRunResult>,
{
    let mut out = vec![0; 4096];
    let options =
        TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
    let result =
        program.test_run(options).unwrap_or_else(|error| panic!("{error:?} for {} bytes", frame.len()));
    out.truncate(result.data_size_out as usize);
    (result.return_value, out)
}
