//! Compares the replies of the program at tc with those of `stack/reflex`, which are a worker's: on the frames of
//! the corpus, on frames of all lengths, and on thousands of corrupted frames.

use std::ops::ControlFlow;
use std::sync::Arc;

use twinpath_bpf::{KeptMaps, Path, QUEUES_MAX, ReflexPlan, Steering};
use twinpath_claims::corpus;
use twinpath_claims::{Answers, Claim, Context, Reflex, Table, Verdict, verdict};
use twinpath_frame::Mapping;
use twinpath_reflex::NotReplied;
use twinpath_reflex::mirror::{self, Known};
use twinpath_rings::answering::ByWorker;
use twinpath_rings::direct::DirectRing;
use twinpath_rings::pending::{self, Pending};
use twinpath_sys::clock;
use twinpath_time::Duration;
use twinpath_wire::Protocol;

use crate::common::{direct_ring, filter, ingress, run};
use crate::frames::{changed, least_for_skb, stay_on_one_cpu};
use crate::mirrors::{
    PEERS, PORT, RATE, corrupted, expected, know_peers, mirrored, not_replied, request, request_to, way,
    with_reflex,
};

pub(crate) const NEXT: u32 = u32::MAX;
pub(crate) const DROP: u32 = 2;
pub(crate) const REDIRECT: u32 = 7;

/// Fixed, so that a failure can be reproduced.
const SEED: u64 = 20_261_123;
const FRAMES: usize = 20_000;
/// The program at tc, with mirrors, and a worker's ring, which gets frames without a reply.
pub(crate) struct Replies {
    pub(crate) steering: Steering,
    pub(crate) ring: DirectRing,
}

impl Replies {
    fn load(partial_checksums: bool) -> Self {
        Self::with(&ReflexPlan { partial_checksums, rate: RATE, tries_worker: false }, None)
    }

    pub(crate) fn with(plan: &ReflexPlan, kept: Option<&Arc<KeptMaps>>) -> Self {
        stay_on_one_cpu();
        let mut steering =
            Steering::load_with_reflexes(Path::Packet, 1, Duration::from_secs(3600), plan, kept).unwrap();
        know_peers(&mut steering);
        let ring = direct_ring(&steering);
        Self { steering, ring }
    }

    pub(crate) fn count(&self, why: NotReplied) -> u64 {
        not_replied(&self.steering, why)
    }

    /// Shows a frame to the program, again if it was made a canary.
    pub(crate) fn show(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        self.shown(frame, |steering, frame| changed(ingress(steering), frame))
    }

    pub(crate) fn shown(
        &mut self,
        frame: &[u8],
        show: impl Fn(&Steering, &[u8]) -> (u32, Vec<u8>),
    ) -> (u32, Vec<u8>) {
        let attempt = |replies: &mut Self, _| {
            let canaries = replies.count(NotReplied::Canary);
            let shown = show(&replies.steering, frame);
            if replies.count(NotReplied::Canary) == canaries {
                return ControlFlow::Break(shown);
            }
            // The worker gets it, whole and alone.
            let taken = replies.taken();
            let expected = replies.ring.is_open().then(|| frame.to_vec());
            assert_eq!((shown.0, taken), (DROP, expected), "a canary");
            ControlFlow::Continue(())
        };
        let tried = (0..100).try_for_each(|number| attempt(self, number));
        match tried {
            ControlFlow::Break(shown) => shown,
            ControlFlow::Continue(()) => panic!("100 canaries in a row"),
        }
    }

    /// The frame that the worker has been given.
    pub(crate) fn taken(&mut self) -> Option<Vec<u8>> {
        self.ring.take(|frame| frame.bytes.to_vec())
    }

