//! Tests of a stuck worker, and of a stopped process: frames cross within the kernel meanwhile, each of them once.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use twinpath_sys::StoppedThread;

use super::{KERNEL, PORT, add_addresses, bridge, passes, rig};
use crate::fail_open::{FAIL_OPEN_MS, thread_of};
use crate::metrics::scraped;
use crate::rig::{CLIENT, PATIENCE, Rig, SERVER, Server, move_link, until};
use crate::root_or_skip;

const ECHO: u16 = 9002;
/// Enough that an empty one of two queues would be a rare chance.
const FLOWS: usize = 16;

/// Sends numbered datagrams over several flows, from one side of the bridge to an echo server on the other, and counts
/// how often each was received and answered.
struct Numbered {
    flows: Vec<UdpSocket>,
    to: (&'static str, u16),
    asked: u32,
    answers: BTreeMap<u32, u32>,
}

impl Numbered {
    fn new(flows: Vec<UdpSocket>, to: &'static str) -> Self {
        for flow in &flows {
            flow.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        Self { flows, to: (to, ECHO), asked: 0, answers: BTreeMap::new() }
    }

    /// Sends one request per flow; returns their numbers.
    fn ask(&mut self) -> Vec<u32> {
        for flow in &self.flows {
            flow.send_to(&self.asked.to_be_bytes(), self.to).unwrap();
            self.asked += 1;
        }
        (self.asked - self.flows.len() as u32..self.asked).collect()
    }

    fn listen(&mut self) {
        let mut buffer = [0; 64];
        for flow in &self.flows {
            while let Ok((4, _)) = flow.recv_from(&mut buffer) {
                *self.answers.entry(u32::from_be_bytes(*buffer.first_chunk().unwrap())).or_default() += 1;
            }
        }
    }

    /// Sends until every flow is answered, all at once, however late.
    fn until_all_answered(&mut self) {
        let mut rounds = vec![self.ask()];
        until("every flow is answered", || {
            self.listen();
            let is_answered =
                |numbers: &Vec<u32>| numbers.iter().all(|number| self.answers.contains_key(number));
            let is_over = rounds.iter().any(is_answered);
            if !is_over {
                rounds.push(self.ask());
            }
            is_over
        });
    }
}

/// Runs `work` beside an echo server that counts what it receives.
fn beside_echo<T>(socket: UdpSocket, work: impl FnOnce() -> T) -> (BTreeMap<u32, u32>, T) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (mut received, mut buffer) = (BTreeMap::new(), [0; 64]);
            loop {
                match socket.recv_from(&mut buffer) {
                    Ok((4, from)) => {
                        let number = u32::from_be_bytes(*buffer.first_chunk().unwrap());
                        *received.entry(number).or_default() += 1;
                        socket.send_to(&buffer[..4], from).unwrap();
                    }
                    Ok(_) => {}
                    Err(_) if done.load(Ordering::Relaxed) => return received,
                    Err(_) => {}
                }
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        let received = echo.join().unwrap();
        match outcome {
            Ok(outcome) => (received, outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn crossed(server: &Server) -> u64 {
    let crossed = &server.show("interfaces")[0]["crossed"];
    crossed["frames_in"].as_u64().unwrap() + crossed["frames_out"].as_u64().unwrap()
}

/// Frames that workers have carried from the device.
fn carried(server: &Server) -> u64 {
    let workers = server.show("workers");
    workers.as_array().unwrap().iter().map(|worker| worker["frames_in"].as_u64().unwrap()).sum()
}

/// Frames cross while the value that `stop` returns lives, and workers carry them again when it is dropped. No frame
/// crosses twice. A worker that is stopped just after it has said that nothing waits for it has nothing to drop: then all is done
/// again.
fn crosses_meanwhile<T>(
    rig: &Rig,
    server: &Server,
    from_client: bool,
    stop: impl Fn() -> T,
    meanwhile: impl Fn(&Server),
) {
    until("what waited for the worker is dropped, and counted", || {
        crosses_once(rig, server, from_client, &stop, &meanwhile);
        server.drops("worker_stuck") > 0
    });
}

fn crosses_once<T>(
    rig: &Rig,
    server: &Server,
    from_client: bool,
    stop: impl FnOnce() -> T,
    meanwhile: impl FnOnce(&Server),
) {
    passes(rig);
    let flows = |_| if from_client { rig.client_udp(CLIENT, 0) } else { rig.server_udp(SERVER, 0) };
    let (to, echo) = if from_client {
        (SERVER, rig.server_udp(SERVER, ECHO))
    } else {
        (CLIENT, rig.client_udp(CLIENT, ECHO))
    };
    let (received, numbered) = beside_echo(echo, || {
        let mut numbered = Numbered::new((0..FLOWS).map(flows).collect(), to);
        numbered.until_all_answered();
        let before = crossed(server);
        let stopped = stop();
        numbered.until_all_answered();
        // Repeated, as once could be chance.
        (0..3).for_each(|_| numbered.until_all_answered());
        meanwhile(server);
        drop(stopped);
        until("workers carry frames again, and nothing crosses", || {
            let before = (crossed(server), carried(server));
            numbered.until_all_answered();
            crossed(server) == before.0 && carried(server) >= before.1 + FLOWS as u64
        });
        assert!(crossed(server) > before);
        numbered.listen();
        numbered
    });
    let twice = |counts: &BTreeMap<u32, u32>| counts.values().any(|count| *count != 1);
    assert!(!twice(&received) && !twice(&numbered.answers), "{received:?} {:?}", numbered.answers);
}

#[test]
fn while_a_worker_is_stuck_the_kernel_carries_frames_in_both_directions() {
    if !root_or_skip() {
        return;
    }
    for (mode, queues) in [("interrupt", "1"), ("poll", "1"), ("interrupt", "2")] {
        let rig = rig();
        let arguments =
            ["--carrier", "workers", "--mode", mode, "--queues", queues, "--fail-open-ms", FAIL_OPEN_MS];
        let server = bridge(&rig, &[&arguments[..], &["--metrics", "0"]].concat());
        let why = server.show("interfaces")[0]["why"].to_string();
        assert!(why.contains("workers carry frames; the kernel does while one is stuck"), "{why}");
        for (time, from_client) in [(1, true), (2, false)] {
            let stop = || StoppedThread::stop(thread_of(&server, 0)).unwrap();
            crosses_meanwhile(&rig, &server, from_client, stop, |server| {
                let worker = &server.show("workers")[0];
                assert!(worker["stuck_ms"].as_u64().unwrap() >= 100, "{mode} {queues}: {worker}");
                // Beside load it may have been once more: it had no CPU for so long.
                let times = worker["times_stuck"].as_f64().unwrap();
                assert!(times >= f64::from(time), "{mode} {queues}: {worker}");
                let scraped = |name: &str| scraped(&rig, server, &format!("{name}{{worker=\"0\"}}"));
                let told = ["twinpath_worker_stuck", "twinpath_worker_times_stuck_total"].map(scraped);
                assert_eq!(told, [1.0, times]);
            });
            until("it is known to have moved on", || server.show("workers")[0]["stuck_ms"].is_null());
        }
        server.wait_until_said("worker 0 is stuck");
        server.wait_until_said("worker 0 moves on");
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// Dropping it lets the process continue.
struct StoppedProcess<'a>(&'a Server);

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        kill_process(self.0.pid(), Signal::CONT).unwrap();
    }
}

fn stop(server: &Server) -> StoppedProcess<'_> {
    kill_process(server.pid(), Signal::STOP).unwrap();
    StoppedProcess(server)
}

/// None of its threads runs, but the programs do.
#[test]
fn while_the_process_is_stopped_the_kernel_carries_frames() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "workers", "--fail-open-ms", FAIL_OPEN_MS]);
    for from_client in [true, false] {
        crosses_meanwhile(&rig, &server, from_client, || stop(&server), |_| {});
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn frames_that_cross_within_the_kernel_need_no_process_that_runs() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "kernel"]);
    passes(&rig);
    let (received, numbered) = beside_echo(rig.server_udp(SERVER, ECHO), || {
        let stopped = stop(&server);
        let mut numbered = Numbered::new(vec![rig.client_udp(CLIENT, 0)], SERVER);
        for _ in 0..20 {
            let number = numbered.ask()[0];
            until("an answer", || {
                numbered.listen();
                numbered.answers.contains_key(&number)
            });
        }
        drop(stopped);
        numbered
    });
    assert!(received.len() == 20 && received.values().all(|count| *count == 1), "{received:?}");
    assert!(numbered.answers.len() == 20 && numbered.answers.values().all(|count| *count == 1));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn where_the_kernel_cannot_carry_frames_it_is_said() {
    if !root_or_skip() {
        return;
    }
    let why = |server: &Server| server.show("interfaces")[0]["why"].as_str().unwrap().to_owned();
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "workers", "--fail-open-ms", "0"]);
    assert!(why(&server).contains("nobody does while one is stuck: the time"), "{}", why(&server));
    // It keeps its frames however long it waits.
    passes(&rig);
    let stopped = StoppedThread::stop(thread_of(&server, 0)).unwrap();
    let (_, mut numbered) = beside_echo(rig.server_udp(SERVER, ECHO), || {
        let mut numbered = Numbered::new(vec![rig.client_udp(CLIENT, 0)], SERVER);
        let last = (0..100).map(|_| numbered.ask()[0]).last().unwrap();
        numbered.listen();
        assert!(numbered.answers.is_empty());
        drop(stopped);
        until("all are answered", || {
            numbered.listen();
            numbered.answers.contains_key(&last)
        });
        numbered
    });
    numbered.listen();
    assert_eq!((numbered.answers.len(), server.drops("worker_stuck")), (100, 0));
    assert_eq!(server.interrupt(), Some(0));

    let rig = super::rig();
    let server = bridge(&rig, &["--carrier", "workers"]);
    assert!(why(&server).contains("the kernel does while one is stuck"), "{}", why(&server));
    move_link(&rig.server, KERNEL, &rig.client);
    server.wait_until_said("nobody does while one is stuck");
    assert!(
        why(&server).contains("in another network namespace, where the kernel cannot"),
        "{}",
        why(&server)
    );
    assert_eq!(server.interrupt(), Some(0));
}

