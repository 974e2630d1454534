//! A service that panics in each of its callbacks: its connection is closed, and no other one is affected.

use super::*;

/// Answers a line with itself. If the line names a callback, that callback panics: `close` when the connection
/// is closed, `writable` when there is room again, `later` in deferred work. `accept` panics if the peer has a
/// certain port.
#[derive(Clone, Default)]
struct Panics {
    closes: Arc<Mutex<Vec<Closed>>>,
    refused: Arc<Mutex<u16>>,
}

impl Service for Panics {
    type Connection = Vec<u8>;

    fn accept(&mut self, _now: Instant, peer: SocketAddr) -> Result<Vec<u8>, Reason> {
        assert_ne!(peer.port(), *self.refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        Ok(Vec::new())
    }

    fn stream(&mut self, _: Instant, last: &mut Vec<u8>, input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = input[..end].to_vec();
        assert!(output.write(&input[..=end]));
        assert_ne!(line, b"stream");
        if line == b"later" {
            assert!(output.later(Order::AsDone, || panic!("later")));
            assert!(output.later(Order::AsDone, || panic!("later")));
        }
        assert_ne!(line, b"later and now", "what was handed over is forgotten");
        *last = line;
        end + 1
    }

    fn writable(&mut self, _now: Instant, last: &mut Vec<u8>, _output: &mut Output<'_>) {
        assert_ne!(last, b"writable");
    }

    fn defers(&self) -> bool {
        true
    }

    fn close(&mut self, last: Vec<u8>, why: Closed) {
        self.closes.lock().unwrap().push(why);
        assert_ne!(last, b"close");
    }
}

impl Closing for Panics {
    fn closes(&self) -> Arc<Mutex<Vec<Closed>>> {
        Arc::clone(&self.closes)
    }
}

#[test]
fn a_panic_in_any_callback_ends_one_connection_and_is_counted() {
    let service = Panics::default();
    let refused = Arc::clone(&service.refused);
    let mut rig = Rig::serving(service, LIMITS, Some(POOL));
    let mut stays = rig.connect();
    let failed = Closed::For(Reason::HandlerFailed);
    let mut count = 0;
    for callback in ["stream", "writable", "close", "later"] {
        let mut stream = rig.connect();
        // The line before it in the same read is consumed, the one after it is not.
        stream.write_all(format!("1\n{callback}\nstream\n").as_bytes()).unwrap();
        count += 1 + u64::from(callback == "close");
        rig.until(|rig| rig.dropped(Reason::HandlerFailed) >= count);
        assert_eq!(rig.closes(), [failed], "{callback}");
        count += u64::from(callback == "later");
        stays.write_all(b"2\n").unwrap();
        rig.hear(&mut stays, "2\n");
    }
    *refused.lock().unwrap() = {
        let stream = rig.connect_only();
        stream.local_addr().unwrap().port()
    };
    rig.turns();
    assert_eq!(rig.closes(), [], "it was not the service's yet");
    stays.write_all(b"3\n").unwrap();
    rig.hear(&mut stays, "3\n");
    drop(stays);
    rig.until(|rig| rig.serve.tcp.connections.get() == 0 && rig.serve.deferred.get() == 0);
    assert_eq!((rig.closes(), rig.totals.bytes()), (vec![Closed::Ended], 0));
}

#[test]
fn control_hears_of_panics_once_a_second_and_of_how_many_there_were() {
    let mut rig = Rig::serving(Panics::default(), LIMITS, None);
    let mut told = Vec::new();
    for _ in 0..30 {
        for _ in 0..10 {
            let mut stream = rig.connect();
            stream.write_all(b"stream\n").unwrap();
            rig.turns();
        }
        rig.pass(Duration::from_millis(100));
        while let Some(event) = rig.events.take() {
            let Event::Engine(ServeEvent::Panicked(panicked)) = event else { continue };
            assert_eq!(panicked.callback, "stream");
            assert!(panicked.why.contains("assertion"), "{}", panicked.why);
            told.push(panicked.count);
        }
    }
    assert!((3..=4).contains(&told.len()), "{told:?}");
    assert_eq!((told[0], rig.dropped(Reason::HandlerFailed)), (1, 300));
    assert!(told.iter().sum::<u64>() <= 300);
}
