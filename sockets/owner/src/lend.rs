//! Programs come, ask for leases, and go.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use twinpath_attach::{LeaseError, LeasedInterface, Load};
use twinpath_sys::clock;
use twinpath_sys::socket_kind::{SocketKind, network_namespace};

use crate::Owner;
use crate::places::{self, Occupant, Place};
use crate::program::{Heard, Program, Ring};
use crate::refusal::Refusal;
use twinpath_host::aside;
use twinpath_leases::lending::message::{Answer, Request};
use twinpath_leases::rules::Bound;

/// Maximum messages of a program in one turn, so that others have theirs. A lease ends the turn: it may take the kernel
/// a while.
const MESSAGES_MAX: usize = 8;

/// Programs that are let in in one turn.
const LET_IN_MAX: usize = 8;

/// A socket that is to have a lease.
struct Assigned {
    process: u32,
    number: u32,
    local: SocketAddr,
}

impl Owner {
    /// Accepts programs that wait, within the limits.
    pub(crate) fn let_in(&mut self) {
        for _ in 0..LET_IN_MAX {
            let Some(connection) = self.door.let_in() else { return };
            match Program::new(self.next_number, connection) {
                Ok(mut program) => {
                    program.shows = self.plan.passed.as_ref().map(|passed| passed.token);
                    self.admit(program);
                }
                Err(error) => tracing::warn!("cannot let a program in: {error}"),
            }
        }
    }

    fn admit(&mut self, program: Program) {
        let limits = self.plan.limits;
        let placed = |program: &Program| Occupant {
            user: program.user,
            has_rings: !program.rings.is_empty(),
            heard_at: program.heard_at,
        };
        let all: Vec<_> = self.programs.iter().map(placed).collect();
        let why = match places::for_one_of(program.user, &all, limits, clock::now()) {
            Place::Free => None,
            Place::Of(silent) => {
                // It may be about to ask.
                let why = "it has asked for nothing, and another program wanted its place (--programs)";
                self.programs[silent].answer(&Answer::Refused { request: 0, why: why.to_owned() }, &[]);
                self.dismiss(silent, "another one has its place, as it has asked for nothing");
                None
            }
            Place::UserFull => Some(format!(
                "it serves {} programs of user {}, and that is all it may (--programs-per-user)",
                limits.programs_per_user, program.user
            )),
            Place::Full => {
                Some(format!("it serves {} programs, and that is all it may (--programs)", limits.programs))
            }
        };
        if let Some(why) = why {
            self.refused.programs.add(1);
            program.answer(&Answer::Refused { request: 0, why }, &[]);
            program.hang_up();
            return;
        }
        tracing::debug!(
            pid = program.pid,
            user = program.user,
            name = program.name,
            "a program has connected"
        );
        self.next_number += 1;
        self.programs.push(program);
    }

    /// Does what a program asks for.
    pub(crate) fn attend(&mut self, number: u64) {
        for _ in 0..MESSAGES_MAX {
            let Some(at) = self.programs.iter().position(|program| program.number == number) else { return };
            let heard = self.programs[at].hear();
            if matches!(heard, Heard::Said(..)) {
                self.programs[at].heard_at = clock::now();
            }
            match heard {
                Heard::Nothing => return,
                Heard::Gone => {
                    self.give_all_unread(at);
                    return self.dismiss(at, "it has gone");
                }
                Heard::Fault(why) => {
                    self.refused.faults.add(1);
                    return self.dismiss(at, &why);
                }
                Heard::Said(Request::Known { token }, descriptors) => {
                    aside::close(descriptors);
                    if self.programs[at].shows.is_some_and(|shows| shows != token) {
                        self.refused.faults.add(1);
                        return self.dismiss(at, "it is no child of the program that this owner is for");
                    }
                    self.programs[at].shows = None;
                }
                Heard::Said(_, descriptors) if self.programs[at].shows.is_some() => {
                    aside::close(descriptors);
                    self.refused.faults.add(1);
                    return self.dismiss(at, "it has not shown that it is a child of the program");
                }
                Heard::Said(Request::Open { request, interface }, descriptors) => {
                    aside::close(descriptors);
                    if !self.open(at, request, &interface) {
                        self.dismiss(at, "it does not read what it has asked for");
                    }
                    return;
                }
                Heard::Said(Request::End { ring, hands_over }, descriptors) => {
                    aside::close(descriptors);
                    if hands_over {
                        self.give_unread(at, ring);
                    }
                    self.end(at, ring);
                }
                Heard::Said(Request::HandOver { ring }, descriptors) => {
                    aside::close(descriptors);
                    self.give_unread(at, ring);
                }
                Heard::Said(Request::Lend { request, interface }, descriptors) => {
                    if !self.answer(at, request, &interface, descriptors) {
                        self.dismiss(at, "it does not read what it has asked for");
                    }
                    return;
                }
            }
        }
    }

