//! Other controllers, listeners and another fail mode while the switch runs.

use std::io::ErrorKind;

use twinpath_config::{Endpoint, Switch};

use crate::controllers::Bound;
use crate::openflow_control::control::Workers;
use crate::openflow_control::{OpenFlow, StartError};

impl OpenFlow {
    /// Binds the addresses to listen at that are new. Mistakes are added to the list.
    pub async fn bind_new(&self, former: &Switch, wanted: &Switch, mistakes: &mut Vec<String>) -> Vec<Bound> {
        let mut bound = Vec::new();
        for endpoint in wanted.listen.iter().filter(|endpoint| !former.listen.contains(endpoint)) {
            match super::bind(endpoint, self.controllers.tls().cloned()).await {
                Ok(listener) => bound.push(listener),
                Err(error) => mistakes.push(self.explained(error).to_string()),
            }
        }
        bound
    }

    /// An error of a running switch, which the sandbox may be the reason of.
    fn explained(&self, error: StartError) -> StartError {
        let folders = &self.folders;
        match error {
            StartError::Listen { endpoint, error }
                if error.kind() == ErrorKind::PermissionDenied
                    && super::folder_of(&endpoint).is_some_and(|folder| !folders.contains(&folder)) =>
            {
                let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                let folders =
                    if folders.is_empty() { "there was none".to_owned() } else { folders.join(", ") };
                StartError::Confined { endpoint, folders }
            }
            error => error,
        }
    }

    /// Goes on with other controllers, listeners and another fail mode. `bound` is from [`Self::bind_new`].
    pub fn change(&mut self, former: &Switch, wanted: &Switch, bound: Vec<Bound>, workers: &mut Workers) {
        let gone = |former: &[Endpoint], wanted: &[Endpoint]| -> Vec<Endpoint> {
            former.iter().filter(|endpoint| !wanted.contains(endpoint)).cloned().collect()
        };
        for endpoint in gone(&former.listen, &wanted.listen) {
            self.controllers.stop_listening(&endpoint);
        }
        bound.into_iter().for_each(|listener| self.controllers.add_listener(listener));
        for endpoint in gone(&former.controller, &wanted.controller) {
            self.controllers.forget(&endpoint);
        }
        for endpoint in gone(&wanted.controller, &former.controller) {
            self.controllers.connect(endpoint);
        }
        self.fail.set_mode(wanted.fail_mode);
        self.follow_controllers(workers);
    }
}
