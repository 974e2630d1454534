//! Decides, once for each UDP socket that has a port, whether it gets a lease.

use std::net::SocketAddr;

use libc::c_int;
use twinpath_calls::{Access, LentBy, table};
use twinpath_rules::{Bound, Rule};

use crate::started::{runs, started};
use crate::{explain, group, handler, interface, own};

/// If nothing was decided yet for the descriptor, and it has a port: decides.
pub(crate) fn decide(descriptor: c_int) {
    decide_for(descriptor, false);
}

/// As [`decide`]. `is_certain`: the socket will be used more often, also if this process has it of its parent.
pub(crate) fn decide_for(descriptor: c_int, is_certain: bool) {
    if !table::is_undecided(descriptor)
        || !runs()
        || !table::is_own_process()
        || !table::is_worth_deciding(descriptor, is_certain)
    {
        return;
    }
    let (Some(started), Some(local)) = (started(), table::local_address(descriptor)) else { return };
    let Ok(rules) = &started.rules else { return };
    let is_chosen = !table::is_port_named(descriptor);
    let Some(rule) = rules.of(&started.program, Bound { local, is_chosen }) else {
        table::set_kernel(descriptor);
        explain::socket(descriptor, format_args!("by the kernel: no rule matches"));
        return;
    };
    if handler::is_running() {
        return;
    }
    if rule.is_kernel {
        table::set_kernel(descriptor);
        explain::socket(descriptor, format_args!("by the kernel: a rule says so"));
        return;
    }
    if group::is_distributed(local.port()) {
        table::set_kernel(descriptor);
        explain::socket(descriptor, format_args!("by the kernel: {}", group::WHY));
        return;
    }
    give(rule, &started.access, descriptor, local);
}

fn give(rule: &Rule, access: &Access, descriptor: c_int, local: SocketAddr) {
    let found = match &rule.interface {
        Some(name) => Ok(name.clone()),
        None => interface::of(local.ip().to_canonical()),
    };
    let given = found.and_then(|interface| {
        let before = own::Before::now();
        // What was left by sockets that were closed is dropped there, too.
        let inside = own::Inside::enter();
        let given = table::lend(descriptor, &interface, access, rule.mode).map(|by| (interface, by));
        drop(inside);
        before.remember_what_is_new();
        given
    });
    match given {
        Ok((interface, Some(by @ LentBy::Owner(_)))) => {
            explain::socket(descriptor, format_args!("fast path on {interface}, {by}"));
        }
        Ok((interface, _)) => explain::socket(descriptor, format_args!("fast path on {interface}")),
        Err(why) if table::is_worth_retrying(&why) => {}
        Err(why) => {
            table::set_kernel(descriptor);
            explain::socket(descriptor, format_args!("by the kernel: {why}"));
        }
    }
}