    /// Ends everything that a program has been given.
    pub(crate) fn dismiss(&mut self, at: usize, why: &str) {
        // In order, as each has its turn.
        self.programs[at].hang_up();
        self.take_number(at);
        let program = self.programs.remove(at);
        tracing::debug!(
            pid = program.pid,
            user = program.user,
            name = program.name,
            "a program is served no more: {why}"
        );
    }

    /// Takes its number from a program that has had no lease for a while, and with it the memory of its rings.
    pub(crate) fn take_unused_number(&mut self, number: u64) {
        let Some(at) = self.programs.iter().position(|program| program.number == number) else { return };
        if self.programs[at].gives_number_back_at().is_some_and(|when| when <= clock::now()) {
            self.take_number(at);
        }
    }

    /// Takes from a program its number on the interface, and all its leases.
    fn take_number(&mut self, at: usize) {
        let program = &mut self.programs[at];
        // The next number comes with new memory. Its rings need new names, as the program may still have the old ones mapped.
        program.first_ring = program.rings_after();
        let Some(process) = program.process.take() else { return };
        if let Some(interface) = &mut self.leased {
            program.put_earlier += interface.put_for(process).wrapping_sub(program.put_before);
            interface.release(process);
        }
        program.put_before = 0;
        // Without the kernel's program a frame costs nothing.
        if self.programs.iter().all(|program| program.process.is_none()) {
            self.leased = None;
        }
    }

    fn end(&mut self, at: usize, ring: u32) {
        let program = &mut self.programs[at];
        // The program may name what it does not have.
        let Some(at) = program.rings.iter().position(|of| of.ring == ring) else { return };
        let ended = program.rings.swap_remove(at);
        // Of what a former owner has given, nothing is left to be done: its ring is closed, and no other socket gets it.
        if let (Some(interface), Some(process), Some(number)) =
            (&mut self.leased, program.process, ended.number)
        {
            interface.take_from_other(process, number);
        }
        if !program.has_own_rings() {
            program.unused_since = clock::now();
        }
        program.forget_former();
    }

    /// Makes the rings of a program, before it asks for the first lease. Returns whether it could be answered.
    fn open(&mut self, at: usize, request: u32, interface: &str) -> bool {
        let opened = match self.programs[at].process {
            Some(_) => Ok(()),
            None if interface != self.plan.interface => Err(self.is_not(interface)),
            None => match self.spend_opening(at) {
                Ok(()) => self.admit_to_interface(at).map(drop).map_err(Refusal::from),
                Err(why) => Err(why),
            },
        };
        let program = &mut self.programs[at];
        let answer = match opened {
            Ok(()) => Answer::Opened { request },
            Err(why) => {
                self.refused.leases.add(1);
                tracing::debug!(pid = program.pid, user = program.user, "a program gets no rings: {why}");
                program.refused();
                Answer::Refused { request, why: why.to_string() }
            }
        };
        program.answer(&answer, &[])
    }

    fn is_not(&self, interface: &str) -> Refusal {
        Refusal::OtherInterface { own: self.plan.interface.clone(), asked: interface.to_owned() }
    }

    /// Gives the socket a lease that comes with a request. Returns whether the program could be answered.
    fn answer(&mut self, at: usize, request: u32, interface: &str, descriptors: Vec<OwnedFd>) -> bool {
        let assigned = match descriptors.as_slice() {
            [socket] => self.assign(at, interface, socket.as_fd()),
            _ => Err(Refusal::NotOneSocket),
        };
        // Closing a UDP socket never waits, and its program may bind the port again as soon as it has closed its own.
        let (sockets, others): (Vec<_>, Vec<_>) = descriptors
            .into_iter()
            .partition(|socket| SocketKind::of(socket.as_fd()) == Ok(Some(SocketKind::Udp)));
        drop(sockets);
        aside::close(others);
        let assigned = match assigned {
            Ok(Some(assigned)) => assigned,
            // It takes a while, and the program shows the socket again.
            Ok(None) => return self.open(at, request, interface),
            Err(why) => return self.refuse(at, request, &why),
        };
        self.programs[at].answer(&Answer::Seen { request }, &[]) && self.settle(at, request, assigned)
    }

