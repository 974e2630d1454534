//! Programs at tc that change nothing once their process has ended, even if they stay attached. They reach their
//! working part by tail calls, through an array that the kernel empties when its last descriptor is closed
//! (`bpf/served.h`).

use std::os::fd::{AsFd as _, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, ProgramArray};
use aya::programs::SchedClassifier;
use twinpath_sys::descriptors::close_first;

use crate::SteerError;
use crate::maps::wrote;
use crate::program::{loaded, program};

/// Loads the programs to be attached, and puts the working programs into the array in order. Returns the only
/// descriptor of the array, which the process closes before any other when it ends.
pub(crate) fn serve(
    object: &mut Ebpf,
    attached: &[&'static str],
    work: &[&'static str],
) -> Result<OwnedFd, SteerError> {
    let Some(Map::ProgramArray(map)) = object.take_map("served") else {
        return Err(SteerError::Missing("served"));
    };
    let failed = |source: std::io::Error| SteerError::Map {
        map: "served",
        action: "holding",
        error: Box::new(aya::maps::MapError::IoError(source)),
    };
    // These refer to the map by its present descriptor.
    for name in attached {
        let classifier = program::<SchedClassifier>(object, name)?;
        loaded(name, || classifier.load())?;
    }
    let held = close_first(map.fd().as_fd()).map_err(failed)?;
    let mut array = ProgramArray::try_from(Map::ProgramArray(map)).map_err(wrote("served"))?;
    for (at, name) in work.iter().enumerate() {
        let classifier: &mut SchedClassifier = program(object, name)?;
        loaded(name, || classifier.load())?;
        let fd = classifier.fd().map_err(|error| SteerError::Program { name, error: Box::new(error) })?;
        array.set(at as u32, fd, 0).map_err(wrote("served"))?;
    }
    Ok(held)
}
