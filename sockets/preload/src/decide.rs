//! Decides for each UDP socket whether it gets a lease. When the socket first receives, the rules decide. Then it has
//! to earn a lease, by receiving enough. Then the owner of the interface is asked, and a later call takes up the
//! answer. No call of the program waits for any of this, unless a rule says so (`lease = "at-bind"`): then `bind` waits for as long as an
//! owner may take, on the program's own stack. All else is done on a stack of its own: a lease begins with some 50 KiB of what is learnt
//! about arrivals.

use std::net::SocketAddr;

use libc::c_int;
use twinpath_calls::table::{self, Next, TakenUp, Waited};
use twinpath_calls::{Access, WhyKernel, epoll};
use twinpath_leases::lending::PATIENCE;
use twinpath_leases::rules::{Bound, Rule};
use twinpath_preloader::{handler, stack};

use crate::started::{Started, runs, started};
use crate::{explain, group, interface, own};

/// The rule that asks for a lease for a socket, with what it is bound to. If none does, the socket stays with the kernel.
fn rule_of(descriptor: c_int) -> Option<(&'static Started, &'static Rule, SocketAddr)> {
    if !runs() || !table::is_own_process() {
        return None;
    }
    let (started, local) = (started()?, table::local_address(descriptor)?);
    let rules = started.rules.as_ref().ok()?;
    // A rule that asks for a lease has been found before: only who has named the port is not known any more.
    let is_chosen = !table::is_port_named(descriptor) && !table::is_earning(descriptor);
    match rules.of(&started.program, Bound { local, is_chosen }) {
        None => keep_with_kernel(descriptor, &WhyKernel::NoRule),
        Some(rule) if rule.is_kernel => keep_with_kernel(descriptor, &WhyKernel::Rule),
        Some(_) if group::is_distributed(local.port()) => {
            keep_with_kernel(descriptor, &WhyKernel::Distributed);
        }
        Some(rule) => return Some((started, rule, local)),
    }
    None
}

fn keep_with_kernel(descriptor: c_int, why: &WhyKernel) {
    let _inside = own::Inside::enter();
    table::keep_with_kernel(descriptor);
    explain::without_lease(descriptor, why);
}

/// The socket was bound to a port that the program has named.
pub(crate) fn bound(descriptor: c_int) {
    // Most programs have no such rule, and may bind a socket for each query.
    if !started().is_some_and(Started::has_rule_at_bind) {
        return;
    }
    // In a handler nothing is allocated: then it is asked for when the socket has received something.
    if !handler::is_running() {
        // All signals are held back during a step. The owner is waited for in between, with the program's own stack and signals.
        table::take_steps(PATIENCE, |waited| {
            stack::with_room(|| lease_at_bind(descriptor, waited)).unwrap_or(Next::Done)
        });
    }
}

/// One step towards the lease of a socket whose rule makes `bind` wait.
fn lease_at_bind(descriptor: c_int, waited: Waited) -> Next {
    if !table::is_undecided(descriptor) {
        return Next::Done;
    }
    if !table::is_asked(descriptor) {
        if !rule_of(descriptor).is_some_and(|(_, rule, _)| rule.at_bind) {
            return Next::Done;
        }
        table::set_earning(descriptor);
        if !ask_with_room(descriptor) {
            let goes_on = table::is_undecided(descriptor) && !waited.is_over;
            return if goes_on { Next::Again } else { Next::Done };
        }
    }
    take_up_with_room(descriptor);
    let _inside = own::Inside::enter();
    let next = table::after_step(descriptor, waited, PATIENCE);
    next.unwrap_or_else(|why| {
        keep_with_kernel(descriptor, &why);
        Next::Done
    })
}

/// A socket about which nothing is decided yet has received this many datagrams by the kernel.
#[cold]
pub(crate) fn received(descriptor: c_int, count: u32) {
    if !table::is_undecided(descriptor) {
        return;
    }
    let mut asks = false;
    if !table::is_earning(descriptor) {
        let Some(started) = started() else { return };
        // A program may open a socket for each query: of these neither the address nor the process is asked for. It is decided alike
        // for a process that shares this memory (`vfork`).
        if !table::is_port_named(descriptor) && !started.has_rule_for_chosen() {
            return keep_with_kernel(descriptor, &WhyKernel::NoRuleForChosen);
        }
        if !table::is_own_memory() {
            return;
        }
        if !table::is_port_named(descriptor) || started.has_rule_at_bind() {
            let Some((_, rule, _)) = rule_of(descriptor) else { return };
            asks = rule.at_bind;
        }
        table::set_earning(descriptor);
    }
    // Counting needs no check of the process: `ask` makes it.
    if table::received(descriptor, count) || asks {
        ask(descriptor);
    }
}

/// Asks for a lease.
fn ask(descriptor: c_int) {
    // What allocates is put off until the program itself calls.
    if runs() && table::is_own_process() && !handler::is_running() {
        stack::with_room(|| ask_with_room(descriptor));
    }
}

/// Asks for a lease. Returns whether it could be asked for.
fn ask_with_room(descriptor: c_int) -> bool {
    let Some((started, rule, local)) = rule_of(descriptor) else { return false };
    let found = match &rule.interface {
        Some(name) => Ok(name.clone()),
        None => interface::of(local.ip().to_canonical()),
    };
    let asked = found.and_then(|interface| {
        if let Some(why) = epoll::why_none(descriptor) {
            return Err(why);
        }
        if started.access == Access::Own {
            return Err(WhyKernel::NoOwner);
        }
        let _inside = own::Inside::enter();
        table::ask(descriptor, &interface, &started.access)
    });
    match asked {
        Ok(connection) => {
            connection.inspect(|connection| own::remember(*connection));
            true
        }
        Err(why) if why.is_brief() => false,
        Err(why) => {
            keep_with_kernel(descriptor, &why);
            false
        }
    }
}

/// If the owner was asked for a lease for the socket: looks whether it has answered.
#[cold]
pub(crate) fn look_for_answer(descriptor: c_int) {
    // What follows takes some 70 system calls, so the time is looked at first.
    if !table::is_asked(descriptor)
        || !table::is_time_to_look()
        || !table::is_own_process()
        || handler::is_running()
    {
        return;
    }
    stack::with_room(|| take_up_with_room(descriptor));
}

fn take_up_with_room(descriptor: c_int) {
    let Some((_, rule, _)) = rule_of(descriptor) else { return };
    // It may have been put into a set since it was asked for.
    if let Some(why) = epoll::why_none(descriptor) {
        return keep_with_kernel(descriptor, &why);
    }
    let inside = own::Inside::enter();
    let taken = table::take_up(descriptor, rule.mode);
    drop(inside);
    has_answer(descriptor, taken);
}

fn has_answer(descriptor: c_int, taken: Result<Option<TakenUp>, WhyKernel>) {
    match taken {
        Ok(None) => {}
        Ok(Some(TakenUp { by, ifindex })) => {
            if explain::is_on() {
                let on = interface::named(ifindex);
                explain::socket(descriptor, format_args!("fast path on {on}, {by}"));
            }
        }
        Err(why) if why.is_brief() => {}
        Err(why) => keep_with_kernel(descriptor, &why),
    }
}
