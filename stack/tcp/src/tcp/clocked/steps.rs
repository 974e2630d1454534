//! What tests of acknowledgements and of timers do with a [`Rig`], beside the segments.

use twinpath_wire::tcp;

use super::*;

/// The round trip of a handshake in [`Rig::established`], and the time-out that follows from it.
pub(super) const RTT: Duration = Duration::from_millis(20);
pub(super) const RTO: Duration = Duration::from_millis(220);

/// MSS 1000, SACK, and a timestamp of 1.
pub(super) const STAMPS: [u8; 16] = [2, 4, 3, 232, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0];

/// Each segment leaves alone, and nothing but the time-out sends again.
pub(super) fn without_probe() -> Config {
    Config { tail_loss_probe: false, ..separate() }
}

impl Rig {
    /// An established connection of a listener with `options`. SYN has `flags` too; the handshake takes [`RTT`].
    pub(super) fn established(config: Config, options: Options, flags: u8, syn_options: &[u8]) -> Self {
        let mut rig = Self::listening_with(config, options);
        let said = rig.say_with(0, 0, Flags::SYN | flags, WINDOW, syn_options, &[]);
        rig.iss = said[0].seq;
        rig.later(RTT).say(1, 1, WINDOW, &[]);
        rig.id = rig.tcp.accept(ListenerId(0));
        rig
    }

    /// An established connection with SACK.
    pub(super) fn sacking(config: Config) -> Self {
        Self::established(config, Options::default(), 0, &SACK)
    }

    /// One with an MSS of 1000 and nothing else.
    pub(super) fn plain(config: Config) -> Self {
        Self::established(config, Options::default(), 0, &SACK[..4])
    }

    /// A connection whose SYN came twice: what the handshake took is not known.
    pub(super) fn unanswered(config: Config, syn_options: &[u8]) -> Self {
        let mut rig = Self::listening(config);
        for _ in 0..2 {
            rig.iss = 0;
            let said = rig.say_with(0, 0, Flags::SYN, WINDOW, syn_options, &[]);
            rig.iss = said[0].seq;
        }
        rig.say(1, 1, WINDOW, &[]);
        rig.id = rig.tcp.accept(ListenerId(0));
        rig
    }

    /// A connection that the engine opens, and its SYN.
    pub(super) fn opening(config: Config, options: Options) -> Self {
        let mut rig = Self::listening(config);
        rig.id = rig.tcp.connect(rig.now, SERVER.into(), PEER.into(), options).ok();
        rig.iss = rig.output()[0].seq;
        rig
    }

    /// What the peer says next comes after this time.
    pub(super) fn later(&mut self, time: Duration) -> &mut Self {
        // Each segment takes a millisecond.
        self.now += time;
        self.now = Instant::from_nanos(self.now.as_nanos() - 1_000_000);
        self
    }

    /// An acknowledgement with blocks of SACK.
    pub(super) fn blocks(&mut self, seq: u32, ack: u32, blocks: &[[u32; 2]], payload: &[u8]) -> Vec<Said> {
        let blocks: Vec<_> = blocks
            .iter()
            .map(|[start, end]| (self.iss.wrapping_add(*start), self.iss.wrapping_add(*end)))
            .collect();
        let mut options = tcp::Writer::default();
        options.sack(&blocks);
        self.say_with(seq, ack, Flags::ACK, WINDOW, options.bytes(), payload)
    }

    /// An acknowledgement that echoes what the engine's clock showed `age_ms` before the segment comes.
    pub(super) fn echo(&mut self, ack: u32, age_ms: u32) -> Vec<Said> {
        let offset = self.tcp.clock_offset(&self.tuple);
        let clock = ((self.now.as_nanos() + 1_000_000) / 1_000_000) as u32;
        self.stamped(ack, clock.wrapping_add(offset).wrapping_sub(age_ms))
    }

    /// An acknowledgement with timestamps.
    pub(super) fn stamped(&mut self, ack: u32, echo: u32) -> Vec<Said> {
        self.say_with(1, ack, Flags::ACK, WINDOW, &stamps(1, echo), &[])
    }

    /// A segment that shows the peer's clock.
    pub(super) fn shows(&mut self, seq: u32, value: u32, payload: &[u8]) -> Vec<Said> {
        self.say_with(seq, 1, Flags::ACK, WINDOW, &stamps(value, 0), payload)
    }

    fn connection(&self) -> &Connection {
        let index = self.id.expect("there is a connection").index as usize;
        self.tcp.slots[index].connection.as_deref().expect("it has not been forgotten")
    }

    /// When the first of its timers ends.
    pub(super) fn deadline(&self) -> Instant {
        self.connection().deadline()
    }

    /// How long it takes until then; `None`: no timer runs.
    pub(super) fn wait(&self) -> Option<Duration> {
        let deadline = self.deadline();
        (deadline != Instant::NEVER).then(|| deadline.since(self.now))
    }

    /// The first of the timers ends, to the nanosecond: not before, and then.
    pub(super) fn fire(&mut self) -> Vec<Said> {
        let deadline = self.deadline();
        assert_ne!(deadline, Instant::NEVER, "no timer runs");
        let early = self.due(Instant::from_nanos(deadline.as_nanos() - 1));
        assert_eq!((early, self.deadline()), (Vec::new(), deadline));
        self.due(deadline)
    }

    fn due(&mut self, now: Instant) -> Vec<Said> {
        let index = self.id.expect("there is a connection").index;
        self.now = now;
        let Tcp { slots, shared, .. } = &mut self.tcp;
        let connection = slots[index as usize].connection.as_deref_mut().expect("it has not been forgotten");
        connection.due(now, shared);
        let mut log = Log { iss: self.iss, ..Log::default() };
        self.tcp.work(now, index, &mut log);
        log.said
    }

    /// Fires after `wait`, and gives what is said then: numbers from the first of the engine, and lengths.
    pub(super) fn fires(&mut self, wait: Duration) -> Vec<(u32, usize)> {
        assert_eq!(self.wait(), Some(wait), "{:?}", self.info());
        let said = self.fire();
        self.brief(&said)
    }

    /// Numbers from the first of the engine, and lengths.
    pub(super) fn brief(&self, said: &[Said]) -> Vec<(u32, usize)> {
        said.iter().map(|said| (said.seq, said.len)).collect()
    }

    /// Why the connection has ended.
    pub(super) fn ended(&self) -> Option<crate::Ended> {
        self.info().ended
    }

    /// The events that wait to be told.
    pub(super) fn told(&mut self) -> u8 {
        let mut all = 0;
        while let Some((_, events)) = self.tcp.next_event() {
            all |= events.0;
        }
        all
    }
}
