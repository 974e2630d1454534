//! What a program is: a number, its versions, and procedures that read arguments and write results.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use nfs3_types::xdr_codec::Pack;
use twinpath_time::Instant;

use crate::auth::Credential;
use crate::refusal::Refusal;
use crate::xdr::write_opaque;

/// By what a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram of its own: it may be lost, and then comes again.
    Datagram,
    /// A record in a stream.
    Stream,
}

/// How a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time of the turn in which it is served.
    pub now: Instant,
    /// Who sent it.
    pub peer: SocketAddr,
    /// By what.
    pub transport: Transport,
}

/// A call as its program sees it: of a version it has, with a credential that is served.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How it came.
    pub arrival: Arrival,
    /// Its number.
    pub xid: u32,
    /// The version called, one of [`Program::versions`].
    pub version: u32,
    /// The procedure, never NULL (0): that is answered for every program.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential<'a>,
    /// The procedure's arguments.
    pub args: &'a [u8],
}

/// Work that may block: it writes the results of a procedure, or says why there are none.
pub type Work = Box<dyn FnOnce(&mut Results<'_>) -> Result<(), Refusal> + Send>;

/// What became of a request.
pub enum Handled {
    /// Its results are written.
    Now,
    /// A thread that may block is to do this; its caller waits, other calls do not. What was written is dropped.
    Later(Work),
}

/// Where a procedure writes its results: behind the header of the reply, in the buffer that is sent.
#[derive(Debug)]
pub struct Results<'a>(pub(crate) &'a mut Vec<u8>);

impl Results<'_> {
    /// Appends bytes that are XDR already.
    #[inline]
    pub fn write(&mut self, encoded: &[u8]) {
        self.0.extend_from_slice(encoded);
    }

    /// Appends an unsigned integer, or an enumeration's value.
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.write(&value.to_be_bytes());
    }

    /// Appends opaque data of variable length.
    pub fn write_opaque(&mut self, bytes: &[u8]) {
        write_opaque(bytes, self.0);
    }

    /// Appends a value of the library's.
    ///
    /// # Errors
    /// SYSTEM_ERR: it cannot be encoded.
    pub fn pack(&mut self, value: &impl Pack) -> Result<(), Refusal> {
        value.pack(self.0).map(drop).map_err(|_| Refusal::SystemError)
    }
}

/// A program served: what it has for each worker, one value each.
///
/// ```
/// use twinpath_rpc::{Handled, Program, Refusal, Request, Results, xdr::Reader};
///
/// /// Adds two numbers.
/// struct Adder;
///
/// impl Program for Adder {
///     fn number(&self) -> u32 {
///         0x2000_0001
///     }
///
///     fn versions(&self) -> std::ops::RangeInclusive<u32> {
///         1..=1
///     }
///
///     fn results_max(&self) -> usize {
///         4
///     }
///
///     fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
///         if request.procedure != 1 {
///             return Err(Refusal::ProcedureUnavailable);
///         }
///         let mut args = Reader::new(request.args);
///         let sum = args.u32()?.wrapping_add(args.u32()?);
///         args.finish()?;
///         results.write_u32(sum);
///         Ok(Handled::Now)
///     }
///
///     fn for_worker(&self) -> Box<dyn Program> {
///         Box::new(Adder)
///     }
/// }
/// ```
pub trait Program: Send {
    /// Its number.
    fn number(&self) -> u32;

    /// The versions it has.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Bytes of the longest results a procedure writes: so much room is there whenever one is called.
    fn results_max(&self) -> usize;

    /// Procedures, as (version, number), that must not run again when a call comes a second time: those whose second
    /// run does something else than their first, as REMOVE of NFS does. Their replies are kept for a while and sent
    /// again. A program names none by itself: then nothing is kept, and no memory taken for it.
    ///
    /// The promise: within one instance such a call runs once, whichever worker, path, transport or connection it comes by
    /// again, as long as it comes from the same address and port, within the age and the number of calls that
    /// [`DuplicateLimits`](crate::DuplicateLimits) say. It does not reach into another instance: a call that was answered before a
    /// take-over, and whose reply was lost, runs again in the new one. A program to which that matters keeps what it needs for
    /// it with its data.
    fn run_once(&self) -> &[(u32, u32)] {
        &[]
    }

    /// Procedures, as (version, number), that may be answered [`Handled::Later`], for one that has to wait for a disk, say.
    /// They are called only while there is room for more work: a record waits for that, a datagram is dropped (`handlers_busy`),
    /// as its caller asks again by itself.
    fn answered_later(&self) -> &[(u32, u32)] {
        &[]
    }

    /// Runs a procedure. It must not block, and what it answers now it answers without an allocation.
    ///
    /// # Errors
    /// What the caller is told instead of results. Arguments that cannot be read, or are followed by more bytes, are
    /// GARBAGE_ARGS.
    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal>;

    /// The same program for one more worker. What workers share, they share here.
    fn for_worker(&self) -> Box<dyn Program>;
}