    /// Shows a frame, and says what is wrong.
    fn judge(&mut self, frame: &[u8], table: &Table) -> Result<Option<NotReplied>, String> {
        let expected = expected(frame, table, Known::Nothing);
        let before = NotReplied::ALL.map(|why| self.count(why));
        let (action, out) = self.show(frame);
        let taken = self.taken();
        let claimed = matches!(verdict(frame, &Context::default(), table), Verdict::Claimed(_));
        let wanted = match (&expected, claimed) {
            (Some(Ok(reply)), _) => (REDIRECT, Some(reply.clone()), None),
            (_, true) => (DROP, None, Some(frame.to_vec())),
            (_, false) => (NEXT, None, None),
        };
        let out = (action == REDIRECT).then_some(out);
        if (action, out.clone(), taken.clone()) != wanted {
            return Err(format!(
                "expected {expected:02x?}, found {action}, out {out:02x?}, to the worker {taken:02x?}: {frame:02x?}"
            ));
        }
        let Some(Err(why)) = expected else { return Ok(None) };
        let place = NotReplied::ALL.iter().position(|known| *known == why).unwrap();
        if self.count(why) != before[place] + 1 {
            return Err(format!("{why:?} is not what was counted: {frame:02x?}"));
        }
        Ok(Some(why))
    }
}

#[test]
fn a_reply_is_a_workers_byte_for_byte_and_what_is_not_certain_goes_to_it() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let mut replies = Replies::load(false);
    let mut wrong = Vec::new();
    let mut replied = 0;
    for (name, table) in &corpus.tables {
        let table = mirrored(table, 0);
        replies.steering.apply(&table).unwrap();
        let cases =
            corpus.cases.iter().filter(|case| case.table == *name && case.context == Context::default());
        for case in cases.filter(|case| case.not_filter.is_none()) {
            match replies.judge(&case.frame, &table) {
                Ok(why) => replied += u32::from(why.is_none()),
                Err(how) => wrong.push(format!("{}: {how}", case.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(replied > 20, "{replied} cases got a reply");
}

#[test]
fn datagrams_of_every_length_come_back() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 0);
    let mut replies = Replies::load(true);
    replies.steering.apply(&table).unwrap();
    let mut random = fastrand::Rng::with_seed(SEED);
    for peer in PEERS {
        for len in 0..=1480 {
            let payload: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            let mut frame = request(peer, 4000, &payload);
            // As devices do with short frames.
            frame.resize(frame.len().max(60), 0);
            if let Err(how) = replies.judge(&frame, &table) {
                panic!("{len} bytes of {peer}: {how}");
            }
        }
    }
}

#[test]
fn corrupted_requests_get_a_workers_reply_or_none() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 0);
    let mut replies = Replies::load(false);
    replies.steering.apply(&table).unwrap();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut seen = std::collections::BTreeMap::new();
    for number in 0..FRAMES {
        let frame = corrupted(&mut random);
        if frame.len() < least_for_skb(&frame) {
            continue;
        }
        match replies.judge(&frame, &table) {
            Ok(why) => *seen.entry(why).or_insert(0) += 1,
            Err(how) => panic!("seed {SEED}, frame {number}: {how}"),
        }
    }
    let all = [NotReplied::Header, NotReplied::NoChecksum, NotReplied::Port, NotReplied::Peer];
    let all = all.into_iter().chain([NotReplied::Checksum]).map(Some).chain([None]);
    for why in all {
        assert!(seen.contains_key(&why), "{why:?} never happened: {seen:?}");
    }
}

#[test]
fn with_a_socket_the_filter_decides_and_tc_replies() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 0);
    let mut replies = Replies::load(false);
    replies.steering.apply(&table).unwrap();
    replies.ring.close();
    replies.ring.set_without_socket(false);
    let both = |steering: &Steering, frame: &[u8]| {
        // The filter reads from the start of the data, which in a test run is the IP header.
        let socket = run(filter(steering), &[&frame[..14], frame].concat(), None, 1).return_value;
        let (action, out) = changed(ingress(steering), frame);
        assert!(socket == 0 || action == DROP, "the socket takes nothing but canaries");
        (action, out)
    };
    for peer in PEERS {
        let frame = request(peer, 4000, b"some bytes");
        let (action, out) = replies.shown(&frame, both);
        assert_eq!((action, Ok(out)), (REDIRECT, mirror::datagram(&frame, Known::Nothing, way)));
        // The note is for that frame alone, and once.
        assert_eq!(changed(ingress(&replies.steering), &frame).0, NEXT);
        // A frame that tc finds wrong is for the kernel, whose socket has not seen it.
        let mut wrong = frame.clone();
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(replies.shown(&wrong, both), (NEXT, wrong.clone()));
    }
    assert_eq!(replies.count(NotReplied::Checksum), 2);
}

