//! `plain openflow-discard`: takes what a controller says and does nothing of it, but answers it as a switch does: what the
//! controller's traffic costs the machine by itself.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_openflow_wire::{
    FlowMod, FlowStats, Frames, Header, Hello, Message, MessageType, Multipart, MultipartReply, number,
};
use twinpath_socket_load::Stop;

use super::openflow::FLOWS;
use crate::openflow::flows;

/// Flows per message of their statistics, as many as fit.
const FLOWS_EACH: u32 = 500;
/// Bytes per read.
const READ: usize = 64 * 1024;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Where to listen
    #[arg(long, value_name = "SOCKET")]
    at: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let dump = dump(FLOWS)?;
    let listener =
        UnixListener::bind(&args.at).with_context(|| format!("cannot listen at {}", args.at.display()))?;
    let stop = Stop::new();
    let waiting = Arc::new(OwnedFd::from(listener.try_clone()?));
    stop.watch(&waiting);
    let mut messages = 0_u64;
    let (ended, _) = attend(&stop, None, || {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        while !stop.is_requested() {
            let Ok((stream, _)) = listener.accept() else { break };
            let shared = Arc::new(OwnedFd::from(stream.try_clone()?));
            stop.watch(&shared);
            // A controller that is gone is no failure.
            let _ = serve(stream, &dump, &mut messages);
        }
        anyhow::Ok(())
    })?;
    ended?;
    Ok(print(json!({ "messages": messages }))?)
}

fn serve(mut stream: UnixStream, dump: &[Message], messages: &mut u64) -> anyhow::Result<()> {
    let (mut frames, mut bytes, mut answers) = (Frames::new(), vec![0; READ], Vec::new());
    let hello = Message::Hello(Hello { version: number::VERSION, versions: Some(1 << number::VERSION) });
    hello.encode(0, &mut answers)?;
    loop {
        stream.write_all(&answers)?;
        answers.clear();
        let read = stream.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        let mut input = &bytes[..read];
        while let Some(message) = frames.next(&mut input)? {
            *messages += 1;
            let Some(header) = Header::of(message) else { continue };
            match MessageType::from_number(header.message_type) {
                Some(MessageType::BarrierRequest) => {
                    Message::BarrierReply.encode(header.xid, &mut answers)?
                }
                Some(MessageType::MultipartRequest) => {
                    for part in dump {
                        part.encode(header.xid, &mut answers)?;
                    }
                }
                _ => {}
            }
        }
    }
}

/// The statistics of so many flows.
fn dump(count: u32) -> anyhow::Result<Vec<Message>> {
    let mut parts = Vec::new();
    for first in (0..count).step_by(FLOWS_EACH as usize) {
        let numbers = first..(first + FLOWS_EACH).min(count);
        let more = numbers.end < count;
        let flows = numbers.map(|number| match flows::one_of_many(number, 1, 0) {
            Ok(Message::FlowMod(flow)) => Ok(stats_of(*flow)),
            other => anyhow::bail!("no flow: {other:?}"),
        });
        let body = MultipartReply::Flow(flows.collect::<Result<_, _>>()?);
        parts.push(Message::MultipartReply(Box::new(Multipart { more, body })));
    }
    Ok(parts)
}

fn stats_of(flow: FlowMod) -> FlowStats {
    FlowStats {
        table_id: flow.table_id,
        duration_s: 1,
        duration_ns: 0,
        priority: flow.priority,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        flags: 0,
        cookie: flow.cookie,
        packets: 0,
        bytes: 0,
        matches: flow.matches,
        instructions: flow.instructions,
    }
}
