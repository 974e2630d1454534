//! Streams over kernel sockets, one thread each.

use twinpath_socket_load::{Progress, Stop, TcpStreamConfig, TcpStreaming, UdpStream, UdpStreamOutcome};

use super::{CALL_BYTES, DATAGRAM_BYTES, FlowMeasured, Moved, StreamMeasured, StreamPlan};
use crate::error::RunError;
use crate::flow::on_threads;
use crate::kernel::wait_of;
use crate::measure::in_words;

pub(super) fn run_datagrams(
    plan: &StreamPlan,
    stop: &Stop,
    progress: &[Progress],
) -> Result<StreamMeasured, RunError> {
    let connect = |index| UdpStream::connect(plan.target, wait_of(plan.mode), plan.thread_cpu(index));
    let streams = (0..plan.threads).map(connect).collect::<Result<Vec<_>, _>>()?;
    let fits = streams.first().and_then(UdpStream::payload_max);
    let size = plan.size.or(fits).unwrap_or(DATAGRAM_BYTES);
    plan.datagrams(0, size).validate()?;
    let outcomes: Vec<UdpStreamOutcome> =
        on_threads(streams.into_iter().zip(progress), |index, (stream, progress)| {
            let outcome = stream.run(plan.datagrams(index, size), stop, progress);
            Ok(outcome.inspect_err(|_| stop.request())?)
        })?;
    let mut notes = Vec::new();
    if outcomes.iter().all(|outcome| outcome.is_segmented) {
        notes.push("the kernel or the device segments what is sent (UDP_SEGMENT)".to_owned());
    } else if let Some(most) = fits.filter(|most| size > *most) {
        notes.push(format!(
            "the path takes {most} bytes in one packet: datagrams of {size} leave as fragments"
        ));
    }
    let of_flow = |outcome: UdpStreamOutcome| FlowMeasured {
        moved: Moved::Datagrams(outcome.summary),
        cpu_time: outcome.cpu_time,
        transfers: Some(outcome.transfers),
        broken: outcome.broken.map(|error| in_words(&error)),
    };
    Ok(StreamMeasured {
        flows: outcomes.into_iter().map(of_flow).collect(),
        path: "kernel".to_owned(),
        size,
        allocations_per_packet: None,
        notes,
    })
}

pub(super) fn run_bytes(
    plan: &StreamPlan,
    stop: &Stop,
    progress: &[Progress],
) -> Result<StreamMeasured, RunError> {
    let size = plan.size.unwrap_or(CALL_BYTES);
    let connect = |index| {
        TcpStreaming::connect(&TcpStreamConfig {
            target: plan.target,
            from_service: plan.from_service,
            size,
            duration: plan.duration,
            timeout: plan.timeout,
            cpu: plan.thread_cpu(index),
        })
    };
    // All connect before the first one begins.
    let streams = (0..plan.threads).map(connect).collect::<Result<Vec<_>, _>>()?;
    let flows = on_threads(streams.into_iter().zip(progress), |_, (stream, progress)| {
        let mut outcome = stream.run(stop, progress).inspect_err(|_| stop.request())?;
        Ok(FlowMeasured {
            cpu_time: outcome.cpu_time,
            transfers: Some(outcome.transfers),
            broken: outcome.broken.take().map(|error| in_words(&error)),
            moved: Moved::Bytes(Box::new(outcome)),
        })
    })?;
    Ok(StreamMeasured {
        flows,
        path: "kernel".to_owned(),
        size,
        allocations_per_packet: None,
        notes: Vec::new(),
    })
}
