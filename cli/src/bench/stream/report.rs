//! Makes the report of a measurement.

use twinpath_clients::measure::report::SystemCalls;
use twinpath_clients::measure::stream::{
    ConnectionCounts, DatagramCounts, FlowReport, IntervalReport, StreamReport,
};
use twinpath_clients::{FlowMeasured, Moved, StreamMeasured, Transport};
use twinpath_load::DatagramsSummary;
use twinpath_socket_load::{TcpStreamOutcome, Transfers};
use twinpath_time::Duration;

use super::options::StreamBench;

/// If less than this share of the offered rate was sent, a note says so.
const OFFERED: f64 = 0.95;

pub(super) fn report(bench: &StreamBench, measured: &StreamMeasured, was_interrupted: bool) -> StreamReport {
    let plan = &bench.plan;
    let streams: Vec<FlowReport> = measured.flows.iter().map(flow_report).collect();
    let duration_s = streams.iter().map(|stream| stream.duration_s).fold(0.0, f64::max);
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    let moved_here: u64 = measured.flows.iter().map(|flow| moved_here(flow, measured.size)).sum();
    let cpu: Duration = measured.flows.iter().map(|flow| flow.cpu_time).sum();
    let over = |seconds: f64, bytes: u64| if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    let mut report = StreamReport {
        service: "stream".to_owned(),
        target: bench.target.name.clone(),
        transport: plan.transport.to_string(),
        direction: if plan.from_service { "from" } else { "to" }.to_owned(),
        path: measured.path.clone(),
        mode: plan.mode.to_string(),
        size: measured.size,
        threads: plan.threads,
        rate_bits_per_s: plan.rate_bits_per_s,
        duration_s,
        bytes,
        bits_per_s: over(arrival_s(measured).unwrap_or(duration_s), bytes),
        sent_bits_per_s: over(duration_s, moved_here),
        cpu_client: if duration_s > 0.0 { cpu.as_secs_f64() / duration_s } else { 0.0 },
        cpu_ns_per_byte: (moved_here > 0).then(|| cpu.as_nanos() as f64 / moved_here as f64),
        allocations_per_packet: measured.allocations_per_packet,
        datagrams: sum_datagrams(&streams),
        connections: sum_connections(&streams),
        intervals: intervals(&measured.flows),
        streams,
        system_calls: system_calls(&measured.flows),
        notes: measured.notes.clone(),
        broken: measured.flows.iter().find_map(|flow| flow.broken.clone()),
        partial: was_interrupted || measured.flows.iter().any(|flow| flow.broken.is_some()),
        version: env!("TWINPATH_VERSION").to_owned(),
    };
    let notes = notes(bench, measured, &report);
    report.notes.extend(notes);
    report
}

/// Bytes that this end sent, or received.
fn moved_here(flow: &FlowMeasured, size: usize) -> u64 {
    match &flow.moved {
        Moved::Datagrams(summary) => summary.sent * size as u64,
        Moved::Bytes(outcome) => outcome.transfers.bytes_sent.max(outcome.bytes),
    }
}

/// From the first datagram to the last, by the receiver's clock.
fn arrival_s(measured: &StreamMeasured) -> Option<f64> {
    let elapsed = |flow: &FlowMeasured| match &flow.moved {
        Moved::Datagrams(summary) => Some(summary.arrived.elapsed.as_secs_f64()),
        Moved::Bytes(_) => None,
    };
    let longest = measured.flows.iter().filter_map(elapsed).fold(0.0, f64::max);
    (longest > 0.0).then_some(longest)
}

