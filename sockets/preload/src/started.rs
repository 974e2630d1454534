//! What the program was started with: its name, and the rules.
#![allow(unsafe_code, reason = "the C library is asked for a number")]

use std::ffi::CString;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use twinpath_calls::{Access, WhyKernel};
use twinpath_leases::rules::{
    Bound, EXPLAIN_VARIABLE, LineError, OWNER_VARIABLE, RULES_VARIABLE, Rule, Rules,
};

use crate::preloader;

/// What the program was started with.
pub(crate) struct Started {
    pub(crate) program: String,
    pub(crate) rules: Result<Rules, LineError>,
    pub(crate) explain: Option<CString>,
    /// By whose rights sockets get rings.
    pub(crate) access: Access,
}

impl Started {
    /// Whether any rule makes bind wait for a lease.
    pub(crate) fn has_rule_at_bind(&self) -> bool {
        self.has_rule(|rule| rule.at_bind)
    }

    /// Whether any rule matches ports that the kernel has chosen.
    pub(crate) fn has_rule_for_chosen(&self) -> bool {
        self.has_rule(|rule| rule.chosen_ports)
    }

    /// Whether the first rule is for all sockets whose ports the program has named, and asks for a lease.
    pub(crate) fn takes_all_named(&self) -> bool {
        let first = self.rules.as_ref().ok().and_then(|rules| rules.rules.first());
        first.is_some_and(|rule| {
            let is_for_all = rule.program.is_none() && rule.ports.is_none() && rule.address.is_none();
            is_for_all && !rule.is_kernel
        })
    }

    /// Why a socket with that address, whose port the program has named, gets no lease whatever it receives.
    pub(crate) fn why_by_rules(&self, local: SocketAddr) -> Option<WhyKernel> {
        match self.rules.as_ref().ok()?.of(&self.program, Bound { local, is_chosen: false }) {
            None => Some(WhyKernel::NoRule),
            Some(rule) => rule.is_kernel.then_some(WhyKernel::Rule),
        }
    }

    fn has_rule(&self, is_it: impl Fn(&Rule) -> bool) -> bool {
        self.rules.as_ref().is_ok_and(|rules| rules.rules.iter().any(is_it))
    }
}

static STARTED: OnceLock<Option<Started>> = OnceLock::new();
/// From its beginning to its end: a constructor of another library may call hooks before, and they are passed on.
static RUNS: AtomicBool = AtomicBool::new(false);

/// `None` before the program has begun, and for one that is left alone.
pub(crate) fn started() -> Option<&'static Started> {
    STARTED.get()?.as_ref()
}

/// Whether the program has begun, and not ended.
pub(crate) fn runs() -> bool {
    RUNS.load(Ordering::Acquire)
}

/// The program begins.
pub(crate) fn begin() {
    STARTED.get_or_init(read);
    RUNS.store(true, Ordering::Release);
}

/// The program ends. Returns whether it is the first time that this is said.
pub(crate) fn end() -> bool {
    RUNS.swap(false, Ordering::AcqRel)
}

fn read() -> Option<Started> {
    // A program with more rights than its user is left alone, whatever the environment says.
    // SAFETY: it takes a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let line = preloader::variable(RULES_VARIABLE)?;
    let explain = preloader::variable(EXPLAIN_VARIABLE).filter(|to| !to.is_empty());
    let explain = explain.and_then(|to| CString::new(to).ok());
    let program = std::env::current_exe().ok()?;
    let name = program.file_name()?.to_string_lossy();
    // The file may have been replaced since the program was started.
    let program = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
    let access = preloader::variable(OWNER_VARIABLE);
    let access = access.and_then(|access| access.parse().ok()).unwrap_or_default();
    Some(Started { program, rules: Rules::from_line(&line), explain, access })
}
