//! When a connection that uses the user timeout option (RFC 5482) is given up.

use twinpath_wire::tcp::{UserTimeout, Writer};

use super::steps::without_probe;
use super::*;
use crate::state::Ended;

const S: Duration = Duration::from_secs(1);

fn advertising(time: Duration) -> Options {
    Options { advertised_timeout: time, ..Options::default() }
}

fn keepalive() -> Options {
    Options { keepalive: 10 * S, keepalive_interval: 3 * S, keepalive_count: 2, ..Options::default() }
}

fn with_options(config: Config, options: Options) -> Rig {
    Rig::established(config, options, 0, &SACK)
}

/// The peer acknowledges, and says its user timeout.
fn tell(rig: &mut Rig, ack: u32, window: u16, seconds: u64) {
    let mut options = Writer::default();
    options.user_timeout(UserTimeout::from_seconds(seconds).expect("a time"));
    rig.say_with(1, ack, Flags::ACK, window, options.bytes(), &[]);
}

/// How long it takes from now until the connection ends.
fn time_to_end(rig: &mut Rig) -> Duration {
    let began = rig.now;
    while rig.ended().is_none() {
        rig.fire();
    }
    assert_eq!((rig.ended(), rig.counters().timed_out), (Some(Ended::TimedOut), 1));
    rig.now.since(began)
}

#[test]
fn section_3_1_data_is_given_up_at_the_time_that_both_ends_have_said_whatever_the_retries_are() {
    for retries in [1, 15] {
        let mut rig = with_options(Config { retries, ..without_probe() }, advertising(150 * S));
        rig.write(1000);
        assert_eq!(time_to_end(&mut rig), 150 * S);
        let mut rig = with_options(Config { retries, ..without_probe() }, advertising(150 * S));
        tell(&mut rig, 1, 60_000, 2000);
        rig.write(1000);
        assert_eq!(time_to_end(&mut rig), 2000 * S);
    }
}

#[test]
fn section_3_1_the_limits_apply_to_data_that_is_not_acknowledged() {
    for (advertised, ends) in [(S, 100 * S), (5000 * S, 3600 * S)] {
        let mut rig = with_options(without_probe(), advertising(advertised));
        rig.write(1000);
        assert_eq!(time_to_end(&mut rig), ends);
    }
}

#[test]
fn section_3_1_a_longer_time_counts_from_the_last_acknowledgement_as_soon_as_it_is_said() {
    let mut rig = with_options(without_probe(), advertising(150 * S));
    rig.write(2000);
    tell(&mut rig, 1001, 60_000, 120);
    let acknowledged = rig.now;
    while rig.now.since(acknowledged) < 50 * S {
        rig.fire();
    }
    // It acknowledges nothing new.
    tell(&mut rig, 1001, 60_000, 400);
    time_to_end(&mut rig);
    assert_eq!(rig.now.since(acknowledged), 400 * S);
}

#[test]
fn a_handshake_is_given_up_by_its_retries() {
    let config = Config { user_timeout_max: 3 * S, user_timeout_min: S, ..separate() };
    let mut rig = Rig::opening(config, advertising(2 * S));
    assert_eq!(time_to_end(&mut rig), 127 * S);
}

#[test]
fn a_silent_peer_with_a_closed_window_is_given_up_at_the_time_that_both_ends_have_said() {
    let config = Config { retries: 3, rto_max: 20 * S, ..without_probe() };
    let mut rig = with_options(config, advertising(1000 * S));
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    rig.fire();
    assert_eq!((rig.info().probes, rig.counters().window_probes), (1, 1));
    // From the first probe.
    assert_eq!(time_to_end(&mut rig), 1000 * S);
    assert!(rig.counters().window_probes > 40);
}

#[test]
fn a_window_that_closes_before_data_in_flight_leaves_the_time_as_it_is() {
    let config = Config { rto_max: 20 * S, ..without_probe() };
    let mut rig = with_options(config, advertising(1000 * S));
    rig.write(1000);
    let sent = rig.now;
    rig.say(1, 1, 0, &[]);
    time_to_end(&mut rig);
    assert_eq!(rig.now.since(sent), 1000 * S);
}

#[test]
fn section_4_2_keepalive_begins_later_than_the_user_timeout() {
    let mut rig = with_options(separate(), Options { advertised_timeout: 200 * S, ..keepalive() });
    let began = rig.now;
    let mut asked = Vec::new();
    while rig.ended().is_none() {
        if !rig.fire().is_empty() {
            asked.push(rig.now.since(began));
        }
    }
    // Two questions, and the reset: one that nobody answers may be lost.
    assert_eq!(asked, [201 * S, 204 * S, 207 * S]);
    assert_eq!((rig.ended(), rig.counters().keepalives), (Some(Ended::TimedOut), 2));
}

#[test]
fn section_4_2_keepalive_follows_the_time_that_the_peer_says() {
    let mut rig = with_options(separate(), Options { advertised_timeout: 200 * S, ..keepalive() });
    tell(&mut rig, 1, 60_000, 500);
    let began = rig.now;
    while rig.fire().is_empty() {}
    assert_eq!((rig.now.since(began), rig.counters().keepalives), (501 * S, 1));
    // A time of the program's own is a user timeout, too.
    let options = Options { advertised_timeout: 200 * S, user_timeout: 50 * S, ..keepalive() };
    let mut rig = with_options(separate(), options);
    let began = rig.now;
    while rig.fire().is_empty() {}
    assert_eq!((rig.now.since(began), rig.counters().keepalives), (51 * S, 1));
    assert_eq!(rig.fires(3 * S), [(0, 0)], "the number of questions decides here, too");
    assert_eq!(rig.ended(), None);
    // An idle time that is longer anyway stays.
    let options = Options { keepalive: 7200 * S, advertised_timeout: 200 * S, ..keepalive() };
    let rig = with_options(separate(), options);
    assert_eq!(rig.wait(), Some(7200 * S));
}