/// A device that returns is held by the same programs, and its worker's words are the same as before.
#[test]
fn after_the_device_was_gone_a_stuck_worker_is_found_again() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "workers", "--fail-open-ms", FAIL_OPEN_MS]);
    passes(&rig);
    rig.ip_server(&["link", "delete", PORT]);
    server.wait_until_said("is gone: kn has no carrier");
    rig.join(PORT, &[(CLIENT, 24)], &[]);
    server.wait_until_said("is back");
    let stop = || StoppedThread::stop(thread_of(&server, 0)).unwrap();
    crosses_meanwhile(&rig, &server, true, stop, |_| {});
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn the_watchdog_of_a_bridge_is_fed_while_every_worker_lives() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let at = rig.directory.path().join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = |manager: &UnixDatagram| {
        let mut buffer = [0; 256];
        manager.recv(&mut buffer).map(|len| String::from_utf8_lossy(&buffer[..len]).trim().to_owned())
    };
    let environment = [("NOTIFY_SOCKET", at.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let arguments = ["bridge", PORT, "--kernel", KERNEL, "--carrier", "workers"];
    let arguments = [&arguments[..], &["--fail-open-ms", FAIL_OPEN_MS]].concat();
    let server = rig.launch_with_env(&arguments, &environment);
    add_addresses(&rig);
    assert_eq!(heard(&manager).unwrap(), "READY=1");
    for _ in 0..12 {
        assert_eq!(heard(&manager).unwrap(), "WATCHDOG=1");
    }
    let stopped = StoppedThread::stop(thread_of(&server, 0)).expect("stopped");
    manager.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    until("nothing more is said", || heard(&manager).is_err());
    drop(stopped);
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(heard(&manager).unwrap(), "WATCHDOG=1");
    assert_eq!(server.interrupt(), Some(0));
}
