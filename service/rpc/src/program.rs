//! The interface of an RPC program: a number, its versions, and procedures that decode arguments and write results.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use nfs3_types::xdr_codec::Pack;
use twinpath_service::{Name, OwnMetrics, ServiceCounters};
use twinpath_time::{Duration, Instant};

use crate::auth::Credential;
use crate::refusal::Refusal;
use crate::xdr::write_opaque;

/// The transport of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram: it may be lost, and the client then repeats it.
    Datagram,
    /// A record in a stream.
    Stream,
}

/// When and from whom a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time of the turn in which it is served.
    pub now: Instant,
    /// The source of the call.
    pub peer: SocketAddr,
    /// Its transport.
    pub transport: Transport,
}

/// A call as its program sees it: of a version that the program supports, and with a credential flavour
/// that is served.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// When and from whom it came.
    pub arrival: Arrival,
    /// Transaction ID.
    pub xid: u32,
    /// The version called, one of [`Program::versions`].
    pub version: u32,
    /// The procedure, never NULL (0): the server answers that for every program.
    pub procedure: u32,
    /// The caller's credential.
    pub credential: Credential<'a>,
    /// The procedure's arguments.
    pub args: &'a [u8],
    /// Whether there is room for work. Without it, a call that needs some is [`Handled::Busy`].
    pub may_defer: bool,
}

/// Work that may block: it gets the arguments of its call, which need not be copied for it, and writes the results, or
/// returns a refusal.
pub type Work = Box<dyn FnOnce(&[u8], &mut Results<'_>) -> Result<(), Refusal> + Send>;

/// How a request was handled.
pub enum Handled {
    /// Its results have been written.
    Now,
    /// A thread that may block must do this work. Its caller waits, other calls do not. Results written so
    /// far are discarded.
    Later {
        /// One of [`Program::lanes`]: threads that do not return block further work of their lane alone.
        lane: u32,
        /// The work.
        work: Work,
    },
    /// This lane has no room for the work at present, and nothing was done. A record is passed again, while those behind it
    /// are served; a datagram is dropped, and its caller repeats it.
    Busy(u32),
}

impl Handled {
    /// Work for a thread that may block, of a program that has one lane, and that has taken the arguments out already.
    #[must_use]
    pub fn later(work: impl FnOnce(&mut Results<'_>) -> Result<(), Refusal> + Send + 'static) -> Self {
        Self::Later { lane: 0, work: Box::new(|_, results| work(results)) }
    }
}

/// For how long the results of a call may be repeated without its program, and the name by which they are
/// withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepable {
    /// The state that the results depend on. Programs of one service share their names: a program derives
    /// its own from its number, or from something unique, such as a file handle.
    pub name: Name,
    /// How long the results are valid if nobody withdraws them.
    pub hold: Duration,
}

/// The output of a procedure: the part of the send buffer after the header of the reply.
#[derive(Debug)]
pub struct Results<'a>(pub(crate) &'a mut Vec<u8>);

impl Results<'_> {
    /// Appends bytes that are already encoded as XDR.
    #[inline]
    pub fn write(&mut self, encoded: &[u8]) {
        self.0.extend_from_slice(encoded);
    }

    /// Appends an unsigned integer, or the value of an enumeration.
    #[inline]
    pub fn write_u32(&mut self, value: u32) {
        self.write(&value.to_be_bytes());
    }

    /// Appends opaque data of variable length.
    pub fn write_opaque(&mut self, bytes: &[u8]) {
        write_opaque(bytes, self.0);
    }

    /// The send buffer, for those that append to it themselves. Bytes in front of the results stay as they are.
    #[inline]
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        self.0
    }

    /// Encodes and appends a value of a type of `nfs3_types`.
    ///
    /// # Errors
    /// SYSTEM_ERR: it cannot be encoded.
    pub fn pack(&mut self, value: &impl Pack) -> Result<(), Refusal> {
        value.pack(self.0).map(drop).map_err(|_| Refusal::SystemError)
    }
}

