//! How the frames of a switch's interfaces are treated when the switch has ended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::values::FailMode;

/// How the frames of a switch's interfaces are treated when the switch has ended, or hangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OnExit {
    /// Nobody forwards them.
    #[default]
    Dark,
    /// The kernel bridge that the interfaces belong to forwards them.
    Bridge,
    /// Flows that the kernel forwards continue for this many seconds after the end; nobody forwards the
    /// others.
    Keep(u32),
}

impl OnExit {
    /// How the values are written.
    pub const WORDS: [&str; 3] = ["dark", "bridge", "keep=SECONDS"];

    /// The maximum time for which flows continue: a day.
    pub const KEEP_MAX_S: u32 = 86_400;

    /// Why a switch cannot have this value: with controllers it has a fail mode, and the kernel may forward
    /// its flows.
    #[must_use]
    pub const fn fault(self, with_controllers: Option<FailMode>, offloads: bool) -> Option<&'static str> {
        match (self, with_controllers) {
            (Self::Bridge, Some(FailMode::Secure)) => Some(
                "with controllers, a bridge would pass what the flows deny whenever this process is gone or hangs: leave on_exit at \
                 dark, or say by fail_mode = \"standalone\" that frames may pass without a controller",
            ),
            (Self::Keep(_), None) => Some(
                "only OpenFlow flows can go on without the switch: give it a controller or an address to listen at, or leave on_exit \
                 at dark",
            ),
            (Self::Keep(_), Some(_)) if !offloads => Some(
                "only flows that the kernel forwards can go on without the switch: leave offload at auto, or on_exit at dark",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for OnExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dark => f.write_str("dark"),
            Self::Bridge => f.write_str("bridge"),
            Self::Keep(seconds) => write!(f, "keep={seconds}"),
        }
    }
}

impl FromStr for OnExit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |text: &str| {
            let seconds = text.parse().ok().filter(|seconds| (1..=Self::KEEP_MAX_S).contains(seconds));
            seconds.ok_or_else(|| {
                format!(
                    "`{text}` is no number of seconds: flows go on for 1 to {}, as in keep=30",
                    Self::KEEP_MAX_S
                )
            })
        };
        match text.split_once('=') {
            None if text == "dark" => Ok(Self::Dark),
            None if text == "bridge" => Ok(Self::Bridge),
            Some(("keep", text)) => seconds(text).map(Self::Keep),
            _ => Err(format!("unknown choice '{text}': choose dark, bridge or keep=SECONDS")),
        }
    }
}

impl TryFrom<String> for OnExit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OnExit> for String {
    fn from(what: OnExit) -> Self {
        what.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_is_written_as_it_is_read_and_others_are_refused() {
        for what in [OnExit::Dark, OnExit::Bridge, OnExit::Keep(1), OnExit::Keep(OnExit::KEEP_MAX_S)] {
            assert_eq!(what.to_string().parse(), Ok(what));
        }
        let secure = Some(FailMode::Secure);
        assert_eq!(OnExit::Keep(1).fault(secure, true), None);
        assert!(
            OnExit::Keep(1).fault(None, true).is_some() && OnExit::Keep(1).fault(secure, false).is_some()
        );
        for wrong in ["", "keep", "keep=", "keep=0", "keep=86401", "keep=-1", "keep=1.5", "dark=1", "Dark"] {
            assert!(wrong.parse::<OnExit>().is_err(), "{wrong}");
        }
    }
}
