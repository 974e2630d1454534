//! Fixed settings, and the best of them in hindsight.

use twinpath_time::{Duration, Instant};

use super::machine::Simulated;
use super::simulate::{Outcome, Rule, simulate};
use super::traces::Trace;
use crate::{Arrival, Decision, Woken};

/// A setting that a user could choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// Never sleeps.
    Poll,
    /// Spins for this long after an arrival, us, then sleeps; 0 sleeps at once.
    Spin(f64),
    /// Expects the next arrival after the mean of the last eight gaps, is woken this long before (us), and spins until
    /// as long after.
    Predict(f64),
}

/// The state of a worker with a fixed setting.
#[derive(Clone, Debug)]
pub struct Fixed {
    setting: Setting,
    request: bool,
    last: Option<Instant>,
    mean_us: f64,
}

impl Fixed {
    /// With or without a latency request, which is held all the time.
    #[must_use]
    pub const fn new(setting: Setting, request: bool) -> Self {
        Self { setting, request, last: None, mean_us: 0.0 }
    }
}

impl Rule for Fixed {
    fn arrived(&mut self, _: Instant, arrival: Arrival) {
        if let Some(last) = self.last {
            let gap = arrival.first.nanos_since(last) as f64 / 1e3;
            let rate = if self.mean_us == 0.0 { 1.0 } else { 1.0 / 8.0 };
            self.mean_us += (gap - self.mean_us) * rate;
        }
        self.last = Some(arrival.last);
    }

    fn decide(&mut self, now: Instant) -> Decision {
        let after =
            |us: f64| self.last.map_or(Instant::ZERO, |last| last + Duration::from_nanos((us * 1e3) as u64));
        let (from, until) = match self.setting {
            Setting::Poll => return Decision::Spin { until: Instant::NEVER },
            Setting::Spin(us) => (Instant::ZERO, after(us)),
            Setting::Predict(lead) => (after((self.mean_us - lead).max(0.0)), after(self.mean_us + lead)),
        };
        if self.last.is_none() || now >= until {
            Decision::Sleep { until: Instant::NEVER }
        } else if now >= from {
            Decision::Spin { until }
        } else {
            Decision::Sleep { until: from }
        }
    }

    fn woke(&mut self, _: Instant, _: Woken) {}

    fn holds(&self, _: Instant) -> bool {
        self.request
    }
}

/// All settings to try: every spin time in steps of a fifth.
#[must_use]
pub fn settings(machine: &Simulated) -> Vec<(Setting, bool)> {
    let spins = (0..76).map(|step| Setting::Spin(1.2f64.powi(step)));
    let leads = [4.0, 6.0, 8.0, 10.0, 13.0, 16.0, 20.0, 25.0, 30.0, 40.0, 50.0, 70.0, 100.0, 200.0, 400.0];
    let settings: Vec<Setting> = [Setting::Poll, Setting::Spin(0.0)]
        .into_iter()
        .chain(spins)
        .chain(leads.map(Setting::Predict))
        .collect();
    let requests: &[bool] = if machine.has_request() { &[false, true] } else { &[false] };
    requests.iter().flat_map(|request| settings.iter().map(|setting| (*setting, *request))).collect()
}

/// The outcome of every setting.
#[must_use]
pub fn outcomes(trace: &Trace, machine: &Simulated) -> Vec<(Setting, bool, Outcome)> {
    let replay = |(setting, request)| {
        (setting, request, simulate(trace, &mut Fixed::new(setting, request), machine, false))
    };
    settings(machine).into_iter().map(replay).collect()
}
