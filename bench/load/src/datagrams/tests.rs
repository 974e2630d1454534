//! A stream to a service in memory that loses a given share of datagrams.

use super::*;

const MS: u64 = 1_000_000;
const CONFIG: DatagramsConfig = DatagramsConfig {
    session: 7,
    size: 100,
    rate_per_s: Some(1000.0),
    duration: Duration::from_secs(3),
    timeout: Duration::from_secs(1),
};

/// The far end, and the time.
struct Far {
    now_ns: u64,
    arrived: Arrived,
    /// One of this many datagrams is lost on its way; 0: none.
    loses: u64,
    /// Whether questions are answered.
    answers: bool,
}

impl Far {
    fn new(loses: u64) -> Self {
        Self { now_ns: 1, arrived: Arrived::default(), loses, answers: true }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now_ns)
    }

    /// One turn of a client that sends at most `most` datagrams at a time.
    fn turn(&mut self, stream: &mut Datagrams, most: u64) {
        let now = self.now();
        if stream.asks(now) {
            let mut question = vec![0; stream.question_len()];
            stream.write_question(&mut question, now);
            let Some((7, Message::Question { number })) = stream::read(&question) else {
                panic!("no question")
            };
            if self.answers {
                stream.receive(&stream::answer(7, number, &self.arrived), now);
            }
        }
        for _ in 0..stream.due(now).min(most) {
            let mut data = [0; 100];
            stream.write(&mut data);
            let Some((7, Message::Data { sequence })) = stream::read(&data) else { panic!("no data") };
            if self.loses == 0 || sequence % self.loses != 1 {
                self.arrived.datagrams += 1;
                self.arrived.bytes += 100;
                self.arrived.highest = sequence;
            }
        }
    }

    /// Turns every millisecond until the stream is done.
    fn run(&mut self, stream: &mut Datagrams) -> DatagramsSummary {
        for _ in 0..100_000 {
            self.turn(stream, 64);
            if stream.is_done() {
                return stream.summary();
            }
            self.now_ns += MS;
        }
        panic!("it has no end");
    }
}

fn stream(config: DatagramsConfig) -> Datagrams {
    Datagrams::new(config).unwrap()
}

#[test]
fn what_left_and_what_arrived_are_counted_each_second() {
    let summary = Far::new(4).run(&mut stream(CONFIG));
    assert_eq!((summary.sent, summary.arrived.datagrams), (3000, 2250), "{summary:?}");
    assert_eq!((summary.lost_here, summary.left_out, summary.foreign), (0, 0, 0));
    assert!(summary.is_counted && !summary.is_silent && !summary.has_restarted);
    assert_eq!(summary.elapsed, Duration::from_secs(3));
    let at: Vec<_> = summary.samples.iter().map(|sample| sample.at.as_millis()).collect();
    assert_eq!(at, [1000, 2000, 3000], "{:?}", summary.samples);
    let last = summary.samples[2];
    assert_eq!((last.sent, last.arrived, last.bytes), (3000, 2250, 225_000));
}

#[test]
fn nothing_is_sent_to_whom_does_not_count() {
    let mut stream = stream(CONFIG);
    let mut far = Far { answers: false, ..Far::new(0) };
    let summary = far.run(&mut stream);
    assert_eq!((summary.sent, summary.is_counted, summary.elapsed), (0, false, Duration::ZERO));
    assert_eq!(far.now_ns / MS, 1000, "it asked for as long as it was told");
    assert_eq!(stream.question, 10, "it asked again");
}

#[test]
fn a_service_that_falls_silent_ends_it() {
    let config = DatagramsConfig { duration: Duration::from_secs(100), ..CONFIG };
    let (mut stream, mut far) = (stream(config), Far::new(0));
    while far.now_ns < 2500 * MS {
        far.turn(&mut stream, 64);
        far.now_ns += MS;
    }
    far.answers = false;
    let summary = far.run(&mut stream);
    assert!(summary.is_silent && summary.is_counted);
    assert_eq!(summary.elapsed, Duration::from_secs(13), "ten time-outs after the answer of second 2");
    assert_eq!(summary.samples.len(), 2);
    let mut later = Datagrams::new(CONFIG).unwrap();
    let mut far = Far::new(0);
    while far.now_ns < 3000 * MS {
        far.turn(&mut later, 64);
        far.now_ns += MS;
    }
    far.answers = false;
    assert!(far.run(&mut later).is_silent, "silence at the end is told as well");
}

