//! Passes frames through the loaded programs without a device (BPF_PROG_TEST_RUN).

use std::sync::Arc;

use aya::programs::{Program, SchedClassifier, SocketFilter, TestRun, TestRunOptions, TestRunResult, Xdp};
use twinpath_bpf::{DIRECT_SLOTS, Steering};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};

/// A worker's direct ring, closed.
pub(crate) fn direct_ring_of(steering: &Steering, queue: u32) -> DirectRing {
    let [states, slots] = steering.direct().expect("the packet path has rings");
    let bytes = DIRECT_SLOTS as usize * SLOT_LEN;
    let slots = Mapping::of_fd(slots, bytes, u64::from(queue) * bytes as u64).expect("mapped");
    let states = Mapping::of_fd(states, (queue as usize + 1) * STATE_LEN, 0).expect("mapped");
    DirectRing::new(Arc::new(states), queue, slots, DIRECT_SLOTS as usize).expect("the layout of the object")
}

/// The first worker's direct ring, open, which the program at tc ingress fills by itself.
pub(crate) fn direct_ring(steering: &Steering) -> DirectRing {
    let mut ring = direct_ring_of(steering, 0);
    ring.open();
    ring.set_without_socket(true);
    ring
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