/// An RPC program; each worker has its own value.
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
///    fn versions(&self) -> std::ops::RangeInclusive<u32> {
///         1..=1
///     }
///
///    fn results_max(&self) -> usize {
///         4
///     }
///
///    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
///         if request.procedure != 1 {
///             return Err(Refusal::ProcedureUnavailable);
///         }
///         let mut args = Reader::new(request.args);
///         let sum = args.u32()?.wrapping_add(args.u32()?);
///         results.write_u32(sum);
///         Ok(Handled::Now)
///     }
///
///    fn for_worker(&self) -> Box<dyn Program> {
///         Box::new(Adder)
///     }
/// }
/// ```
pub trait Program: Send {
    /// The program number.
    fn number(&self) -> u32;

    /// The versions served.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Length of the longest results that a procedure writes, bytes: there is always this much room when
    /// one is called.
    fn results_max(&self) -> usize;

    /// Procedures, as (version, number), that are not idempotent and must not run again when a call is
    /// repeated, such as REMOVE of NFS. Their replies are kept for a while and sent again. By default there
    /// are none: then nothing is kept, and no memory is allocated.
    ///
    /// The guarantee: within one instance such a call runs once, whichever worker, path, transport or
    /// connection its repetition uses. The repetition must come from the same address and port, and within
    /// the age and the number of calls of [`DuplicateLimits`](crate::DuplicateLimits). The guarantee does
    /// not extend to another instance: if a call was answered before a take-over and its reply was lost, it
    /// runs again in the new instance. A program that needs more must store it with its own data.
    fn run_once(&self) -> &[(u32, u32)] {
        &[]
    }

    /// Length of the longest results of a procedure that must run once, bytes. Each kept reply has that much memory.
    fn run_once_max(&self) -> usize {
        self.results_max()
    }

    /// Procedures, as (version, number), that may return [`Handled::Later`], for example because they wait
    /// for a disk. They are called only while there is room for more work. Without room a record waits, and
    /// a datagram is dropped (`handlers_busy`), because its caller repeats it.
    fn answered_later(&self) -> &[(u32, u32)] {
        &[]
    }

    /// Those of [`Self::answered_later`] that are called without room as well ([`Request::may_defer`]), because many of
    /// them are answered at once. None of them may be one of [`Self::run_once`].
    fn called_without_room(&self) -> &[(u32, u32)] {
        &[]
    }

    /// The clock by which calls arrive, for threads: the reply of a call that must run once and is answered later is
    /// kept from its end on. Without a clock it is kept from the arrival on.
    fn clock(&self) -> Option<fn() -> Instant> {
        None
    }

    /// How many lanes the work of [`Handled::Later`] has, numbered from 0.
    fn lanes(&self) -> u32 {
        1
    }

    /// Whether the results of this call may be repeated for equal calls, without the program
    /// ([`twinpath_service::Reflex`]). They must depend only on the version, the procedure, the credential
    /// without its stamp, the arguments, and the state of the returned name. They must not depend on the
    /// caller's address or on the time. Code that changes that state withdraws the name, by
    /// [`RpcService::kept_replies`](crate::RpcService::kept_replies).
    ///
    /// It is asked before [`Self::call`], and must be cheap. Calls that run once, and results that come later, are
    /// never kept.
    fn keep(&self, _request: &Request<'_>) -> Option<Keepable> {
        None
    }

    /// Runs a procedure. It must not block, and if it answers now, it must not allocate.
    ///
    /// # Errors
    /// The refusal that the caller gets instead of results. Arguments that cannot be decoded are
    /// GARBAGE_ARGS. Trailing bytes are ignored, because servers on libtirpc never see them.
    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal>;

    /// Defines metrics of its own. Called twice, with one set for the worker and one for other threads: both times it has
    /// to define the same ones in the same order, and the same identifiers are good for both.
    fn define(&mut self, _metrics: &mut OwnMetrics) {}

    /// Gets the counters of its worker's server with these metrics.
    fn count_in(&mut self, _counters: &Arc<ServiceCounters>) {}

    /// Makes the same program for one more worker. State that workers share is shared here.
    fn for_worker(&self) -> Box<dyn Program>;
}
