//! Why a socket is not accelerated: all reasons, from where each is decided to where it is said. Those of an owner are
//! in `sockets/owner/src/refusal.rs`; it tells them as sentences.

use std::io;
use std::net::IpAddr;

use crate::lending::LendError;

/// Why the kernel alone has the datagrams of a socket, or had all of them although it has a lease. Saying it allocates nothing, but
/// for [`Self::Lend`] and [`Self::Look`], which are never said in a signal handler.
#[derive(Debug, thiserror::Error)]
pub enum WhyKernel {
    /// Nobody has asked for the fast path of an interface.
    #[error("no interface was named for it")]
    NotAsked,

    // By rules.
    /// None is for the socket.
    #[error("no rule matches")]
    NoRule,
    /// None is for sockets whose program lets the kernel choose the port.
    #[error("no rule matches ports that the kernel has chosen")]
    NoRuleForChosen,
    /// The one that matches keeps it with the kernel.
    #[error("a rule says so")]
    Rule,
    /// The process may ask no owner.
    #[error("it may ask no owner of an interface (--owner none)")]
    NoOwner,

    // By its interface.
    /// There is none that the socket could be bound to.
    #[error("there is no interface but the loopback")]
    NoInterface,
    /// None has its address.
    #[error("no interface but the loopback has the address {0}")]
    NoInterfaceHas(IpAddr),
    /// It is bound to no address, and its rule names none of several interfaces.
    #[error("the rule names no interface, and there are several: {0}")]
    SeveralInterfaces(String),

    // By what the program does with it.
    /// It asks for something that only the kernel does.
    #[error("it asks for {0}")]
    AsksFor(&'static str),
    /// An option was set that is not known here.
    #[error("it sets an option that only the kernel knows (level {level}, number {name})")]
    Sets {
        /// Its level.
        level: i32,
        /// Its number there.
        name: i32,
    },
    /// It has asked by `ioctl(2)` when the last datagram came, and gets stamps from then on.
    #[error("it asks for stamps of time (SIOCGSTAMP)")]
    Stamps,
    /// Its receiving side was shut down.
    #[error("its receiving side was shut down")]
    ShutDown,
    /// A program of its SO_REUSEPORT group chooses the socket, which ours does not run.
    #[error("a BPF program distributes the datagrams of its group (SO_ATTACH_REUSEPORT_EBPF)")]
    Distributed,
    /// A duplicate was made when nothing was decided yet.
    #[error("it was duplicated before it was bound or used")]
    Duplicated,
    /// A set of epoll tells of it that is itself in one.
    #[error("it is in a set of epoll that is in another one")]
    NestedSet,
    /// A set of epoll tells one waiter of it.
    #[error("it is in a set of epoll for one event (EPOLLONESHOT) or exclusively (EPOLLEXCLUSIVE)")]
    SetForOne,
    /// Only four are noted for a socket.
    #[error("it is in more sets of epoll than four")]
    TooManySets,
    /// There is no place to note a further one.
    #[error("more sockets without a lease are in sets of epoll than are noted")]
    TooManyMembers,

    // By what it is.
    /// Leases are for UDP.
    #[error("it is no UDP socket")]
    NotUdp,
    /// Its number is beyond those that are known here.
    #[error("descriptors from {0} on have no fast path")]
    DescriptorFrom(usize),
    /// All places of the process are taken.
    #[error("{0} sockets of this process have a fast path, and that is all there are")]
    NoPlace(usize),

    // By those who give leases.
    /// Another thread asks, which lasts for a short time only: it may be tried again.
    #[error("another thread is giving a lease at this moment")]
    Busy,
    /// What the libraries learn of the kernel once is not learned in this child, and never will be.
    #[error("this process was forked while another thread of its parent was giving the first lease")]
    ForkedAtFirst,
    /// The request was given up meanwhile.
    #[error("it was not asked for")]
    NotRequested,
    /// The owner was asked.
    #[error("the owner of the interface has not answered yet")]
    NotAnswered,
    /// A socket that was to have its lease when it was bound does not wait for longer.
    #[error("the owner of the interface has not answered within {0} s")]
    Silent(u64),
    /// They give none.
    #[error("{0}")]
    Lend(#[from] LendError),
    /// The socket or the network namespace could not be looked at.
    #[error("cannot look at the interface: {0}")]
    Look(#[from] io::Error),

    // By its traffic.
    /// It has not earned a lease.
    #[error(
        "the calls that the library sees have received too little for a ring to pay ({datagrams} datagrams within {within_ms} ms)"
    )]
    TooLittle {
        /// The datagrams that earn one,
        datagrams: u8,
        /// if they come within this time, ms.
        within_ms: u32,
    },
    /// It had one.
    #[error("fewer than one of 8 datagrams came by the ring, which does not pay; it may earn another lease")]
    PaysNot,
    /// It has a lease, as in the five that follow.
    #[error("nothing came, or the program receives by other means (io_uring, or system calls of its own)")]
    NothingCame,
    /// No lease was taken.
    #[error("no call waited at the ring: each slept, or found what had come before it")]
    NoCallWaited,
    /// All frames in the ring were refused.
    #[error("what came by the ring had wrong checksums, or senders that cannot be")]
    AllRefused,
    /// The program in the kernel has let the kernel have it.
    #[error(
        "what came while a call waited at the ring was for the kernel: fragments, frames of several datagrams, or from this host"
    )]
    ForKernel,
    /// There was no room.
    #[error("the ring was full")]
    RingFull,
    /// Between the calls.
    #[error("what came did so while no call waited at the ring")]
    CameBetween,
}

impl WhyKernel {
    /// Whether it will be over soon: it may be tried again.
    #[must_use]
    pub const fn is_brief(&self) -> bool {
        matches!(self, Self::Busy)
    }
}

/// Equal are those of which the same is said.
impl PartialEq for WhyKernel {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.to_string() == other.to_string()
    }
}

impl Eq for WhyKernel {}
