//! The same at XDP: frames per second of a source of XDP frames in one network namespace to a sink in another one. All frames are
//! carried on one CPU, so that the time per frame is that of all programs and interfaces on its way.

use twinpath_sys::affinity::pin_current_thread;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_plain::{XdpRedirect, XdpSink, XdpSource, datagram_frame};

use crate::rig::{Hosts, Switch, mac};
use crate::{Outcome, median};

const FRAMES: u32 = 2_000_000;

/// Frames per second, and the share that has arrived.
fn measure(hosts: &Hosts, source: &mut XdpSource, sink: &XdpSink) -> Outcome<(f64, f64)> {
    let frame = datagram_frame(mac(1), mac(2));
    let before = sink.count()?;
    let took = hosts.hosts[0].run(|| -> Outcome<_> {
        pin_current_thread(1)?;
        Ok(source.send(&frame, FRAMES)?)
    })??;
    let arrived = (sink.count()? - before) as f64;
    Ok((arrived / took.as_secs_f64(), arrived / f64::from(FRAMES)))
}

/// Measures bare redirects and entries in turns.
pub(crate) fn run(rounds: usize) -> Outcome<()> {
    let hosts = Hosts::new();
    let indexes: Vec<u32> =
        hosts.hosts.iter().map(|host| Ok(host.run(|| interface_index("eth0"))??)).collect::<Outcome<_>>()?;
    let mut source = hosts.hosts[0].run(|| XdpSource::new(indexes[0]))??;
    let sink = hosts.hosts[1].run(|| XdpSink::attach(indexes[1]))??;
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let mode = (round + turn) % 2;
            let measured = if mode == 0 {
                let programs = hosts.switch.run(|| XdpRedirect::attach(hosts.ifindexes))??;
                let measured = measure(&hosts, &mut source, &sink)?;
                drop(programs);
                measured
            } else {
                let mut switch = Switch::by(&hosts, true, true);
                let measured = measure(&hosts, &mut source, &sink)?;
                assert_eq!(switch.count(2).0, u64::from(FRAMES), "all are counted");
                measured
            };
            rates[mode].push(measured.0);
            assert!(measured.1 > 0.999, "{} arrived", measured.1);
        }
    }
    let ratios = rates[1].iter().zip(&rates[0]).map(|(entries, bare)| entries / bare).collect();
    let ratio = median(ratios);
    for (name, rates) in ["redirect, bare", "entries"].iter().zip(rates) {
        let rate = median(rates);
        println!("{name:16} {rate:12.0} frames/s {:8.1} ns", 1e9 / rate);
    }
    println!("offload-xdp {ratio:.3}, median of {rounds} pairs");
    Ok(())
}