#[test]
fn beyond_the_rates_of_a_source_and_of_all_workers_decide() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    // A burst of 200 ms is two replies to a source, and some thousand to all.
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 10);
    let mut replies = Replies::load(false);
    replies.steering.apply(&table).unwrap();
    for (peer, payload) in [(PEERS[0], "again and again"), (PEERS[1], "another source")] {
        let frame = request(peer, 4000, payload.as_bytes());
        let before = replies.count(NotReplied::SourceRate);
        let mut by_program = 0;
        for number in 0..200 {
            match (replies.show(&frame).0, replies.taken()) {
                (REDIRECT, None) => by_program += 1,
                (DROP, Some(taken)) if number > 0 => {
                    assert_eq!(taken, frame, "to the worker, which has a limit of its own")
                }
                other => panic!("request {number}: {other:02x?}"),
            }
        }
        assert!(by_program > 0 && replies.count(NotReplied::SourceRate) > before + 100, "{by_program}");
    }
    let plan = ReflexPlan { partial_checksums: false, rate: 5_000, tries_worker: false };
    let mut replies = Replies::with(&plan, None);
    replies.steering.apply(&mirrored(&corpus::all().unwrap().tables["basic"], 0)).unwrap();
    let frame = request(PEERS[0], 4000, b"as fast as it can");
    let begun = std::time::Instant::now();
    let mut by_program = 0;
    while replies.count(NotReplied::Rate) < 100 {
        assert!(begun.elapsed().as_secs() < 60, "{by_program} replies, and the rate is not reached");
        match (replies.show(&frame).0, replies.taken()) {
            (REDIRECT, None) => by_program += 1,
            (DROP, Some(taken)) => assert_eq!(taken, frame),
            other => panic!("{other:02x?}"),
        }
    }
    let allowed = 5_000.0 * (begun.elapsed().as_secs_f64() + 0.2) + 100.0;
    assert!(f64::from(by_program) <= allowed, "{by_program} replies, {allowed:.0} allowed");
}

/// One worker has both services. Even if a service gets few requests, or always the odd ones, some go to the
/// worker.
#[test]
fn each_service_has_canaries_of_its_own() {
    const EACH: usize = 4096;
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut table = corpus::all().unwrap().tables["basic"].clone();
    table.add_claim(Claim::port(Protocol::Udp, PORT + 1)).unwrap();
    // Each claim is of a service of its own.
    let own = |place| Reflex { place: place * 16, answers: Answers::Mirrored, source_rate: 0 };
    let mut replies = Replies::load(false);
    replies.steering.apply(&with_reflex(&table, own)).unwrap();
    let frames = [PORT, PORT + 1].map(|to| request_to(PEERS[0], 4000, to, b"one after the other"));
    let mut canaries = [0; 2];
    for number in 0..2 * EACH {
        let frame = &frames[number % 2];
        let (action, _) = changed(ingress(&replies.steering), frame);
        let taken = replies.taken();
        assert!(action == REDIRECT || taken.as_ref() == Some(frame), "request {number}: {action}");
        canaries[number % 2] += u32::from(taken.is_some());
    }
    // One by count, and at least the first one by time.
    assert!(canaries.iter().all(|canaries| *canaries >= 2), "{canaries:?}");
}

/// What a trial must have left after what the worker does in it.
const LEFT: Duration = Duration::from_millis(3);

/// Many requests at the program, which tries the worker.
struct Trial {
    replies: Replies,
    frame: Vec<u8>,
    answers: ByWorker,
    words: Arc<Mapping>,
    deadline: std::time::Instant,
}