fn flow_report(flow: &FlowMeasured) -> FlowReport {
    match &flow.moved {
        Moved::Datagrams(summary) => {
            let DatagramsSummary { arrived, elapsed, .. } = summary;
            let clock = if arrived.elapsed.is_zero() { *elapsed } else { arrived.elapsed };
            FlowReport {
                duration_s: elapsed.as_secs_f64(),
                bytes: arrived.bytes,
                bits_per_s: bits_per_s(arrived.bytes, clock),
                datagrams: Some(DatagramCounts {
                    sent: summary.sent,
                    received: arrived.datagrams,
                    lost: summary.sent.saturating_sub(arrived.datagrams),
                    lost_here: summary.lost_here,
                    left_out: summary.left_out,
                    out_of_order: arrived.out_of_order,
                }),
                connection: None,
            }
        }
        Moved::Bytes(outcome) => FlowReport {
            duration_s: outcome.elapsed.as_secs_f64(),
            bytes: outcome.bytes,
            bits_per_s: bits_per_s(outcome.bytes, outcome.elapsed),
            datagrams: None,
            connection: Some(ConnectionCounts {
                retransmits: (outcome.transfers.bytes_sent > 0).then_some(outcome.info.retransmits),
                rtt_us: us(outcome.info.rtt),
                rtt_min_us: us(outcome.info.rtt_min),
                is_closed: outcome.is_closed,
            }),
        },
    }
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn bits_per_s(bytes: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { bytes as f64 * 8.0 / elapsed.as_secs_f64() }
}

fn sum_datagrams(streams: &[FlowReport]) -> Option<DatagramCounts> {
    streams.iter().map(|stream| stream.datagrams).reduce(|sum, next| {
        let (sum, next) = (sum?, next?);
        Some(DatagramCounts {
            sent: sum.sent + next.sent,
            received: sum.received + next.received,
            lost: sum.lost + next.lost,
            lost_here: sum.lost_here + next.lost_here,
            left_out: sum.left_out + next.left_out,
            out_of_order: sum.out_of_order + next.out_of_order,
        })
    })?
}

fn sum_connections(streams: &[FlowReport]) -> Option<ConnectionCounts> {
    let sum = streams.iter().map(|stream| stream.connection).reduce(|sum, next| {
        let (sum, next) = (sum?, next?);
        Some(ConnectionCounts {
            retransmits: sum.retransmits.zip(next.retransmits).map(|(one, other)| one + other),
            rtt_us: sum.rtt_us + next.rtt_us,
            rtt_min_us: sum.rtt_min_us.min(next.rtt_min_us),
            is_closed: sum.is_closed && next.is_closed,
        })
    })??;
    Some(ConnectionCounts { rtt_us: sum.rtt_us / streams.len() as f64, ..sum })
}

fn system_calls(flows: &[FlowMeasured]) -> Option<SystemCalls> {
    let sum = flows.iter().try_fold(Transfers::default(), |mut sum, flow| {
        sum.merge(flow.transfers.as_ref()?);
        Some(sum)
    })?;
    Some(SystemCalls::of(&sum))
}

/// The intervals of all streams together: the sum of each stream's first interval, then of the second ones,
/// and so on.
fn intervals(flows: &[FlowMeasured]) -> Vec<IntervalReport> {
    let each: Vec<Vec<IntervalReport>> = flows
        .iter()
        .map(|flow| match &flow.moved {
            Moved::Datagrams(summary) => datagram_intervals(summary),
            Moved::Bytes(outcome) => byte_intervals(outcome),
        })
        .collect();
    let count = each.iter().map(Vec::len).max().unwrap_or(0);
    let at =
        |index: usize| each.iter().filter_map(move |intervals| intervals.get(index).copied()).reduce(joined);
    (0..count).filter_map(at).collect()
}

fn joined(one: IntervalReport, other: IntervalReport) -> IntervalReport {
    let sum = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
    IntervalReport {
        from_s: one.from_s.min(other.from_s),
        to_s: one.to_s.max(other.to_s),
        bytes: one.bytes + other.bytes,
        bits_per_s: one.bits_per_s + other.bits_per_s,
        sent: sum(one.sent, other.sent),
        received: sum(one.received, other.received),
        lost_here: sum(one.lost_here, other.lost_here),
        retransmits: sum(one.retransmits, other.retransmits),
    }
}

fn interval(from: Duration, to: Duration, bytes: u64) -> IntervalReport {
    let bits_per_s = bits_per_s(bytes, to.saturating_sub(from));
    IntervalReport {
        from_s: from.as_secs_f64(),
        to_s: to.as_secs_f64(),
        bytes,
        bits_per_s,
        ..Default::default()
    }
}

fn datagram_intervals(summary: &DatagramsSummary) -> Vec<IntervalReport> {
    let mut last = Default::default();
    let since = |sample: &twinpath_load::DatagramSample| {
        let before: twinpath_load::DatagramSample = std::mem::replace(&mut last, *sample);
        IntervalReport {
            sent: Some(sample.sent - before.sent),
            received: Some(sample.arrived - before.arrived),
            lost_here: Some(sample.lost_here - before.lost_here),
            ..interval(before.at, sample.at, sample.bytes - before.bytes)
        }
    };
    summary.samples.iter().map(since).collect()
}

fn byte_intervals(outcome: &TcpStreamOutcome) -> Vec<IntervalReport> {
    let mut last = Default::default();
    let since = |sample: &twinpath_socket_load::TcpSample| {
        let before: twinpath_socket_load::TcpSample = std::mem::replace(&mut last, *sample);
        let retransmits = sample.retransmits.saturating_sub(before.retransmits);
        IntervalReport {
            retransmits: (outcome.transfers.bytes_sent > 0).then_some(retransmits),
            ..interval(before.at, sample.at, sample.bytes.saturating_sub(before.bytes))
        }
    };
    outcome.samples.iter().map(since).collect()
}

/// Notes for the user about the measurement.
fn notes(bench: &StreamBench, measured: &StreamMeasured, report: &StreamReport) -> Vec<String> {
    let plan = &bench.plan;
    let mut notes = Vec::new();
    let restarted = |flow: &FlowMeasured| matches!(&flow.moved, Moved::Datagrams(told) if told.has_restarted);
    if measured.flows.iter().any(restarted) {
        notes.push("the service forgot the stream and began to count anew: more may have arrived".to_owned());
    }
    if let Some(rate) = plan.rate_bits_per_s
        && report.duration_s > 0.0
        && report.sent_bits_per_s < OFFERED * rate
    {
        notes.push(format!(
            "of {:.1} Mbit/s only {:.1} left: this client, its ring or the kernel's queue is too slow",
            rate / 1e6,
            report.sent_bits_per_s / 1e6
        ));
    }
    let is_open = |flow: &FlowMeasured| matches!(&flow.moved, Moved::Bytes(told) if !told.is_closed);
    if plan.transport == Transport::Tcp
        && !plan.from_service
        && report.broken.is_none()
        && measured.flows.iter().any(is_open)
    {
        notes.push(format!(
            "the service did not close the connection, nor take more, for {} s: what arrived is what it acknowledged",
            plan.timeout.as_secs_f64()
        ));
    }
    if report.partial {
        notes.push(format!("partial: it was ended after {:.2} s, before it was done", report.duration_s));
    }
    notes
}
