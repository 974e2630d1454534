//! What has to hold between two calls: simulations ask after each segment.

use super::{Connection, Timer, flag};
use crate::config::Config;
use crate::state::State;

impl Connection {
    /// Bytes of memory that its buffers and marks hold.
    pub(crate) fn buffered(&self) -> u64 {
        (self.send.memory() + self.receive.memory() + self.rare.marks.memory()) as u64
    }

    /// Whether its output is still to come.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Checks what has to hold between two calls.
    pub(crate) fn check(&self, config: &Config) {
        self.flight.check();
        assert!(!self.snd_nxt.before(self.snd_una), "{:?} {:?}", self.snd_una, self.snd_nxt);
        if self.state == State::Closed {
            assert!(self.flight.is_empty() && self.send.is_empty());
            return;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return;
        }
        match (self.flight.first(), self.flight.last()) {
            (Some(first), Some(last)) => {
                assert_eq!((first.start, last.end), (self.snd_una, self.snd_nxt), "what is in flight");
            }
            _ => assert_eq!(self.snd_una, self.snd_nxt, "nothing is in flight"),
        }
        let fin = u32::from(self.is(flag::FIN_SENT) && self.state != State::FinWait2);
        assert!(!self.snd_nxt.after(self.write_end() + fin), "more was sent than written");
        self.rare.marks.check(self.snd_nxt, self.write_end());
        assert_eq!(
            self.is(flag::MARKED),
            self.rare.urgent > 0 || !self.rare.marks.is_plain(),
            "marks are noted"
        );
        assert!(self.rare.urgent as usize <= self.send.len(), "urgent data that was not written");
        if self.is(flag::FIN_RECEIVED) {
            assert!(self.rare.reassembly.is_empty(), "bytes behind FIN");
        }
        self.rare.reassembly.check(self.rcv_nxt);
        // What lies ahead was offered.
        let edge = self.rcv_wup + self.rcv_wnd;
        assert!(self.rare.reassembly.end().is_none_or(|end| !end.after(edge)));
        assert!(self.receive.memory() <= 4 * self.receive.len().max(config.receive_max as usize).max(65_536));
        let waits = !self.flight.is_empty() && !self.listed;
        assert!(!waits || self.timer != Timer::None, "something is in flight, and no timer runs");
    }
}