impl Trial {
    fn new() -> Self {
        const FAIL_OPEN: Duration = Duration::from_secs(3600);
        let plan = ReflexPlan { partial_checksums: false, rate: 10_000_000, tries_worker: true };
        let mut replies = Replies::with(&plan, None);
        replies.steering.apply(&mirrored(&corpus::all().unwrap().tables["basic"], 0)).unwrap();
        let words = replies.steering.pending().unwrap();
        let words = Arc::new(Mapping::of_fd(words, QUEUES_MAX as usize * pending::STRIDE, 0).unwrap());
        let answers = ByWorker::new(Pending::new(Arc::clone(&words), 0, FAIL_OPEN).unwrap());
        // Between two trials the programs leave the worker alone for ever longer, and each that this thread is late for adds one.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
        Self { replies, frame: request(PEERS[0], 4000, b"one of many"), answers, words, deadline }
    }

    #[allow(unsafe_code, reason = "the test reads words that program and worker share")]
    fn word(&self, at: usize) -> u64 {
        // SAFETY: aligned and within the mapping, which the program and this thread alone write to meanwhile.
        unsafe { self.words.base().add(at).cast::<u64>().read_volatile() }
    }

    /// When the worker's time ends.
    fn until(&self) -> u64 {
        self.word(8)
    }

    /// The rate before the trial, with how often the time to the next one has doubled.
    fn tried(&self) -> u64 {
        self.word(16)
    }

    fn doubled(&self) -> u64 {
        self.tried() & 7
    }

    /// Sends requests until the program leaves one to the worker. They are not repeated by the kernel: it would show the reply to the
    /// program.
    fn begins(&self) {
        let before = self.replies.count(NotReplied::Load);
        while self.replies.count(NotReplied::Load) == before {
            self.is_in_time("no trial comes");
            for _ in 0..500 {
                run(ingress(&self.replies.steering), &self.frame, None, 1);
            }
        }
    }

    /// Turns of the worker that find these requests.
    fn turns(&mut self, time: Duration, found: impl IntoIterator<Item = u32>) {
        let now = clock::now();
        for (turn, found) in (0..).zip(found) {
            self.answers.found(now + time * turn, found);
        }
    }

    /// The worker finds several at a time, for long enough to say that it answers.
    fn finds_several(&mut self) {
        self.turns(Duration::from_micros(100), [4; 32]);
    }

    /// Whether the program replies to one request itself.
    fn is_replied(&mut self) -> bool {
        let before = self.replies.count(NotReplied::Load);
        let (action, _) = self.replies.show(&self.frame);
        while self.replies.taken().is_some() {}
        assert_eq!(action == REDIRECT, self.replies.count(NotReplied::Load) == before);
        action == REDIRECT
    }

    /// Sends requests until the program replies itself.
    fn until_replied(&mut self) {
        while !self.is_replied() {
            self.is_in_time("it never lapses");
        }
    }

    fn is_in_time(&self, otherwise: &str) {
        assert!(std::time::Instant::now() < self.deadline, "{otherwise}");
    }

    /// Trials that fail come less and less often, unless the rate changes, which begins anew.
    fn fails_ever_less_often(&mut self) {
        let mut before = None;
        while before != Some(4) {
            self.begins();
            let of_trial = self.until();
            // This thread was away for too long: the trial is over, or nearly.
            let is_late = || clock::now().as_nanos() + LEFT.as_nanos() as u64 > of_trial;
            let (doubled, next) = (self.doubled(), before.map_or(0, |before: u64| before + 1));
            // It may have begun anew more than once since.
            assert!(doubled <= next || is_late(), "{doubled} after {before:?}");
            before = Some(doubled);
            // It sleeps between its turns, and is no better for the requests that have waited meanwhile.
            for _ in 0..3 {
                self.answers.found(clock::now(), 4);
                self.answers.sleeps(clock::now() + Duration::from_millis(2));
            }
            if is_late() {
                self.until_replied();
                // It is left alone for as long as after the last one of these.
                before = Some(3);
                continue;
            }
            assert!(self.is_replied(), "a worker that sleeps: the programs answer");
        }
    }

    /// Its time lapses, while requests still come: it is tried again at once, against the same rate as before.
    fn is_tried_again_after_a_lapse(&mut self) {
        loop {
            self.begins();
            let of_trial = self.until();
            self.finds_several();
            let (named, rate) = (self.until(), self.tried());
            while self.until() == named {
                self.is_replied();
                self.is_in_time("it never lapses");
            }
            // Otherwise this thread was away for too long.
            if named > of_trial && self.tried() == rate {
                assert!(self.until() > named, "{} after {named}", self.until());
                return;
            }
            self.until_replied();
        }
    }

