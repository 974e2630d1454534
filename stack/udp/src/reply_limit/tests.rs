use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

/// Sends `per_s` requests a second, evenly over `seconds`; returns how many are answered.
fn answered(limit: &mut ReplyLimit, from: IpAddr, start_s: u64, seconds: u64, per_s: u64) -> u64 {
    (0..seconds * per_s)
        .filter(|number| {
            limit.allows(from, Instant::from_nanos(start_s * SECOND + number * (SECOND / per_s)))
        })
        .count() as u64
}

#[test]
fn a_source_below_the_rate_is_always_answered_and_one_above_it_gets_the_rate() {
    let mut limit = ReplyLimit::new(50_000, 1);
    assert_eq!(answered(&mut limit, source(1), 1, 2, 50_000), 100_000);
    // The burst of 200 ms, and the rate from then on.
    let many = answered(&mut limit, source(2), 1, 4, 1_000_000);
    assert!((210_000 - 2..=210_000 + 2).contains(&many), "{many}");
    // A pause restores the burst, and no more.
    let at = |nanos| Instant::from_nanos(100 * SECOND + nanos);
    let burst = (0..50_000).filter(|_| limit.allows(source(2), at(0))).count();
    assert_eq!(burst, 10_000);
}

#[test]
fn a_clock_that_went_back_silences_no_source() {
    let mut limit = ReplyLimit::new(1_000, 1);
    let at = |seconds| Instant::from_nanos(seconds * SECOND);
    while limit.allows(source(1), at(100)) {}
    assert!(limit.allows(source(1), at(1)));
}

#[test]
fn a_loop_that_is_faster_than_the_rate_ends() {
    let mut limit = ReplyLimit::new(50_000, 1);
    // One datagram takes 10 us per round; the first reply that is dropped ends the loop.
    let rounds = (0..).take_while(|round| limit.allows(source(7), Instant::from_nanos(round * 10_000)));
    assert_eq!(rounds.count(), 20_000);
}

#[test]
fn sources_are_limited_separately_and_forged_ones_do_not_affect_honest_ones() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut limit = ReplyLimit::new(50_000, random.u64(..));
        // A million forged sources a second; an honest one sends 10,000 requests a second.
        let (mut now, mut refused) = (SECOND, 0);
        for round in 0..2_000_000u32 {
            now += 1_000;
            limit.allows(source(random.u32(..)), Instant::from_nanos(now));
            if round % 100 == 0 {
                refused += u32::from(!limit.allows(source(0x0a00_0001), Instant::from_nanos(now)));
            }
        }
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn the_hash_key_decides_which_sources_share_an_entry() {
    let shares = |seed| {
        let mut limit = ReplyLimit::new(1, seed);
        let now = Instant::from_nanos(SECOND);
        while limit.allows(source(0), now) {}
        (1..4_000_000u32)
            .filter(|number| !limit.allows(source(*number), now))
            .map(|it| it as u64)
            .sum::<u64>()
    };
    assert_ne!(shares(1), shares(2));
}

#[test]
fn addresses_of_one_network_of_ipv6_share_a_rate() {
    let mut limit = ReplyLimit::new(1_000, 3);
    let v6 = |net: u128, host: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | net << 64 | host));
    let now = Instant::from_nanos(SECOND);
    let mut allowed = |net| (0..1_000).filter(|host| limit.allows(v6(net, *host), now)).count();
    assert_eq!((allowed(1), allowed(1), allowed(2)), (200, 0, 200));
}

#[test]
fn a_clock_that_goes_back_blocks_no_source() {
    let mut limit = ReplyLimit::new(1_000, 3);
    assert_eq!(answered(&mut limit, source(1), 1_000_000, 1, 1_000), 1_000);
    assert_eq!(answered(&mut limit, source(1), 1, 1, 1_000), 1_000);
}
