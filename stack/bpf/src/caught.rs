//! Segments of workers' connections that reach the kernel while nobody listens (bpf/lookup.c).

use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Map, MapData, SockMap};
use aya::programs::sk_lookup::SkLookupLink;
use aya::programs::{SkLookup, SocketFilter};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_sys::{socket_filter, tcp_listener};

use crate::SteerError;
use crate::maps::wrote;
use crate::program::{loaded, program};
use crate::tcp_flows::{Outer, TcpFlows};

static LOOKUP: &[u8] = include_bytes_aligned!("../object/lookup.o");

/// The filter of the socket that gets the segments, and the program that finds it.
const FILTER: &str = "twinpath_caught";
const FINDS: &str = "twinpath_lookup";

/// While it lives, the kernel of a network namespace answers no segment of a worker's connection, whether anybody listens or
/// not. It ends with the process, however that ends.
pub struct Caught {
    /// The first to go: nothing is to find the socket when its filter goes.
    _link: SkLookupLink,
    _object: Ebpf,
    _read: [Outer; 2],
    _socket: OwnedFd,
}

impl std::fmt::Debug for Caught {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caught").finish_non_exhaustive()
    }
}

impl Caught {
    /// Has the kernel answer no segment of these connections from now on, in the network namespace in which they were made. The
    /// calling thread has to be in it.
    ///
    /// # Errors
    /// [`SteerError::Object`], [`SteerError::Map`], [`SteerError::Program`], [`SteerError::Catcher`],
    /// [`SteerError::Listener`].
    pub fn new(flows: &TcpFlows) -> Result<Self, SteerError> {
        let socket = tcp_listener::out_of_reach().map_err(SteerError::Catcher)?;
        Self::with(flows, socket, true)
    }

    /// `drops`: the socket takes nothing of what it is given.
    fn with(flows: &TcpFlows, socket: OwnedFd, drops: bool) -> Result<Self, SteerError> {
        let mut object =
            EbpfLoader::new().load(LOOKUP).map_err(|error| SteerError::Object(Box::new(error)))?;
        let read = flows.give_to_filter(&mut object)?;
        let filter: &mut SocketFilter = program(&mut object, FILTER)?;
        loaded(FILTER, || filter.load())?;
        let failed = |name| move |error| SteerError::Program { name, error: Box::new(error) };
        let fd = filter.fd().map_err(failed(FILTER))?;
        if drops {
            socket_filter::attach(&socket, fd.as_fd()).map_err(SteerError::Listener)?;
        }
        let Some(Map::SockMap(map)) = object.take_map("catcher") else {
            return Err(SteerError::Missing("catcher"));
        };
        // The program refers to the map by its present descriptor, which closes with `map`.
        let finds: &mut SkLookup = program(&mut object, FINDS)?;
        loaded(FINDS, || finds.load())?;
        let mut catcher = SockMap::<MapData>::try_from(Map::SockMap(map)).map_err(wrote("catcher"))?;
        catcher.set(0, &socket, 0).map_err(wrote("catcher"))?;
        let id = finds.attach(flows.namespace()).map_err(failed(FINDS))?;
        let link = finds.take_link(id).map_err(failed(FINDS))?;
        Ok(Self { _link: link, _object: object, _read: read, _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    use twinpath_sys::Namespace;
    use twinpath_test_rig::{ip, root_or_skip};

    use super::*;

    /// Whether a SYN from this end to the other one is answered.
    fn is_answered(from: SocketAddr, to: SocketAddr) -> bool {
        const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        bind(&socket, &from).unwrap();
        let _ = connect(&socket, &to);
        poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&PATIENCE)).unwrap() > 0
    }

    #[test]
    fn a_known_tuple_is_caught_although_another_program_has_chosen_a_listener() {
        if !root_or_skip() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        ip(&namespace, "link set lo up");
        let test = || {
            let flows = TcpFlows::load(1).unwrap();
            let claims = flows.claims(0).unwrap();
            let to = SocketAddr::from(([127, 0, 0, 1], 7));
            let [before, known, unknown] = [4000, 4001, 4002].map(|port| ([127, 0, 0, 1], port).into());
            for from in [before, known] {
                claims.end(to, from).unwrap();
            }
            assert!(is_answered(unknown, to), "by a reset");
            // Another program, which looks first.
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let _other = Caught::with(&flows, other.try_clone().unwrap().into(), false).unwrap();
            assert!(is_answered(before, to));
            other.accept().unwrap();
            let _caught = Caught::new(&flows).unwrap();
            assert!(!is_answered(known, to));
        };
        namespace.run(test).unwrap();
    }
}