    /// It sleeps, and continues; then it finds one at a time, for longer than it holds a load.
    fn gives_back_what_comes_one_by_one(&mut self) {
        loop {
            self.begins();
            let of_trial = self.until();
            self.finds_several();
            let is_in_time = self.until() > of_trial && self.tried() > 50_000 && !self.is_replied();
            self.answers.sleeps(clock::now());
            self.turns(Duration::from_micros(30), [1; 1000]);
            if is_in_time && self.is_replied() {
                assert_eq!(self.tried(), 0, "it has answered, and is tried again soon");
                return;
            }
            self.until_replied();
        }
    }
}

/// While there are many replies, the worker is tried: the programs leave everything to it until it says that they
/// are better, or says nothing more. A worker that continues gets everything.
#[test]
fn a_worker_that_is_tried_gets_everything_until_it_gives_back() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut trial = Trial::new();
    trial.fails_ever_less_often();
    trial.is_tried_again_after_a_lapse();
    trial.until_replied();
    trial.gives_back_what_comes_one_by_one();
    trial.begins();
    // It says nothing: the trial expires.
    trial.until_replied();
    assert_eq!(trial.doubled(), 4, "a worker that does not come to its trial is left alone");
}

#[test]
fn programs_that_always_answer_try_no_worker() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let plan = ReflexPlan { partial_checksums: false, rate: 10_000_000, tries_worker: false };
    let mut replies = Replies::with(&plan, None);
    replies.steering.apply(&mirrored(&corpus::all().unwrap().tables["basic"], 0)).unwrap();
    let frame = request(PEERS[0], 4000, b"one of many");
    for _ in 0..10_000 {
        run(ingress(&replies.steering), &frame, None, 1);
        while replies.taken().is_some() {}
    }
    assert_eq!((replies.show(&frame).0, replies.count(NotReplied::Load)), (REDIRECT, 0));
}

#[test]
fn each_frame_changes_one_counter_of_verdicts() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 0);
    let mut replies = Replies::load(false);
    replies.steering.apply(&table).unwrap();
    let counted = |replies: &Replies| {
        let counters = replies.steering.counters().unwrap().into_iter();
        // Of a frame that the kernel's copy is dropped of, the verdict is counted as well.
        counters.filter(|(name, _)| *name != "withheld_from_kernel").map(|(_, count)| count).sum::<u64>()
    };
    let good = request(PEERS[0], 4000, b"some bytes");
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 1;
    replies.show(&good);
    for (frame, with_socket) in [(&good, false), (&wrong, false), (&good, true), (&wrong, true)] {
        if with_socket && replies.ring.is_open() {
            replies.ring.close();
            replies.ring.set_without_socket(false);
        }
        let before = counted(&replies);
        if with_socket {
            run(filter(&replies.steering), &[&frame[..14], frame].concat(), None, 1);
        }
        run(ingress(&replies.steering), frame, None, 1);
        replies.taken();
        assert_eq!(counted(&replies), before + 1, "with a socket: {with_socket}");
    }
}

#[test]
fn suspended_programs_leave_everything_to_workers() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let table = mirrored(&corpus::all().unwrap().tables["basic"], 0);
    let mut replies = Replies::load(false);
    replies.steering.apply(&table).unwrap();
    let frame = request(PEERS[0], 4000, b"hello");
    replies.steering.reflexes().unwrap().suspend(true);
    assert_eq!(replies.show(&frame).0, DROP);
    assert_eq!(replies.taken(), Some(frame.clone()));
    replies.steering.reflexes().unwrap().suspend(false);
    assert_eq!(replies.show(&frame).0, REDIRECT);
    // A peer whose way is not known any more.
    replies.steering.reflexes().unwrap().clear_peers().unwrap();
    assert_eq!(replies.show(&frame).0, DROP);
    assert_eq!((replies.taken(), replies.count(NotReplied::Peer)), (Some(frame), 1));
    let counted = replies.steering.counted_reflexes().unwrap().count(0).unwrap();
    assert!(counted.replies >= 1 && counted.bytes > 0, "{counted:?}");
}