#[test]
fn what_has_no_room_is_lost_here_and_what_is_late_is_left_out() {
    let (mut stream, mut far) = (stream(CONFIG), Far::new(0));
    far.turn(&mut stream, 64);
    stream.lost_here(1);
    // Half a second without sending: only the last 64 ms are made up for.
    far.now_ns += 500 * MS;
    assert_eq!(stream.due(far.now()), 64);
    let summary = far.run(&mut stream);
    assert_eq!((summary.lost_here, summary.left_out), (1, 436));
    assert_eq!(summary.sent, 3000 - 436 - 1, "{summary:?}");
}

#[test]
fn a_late_turn_leaves_out_nothing_at_the_end() {
    let (mut stream, mut far) = (stream(CONFIG), Far::new(0));
    while far.now_ns < 2950 * MS {
        far.turn(&mut stream, 64);
        far.now_ns += MS;
    }
    far.now_ns += 60 * MS;
    let summary = far.run(&mut stream);
    assert_eq!((summary.sent, summary.left_out), (3000, 0), "{summary:?}");
}

#[test]
fn without_a_rate_it_sends_as_much_as_leaves() {
    let (mut stream, mut far) = (stream(DatagramsConfig { rate_per_s: None, ..CONFIG }), Far::new(0));
    far.turn(&mut stream, 5);
    assert_eq!((stream.written(), stream.next_deadline()), (5, Instant::ZERO));
    assert!(far.run(&mut stream).sent > 100_000);
}

#[test]
fn an_end_before_time_is_reported_as_it_is() {
    let (mut stream, mut far) = (stream(CONFIG), Far::new(0));
    while far.now_ns < 1500 * MS {
        far.turn(&mut stream, 64);
        far.now_ns += MS;
    }
    stream.end(far.now());
    let summary = far.run(&mut stream);
    assert_eq!((summary.sent, summary.arrived.datagrams), (1500, 1500));
    assert_eq!((summary.elapsed.as_millis(), summary.samples.len()), (1500, 2));
    let mut unasked = Datagrams::new(CONFIG).unwrap();
    unasked.end(far.now());
    assert!(unasked.is_done() && !unasked.summary().is_counted);
}

#[test]
fn a_service_that_starts_again_is_noticed() {
    let (mut stream, mut far) = (stream(CONFIG), Far::new(0));
    while far.now_ns < 1500 * MS {
        far.turn(&mut stream, 64);
        far.now_ns += MS;
    }
    far.arrived = Arrived::default();
    let summary = far.run(&mut stream);
    assert!(summary.has_restarted && !summary.is_silent);
    assert_eq!(
        summary.arrived.datagrams,
        1000 + 1500,
        "what the first one said, and what the second one did"
    );
}

#[test]
fn only_answers_to_questions_that_were_asked_count() {
    let (mut stream, mut far) = (stream(CONFIG), Far::new(0));
    far.turn(&mut stream, 64);
    let told = Arrived { datagrams: 99, ..Arrived::default() };
    for datagram in [stream::answer(8, 0, &told), stream::answer(7, 44, &told), stream::question(7, 0)] {
        stream.receive(&datagram, far.now());
    }
    stream.receive(b"anything", far.now());
    // A second answer to a question that was answered.
    stream.receive(&stream::answer(7, 0, &told), far.now());
    let summary = stream.summary();
    assert_eq!((summary.foreign, summary.arrived.datagrams), (4, 0));
}

#[test]
fn samples_have_a_bound() {
    for (seconds, interval) in [(1, 1), (3600, 1), (3601, 2), (86_400, 24)] {
        assert_eq!(sample_interval(Duration::from_secs(seconds)).as_secs(), interval);
    }
    for impossible in [
        DatagramsConfig { size: 31, ..CONFIG },
        DatagramsConfig { size: 65_508, ..CONFIG },
        DatagramsConfig { duration: Duration::ZERO, ..CONFIG },
        DatagramsConfig { timeout: Duration::ZERO, ..CONFIG },
        DatagramsConfig { rate_per_s: Some(0.0), ..CONFIG },
        DatagramsConfig { rate_per_s: Some(f64::NAN), ..CONFIG },
    ] {
        assert!(Datagrams::new(impossible).is_err(), "{impossible:?}");
    }
}
