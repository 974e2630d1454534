//! Decides, once for each UDP socket that has a port, whether it gets a lease.

use std::net::SocketAddr;

use libc::c_int;
use twinpath_calls::table;
use twinpath_rules::{Bound, Rule};

use crate::started::{runs, started};
use crate::{explain, interface, own};

/// If nothing was decided yet for the descriptor, and it has a port: decides. `is_chosen`: the kernel has chosen the port.
pub(crate) fn decide(descriptor: c_int, is_chosen: bool) {
    if !table::is_undecided(descriptor) || !runs() {
        return;
    }
    let (Some(started), Some(local)) = (started(), table::local_address(descriptor)) else { return };
    let Ok(rules) = &started.rules else { return };
    let Some(rule) = rules.of(&started.program, Bound { local, is_chosen }) else {
        table::set_kernel(descriptor);
        explain::socket(descriptor, "by the kernel: no rule matches");
        return;
    };
    if rule.is_kernel {
        table::set_kernel(descriptor);
        explain::socket(descriptor, "by the kernel: a rule says so");
        return;
    }
    give(rule, descriptor, local);
}

fn give(rule: &Rule, descriptor: c_int, local: SocketAddr) {
    let found = match &rule.interface {
        Some(name) => Ok(name.clone()),
        None => interface::of(local.ip().to_canonical()),
    };
    let given = found.and_then(|interface| {
        let before = own::Before::now();
        let given = table::lend(descriptor, &interface, rule.mode).map(|()| interface);
        before.remember_what_is_new();
        given
    });
    match given {
        Ok(interface) => explain::socket(descriptor, &format!("fast path on {interface}")),
        Err(why) if table::is_worth_retrying(&why) => {}
        Err(why) => {
            table::set_kernel(descriptor);
            explain::socket(descriptor, &format!("by the kernel: {why}"));
        }
    }
}
