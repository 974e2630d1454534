//! Passes frames through the loaded programs without a device (BPF_PROG_TEST_RUN).

use aya::programs::{Program, SchedClassifier, SocketFilter, TestRun, TestRunOptions, TestRunResult, Xdp};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_steer_bpf::{DIRECT_SLOTS, Steering};

/// The worker's end of the direct ring.
pub(crate) fn direct_ring(steering: &Steering) -> DirectRing {
    let [state, slots] = steering.direct().expect("the packet path has a ring");
    let slots = Mapping::of_fd(slots, DIRECT_SLOTS as usize * SLOT_LEN, 0).expect("mapped");
    let state = Mapping::of_fd(state, STATE_LEN, 0).expect("mapped");
    DirectRing::new(state, slots, DIRECT_SLOTS as usize).expect("the layout of the object")
}

pub(crate) fn xdp(steering: &Steering) -> &Xdp {
    program(steering, "twinpath_xdp")
}

pub(crate) fn filter(steering: &Steering) -> &SocketFilter {
    program(steering, "twinpath_filter")
}

pub(crate) fn ingress(steering: &Steering) -> &SchedClassifier {
    program(steering, "twinpath_ingress")
}

fn program<'a, P: 'a>(steering: &'a Steering, name: &str) -> &'a P
where
    &'a P: TryFrom<&'a Program>,
{
    steering.program(name).and_then(|program| program.try_into().ok()).expect("the object has its programs")
}

pub(crate) fn run<P>(program: &P, frame: &[u8], beside: Option<&[u8]>, repeat: u32) -> TestRunResult
where
    P: for<'a> TestRun<Opts<'a> = TestRunOptions<'a>, Result = TestRunResult>,
{
    let options =
        TestRunOptions { data_in: Some(frame), ctx_in: beside, repeat, ..TestRunOptions::default() };
    program.test_run(options).unwrap_or_else(|error| panic!("{error:?} for {} bytes", frame.len()))
}
