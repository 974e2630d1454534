//! Finds the programs of an object, and loads them.

use aya::Ebpf;
use aya::programs::{Program, ProgramError};
use twinpath_sys::signals::HeldBack;

use crate::SteerError;

pub(crate) fn program<'a, P>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, SteerError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = object.program_mut(name).ok_or(SteerError::OtherPath(name))?;
    program.try_into().map_err(|error| SteerError::Program { name, error: Box::new(error) })
}

/// Loads a program, with signals blocked meanwhile.
pub(crate) fn loaded(
    name: &'static str,
    load: impl FnOnce() -> Result<(), ProgramError>,
) -> Result<(), SteerError> {
    // A signal would interrupt the verifier (EAGAIN), and the load would begin again, with a log, which takes
    // seconds.
    let _held_back = HeldBack::new();
    load().map_err(|error| SteerError::Program { name, error: Box::new(error) })
}