    /// A socket gets no lease.
    fn refuse(&mut self, at: usize, request: u32, why: &Refusal) -> bool {
        self.refused.leases.add(1);
        let program = &mut self.programs[at];
        tracing::debug!(pid = program.pid, user = program.user, "a socket gets no lease: {why}");
        program.refused();
        program.answer(&Answer::Refused { request, why: why.to_string() }, &[])
    }

    /// All that the descriptor of a socket is needed for. It does not wait. `None`: the program has no rings.
    fn assign(
        &mut self,
        at: usize,
        interface: &str,
        socket: BorrowedFd<'_>,
    ) -> Result<Option<Assigned>, Refusal> {
        let local = self.may_have(at, interface, socket)?;
        let Some(process) = self.programs[at].process else { return Ok(None) };
        let user = self.programs[at].user;
        if !self.lendings.spend(user, clock::now()) {
            return Err(Refusal::LeasesTooFast { user });
        }
        let Some(interface) = &mut self.leased else { return Err(Refusal::NoRings) };
        let number = interface.assign_to_other(process, socket, local)?;
        Ok(Some(Assigned { process, number, local }))
    }

    /// The rest, for which the owner waits some tens of milliseconds. As [`Self::answer`].
    fn settle(&mut self, at: usize, request: u32, Assigned { process, number, local }: Assigned) -> bool {
        let Some(interface) = &mut self.leased else { return false };
        let loan = match interface.settle_for_other(process, number, local) {
            Ok(loan) => loan,
            Err(why) => return self.refuse(at, request, &why.into()),
        };
        let Some(memory) = interface.memory(process) else { return false };
        let program = &mut self.programs[at];
        let ring = program.first_ring + number;
        program.rings.push(Ring { ring, number: Some(number), local });
        program.answer(&Answer::Lent { request, ring, loan }, &memory)
    }

    /// Gives a program that has none a number on the interface.
    fn admit_to_interface(&mut self, at: usize) -> Result<u32, LeaseError> {
        let begun = clock::now();
        let interface = match &mut self.leased {
            Some(interface) => interface,
            empty => {
                let limits = self.plan.limits;
                let opened = LeasedInterface::open_for_others(
                    &self.plan.interface,
                    limits.programs,
                    limits.sockets_per_program,
                    Load::AtOnce,
                );
                empty.insert(opened?)
            }
        };
        let admitted = interface.admit();
        let program = &mut self.programs[at];
        self.openings.charge(program.user, clock::now().since(begun));
        let process = admitted?;
        (program.process, program.put_before) = (Some(process), interface.put_for(process));
        program.unused_since = clock::now();
        Ok(process)
    }

    /// Counts what rings cost the owner. The reason if the program's user has cost it too much lately.
    fn spend_opening(&mut self, at: usize) -> Result<(), Refusal> {
        let user = self.programs[at].user;
        if self.openings.spend(user, clock::now()) {
            return Ok(());
        }
        Err(Refusal::ProgramsTooFast { user })
    }

    /// Whether the program may have a lease for this socket: the address that it is bound to, or why not.
    fn may_have(&self, at: usize, interface: &str, socket: BorrowedFd<'_>) -> Result<SocketAddr, Refusal> {
        let (program, limits) = (&self.programs[at], self.plan.limits);
        if interface != self.plan.interface {
            return Err(self.is_not(interface));
        }
        if SocketKind::of(socket) != Ok(Some(SocketKind::Udp)) {
            return Err(Refusal::NotUdp);
        }
        let namespace = network_namespace(socket).map_err(Refusal::NamespaceUnknown)?;
        if namespace != self.namespace {
            return Err(Refusal::OtherNamespace);
        }
        let local =
            rustix::net::getsockname(socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
        let local = local.filter(|local| local.port() != 0).ok_or(Refusal::Unbound)?;
        if let Some(rules) = &self.plan.rules {
            // Whether the kernel has chosen the port is known to the program alone.
            match rules.of(&program.name, Bound { local, is_chosen: false }) {
                Some(rule) if !rule.is_kernel => {}
                Some(_) => return Err(Refusal::Rule(local)),
                None => return Err(Refusal::NoRule(local)),
            }
        }
        if program.socket_count() >= limits.sockets_per_program as usize {
            return Err(Refusal::SocketsOfProgram(limits.sockets_per_program));
        }
        let of_user: usize =
            self.programs.iter().filter(|other| other.user == program.user).map(Program::socket_count).sum();
        if of_user >= limits.sockets_per_user as usize {
            return Err(Refusal::SocketsOfUser { user: program.user, most: limits.sockets_per_user });
        }
        Ok(local)
    }
}
