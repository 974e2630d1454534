//! Measures how long the programs take for a frame that passes to the kernel, by the kernel's own test runs
//! (BPF_PROG_TEST_RUN).
//!
//! A test run executes a program repeatedly on the same frame and reports the time of one run in whole nanoseconds.
//! That includes its own overhead, so each program is run in turns with an empty one at the same hook: the
//! difference is the program's cost with warm caches. Nothing is attached and no packet is sent.

use std::cmp::Ordering;

use aya::programs::{
    ProgramError, SchedClassifier, SocketFilter, TestRun, TestRunOptions, TestRunResult, Xdp,
};
use twinpath_claims::Table;
use twinpath_time::Duration;
use twinpath_wire::eth;

use crate::empty::Empty;
use crate::steering::{FILTER, INGRESS, REDIRECT};
use crate::{Features, Path, SteerError, Steering};

/// Turns of each program and the empty one; the median is taken. Each turn of an XDP program waits about 20 ms for
/// the kernel, which changes its dispatcher for it.
const TURNS: usize = 3;
/// Runs of one turn: about 0.5 ms.
const REPEAT: u32 = 20_000;

/// The cost of one program for one kind of frame, ns, as the median of the turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramCost {
    /// `xdp`, `socket filter` or `tc ingress`.
    pub program: &'static str,
    /// One run of the program, including the overhead of the test run.
    pub run_ns: f64,
    /// One run of an empty program at the same hook.
    pub empty_ns: f64,
}

impl ProgramCost {
    /// What the program adds to the hook, ns.
    #[must_use]
    pub fn added_ns(&self) -> f64 {
        (self.run_ns - self.empty_ns).max(0.0)
    }
}

/// Runs the programs of a path with these features, under the rules of `table`, on frames that stay with the kernel; each
/// starts with its Ethernet header. Returns one list of programs per frame. Takes about 0.5 s, during which the calling thread
/// should stay on its CPU.
///
/// # Errors
/// The programs cannot be loaded, or [`SteerError::TestRun`].
pub fn program_costs(
    path: Path,
    features: Features<'_>,
    table: &Table,
    frames: &[&[u8]],
) -> Result<Vec<Vec<ProgramCost>>, SteerError> {
    let mut us = Steering::load_with(path, 1, Duration::ZERO, features)?;
    us.apply(table)?;
    let none = Empty::load()?;
    let frames: Vec<Vec<u8>> = frames.iter().map(|frame| frame.to_vec()).collect();
    if path == Path::Xdp {
        let at_xdp = compare("xdp", xdp(us.loaded(REDIRECT)?)?, xdp(none.program("empty_xdp")?)?, &frames)?;
        return Ok(at_xdp.into_iter().map(|cost| vec![cost]).collect());
    }
    // A packet socket's filter reads from the start of the data. In a test run, that is the IP header. With a
    // second Ethernet header in front, it reads the same bytes as on a device.
    let double = |frame: &Vec<u8>| [frame.get(..eth::HEADER_LEN).unwrap_or_default(), frame].concat();
    let doubled: Vec<Vec<u8>> = frames.iter().map(double).collect();
    let (filter, nothing) = (us.loaded(FILTER)?, none.program("empty_filter")?);
    let at_filter = compare("socket filter", socket(filter)?, socket(nothing)?, &doubled)?;
    // As if the filter had just passed a frame and left no note, which happens for every frame that stays with the
    // kernel.
    let (ingress, nothing) = (us.loaded(INGRESS)?, none.program("empty_ingress")?);
    let at_ingress = compare("tc ingress", tc(ingress)?, tc(nothing)?, &frames)?;
    Ok(at_filter.into_iter().zip(at_ingress).map(|(filter, ingress)| vec![filter, ingress]).collect())
}

/// Measures a program on each frame, in turns with the empty one.
fn compare<P: RunTest>(
    name: &'static str,
    program: &P,
    empty: &P,
    frames: &[Vec<u8>],
) -> Result<Vec<ProgramCost>, SteerError> {
    let failed = |error| SteerError::TestRun { program: name, error: Box::new(error) };
    let mut empties = Vec::with_capacity(TURNS);
    let mut runs = vec![Vec::with_capacity(TURNS); frames.len()];
    for _ in 0..TURNS {
        if let Some(frame) = frames.first() {
            empties.push(empty.time(frame).map_err(failed)?);
        }
        for (frame, runs) in frames.iter().zip(&mut runs) {
            runs.push(program.time(frame).map_err(failed)?);
        }
    }
    let cost = |runs| ProgramCost { program: name, run_ns: median(runs), empty_ns: median(empties.clone()) };
    Ok(runs.into_iter().map(cost).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    values[values.len() / 2]
}

/// A program that a test run can execute.
trait RunTest {
    /// One run, ns.
    fn time(&self, frame: &[u8]) -> Result<f64, ProgramError>;
}

impl<P> RunTest for P
where
    P: for<'a> TestRun<Opts<'a> = TestRunOptions<'a>, Result = TestRunResult>,
{
    fn time(&self, frame: &[u8]) -> Result<f64, ProgramError> {
        let options = TestRunOptions { data_in: Some(frame), repeat: REPEAT, ..TestRunOptions::default() };
        Ok(self.test_run(options)?.duration.as_nanos() as f64)
    }
}

fn xdp(program: &aya::programs::Program) -> Result<&Xdp, SteerError> {
    program.try_into().map_err(|error| SteerError::Program { name: "xdp", error: Box::new(error) })
}

fn socket(program: &aya::programs::Program) -> Result<&SocketFilter, SteerError> {
    program.try_into().map_err(|error| SteerError::Program { name: "socket filter", error: Box::new(error) })
}

fn tc(program: &aya::programs::Program) -> Result<&SchedClassifier, SteerError> {
    program.try_into().map_err(|error| SteerError::Program { name: "tc ingress", error: Box::new(error) })
}
