//! Validates the keys on which a switch's OpenFlow depends.

use std::collections::{BTreeMap, BTreeSet};

use super::switch::{NUMBER_MAX, Switch};
use crate::values::{Endpoint, Offload};

/// Maximum number of controllers, and of addresses to listen at.
const ENDPOINTS_MAX: usize = 16;

impl Switch {
    /// Whether controllers rule the switch, so that it has OpenFlow tables. A switch without controllers
    /// learns addresses and has no tables.
    #[must_use]
    pub const fn has_tables(&self) -> bool {
        !self.controller.is_empty() || !self.listen.is_empty()
    }

    /// Everything about controllers and numbers that cannot work: the key, and a sentence.
    pub(super) fn openflow_faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut wrong = |key: &str, sentence: String| faults.push((key.to_owned(), sentence));
        for (key, endpoints) in [("switch.controller", &self.controller), ("switch.listen", &self.listen)] {
            if endpoints.len() > ENDPOINTS_MAX {
                wrong(key, format!("{} addresses: at most {ENDPOINTS_MAX}", endpoints.len()));
            }
            let mut seen: BTreeSet<&Endpoint> = BTreeSet::new();
            if let Some(twice) = endpoints.iter().find(|endpoint| !seen.insert(endpoint)) {
                wrong(key, format!("{twice} twice: leave one of them out"));
            }
        }
        let files = [
            ("switch.tls_key", &self.tls_key),
            ("switch.tls_certificate", &self.tls_certificate),
            ("switch.tls_ca", &self.tls_ca),
        ];
        let mut endpoints = self.controller.iter().chain(&self.listen);
        let with_tls =
            endpoints.find(|endpoint| matches!(endpoint, Endpoint::Tls(_))).map(ToString::to_string);
        let given = files.iter().find(|(_, file)| file.is_some()).map(|(key, _)| (*key).to_owned());
        for (key, _) in files.iter().filter(|(_, file)| file.is_none()) {
            if let Some(needs) = with_tls.as_ref().or(given.as_ref()) {
                let sentence = "needs it: give a file; each end believes only certificates of tls_ca";
                wrong(key, format!("{needs} {sentence}"));
            }
        }
        let (fail_mode, is_offloading) = (self.fail_mode, self.offload == Offload::Auto);
        if let Some(why) = self.on_exit.fault(self.has_tables().then_some(fail_mode), is_offloading) {
            wrong("switch.on_exit", why.to_owned());
        }
        if self.has_tables() && self.names().count() as u64 > NUMBER_MAX {
            wrong("switch.port", format!("a switch with controllers has at most {NUMBER_MAX} ports"));
        }
        let mut numbers = BTreeMap::new();
        for (at, port) in self.port.iter().enumerate() {
            let Some(number) = port.number else { continue };
            if let Some(other) = numbers.insert(number, port.shown_name()) {
                let name = port.shown_name();
                let sentence =
                    format!("{number} is the number of port {other} already (port {name}): give another one");
                wrong(&format!("switch.port[{at}].number"), sentence);
            }
        }
        faults
    }
}
