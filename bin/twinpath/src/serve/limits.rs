//! Options that bound what peers may take; the same for every service.

use twinpath_config::LimitOverrides;

#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// TCP connections at once; for the next one the idlest is closed [default: 1024]
    #[arg(long, value_name = "N")]
    connections: Option<u32>,
    /// Those of one source, an IPv4 address or 64 bits of an IPv6 address; the next one is refused [default: 256]
    #[arg(long, value_name = "N")]
    connections_per_source: Option<u32>,
    /// Bytes one connection may hold of a request that is not complete, and as many of replies not taken [default: 262144]
    #[arg(long, value_name = "BYTES")]
    connection_bytes: Option<u32>,
    /// Bytes all connections may hold together; beyond it the one that has waited longest is closed [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    queued_bytes: Option<u64>,
    /// A connection is closed after this time without a byte, s; 0: never [default: 600]
    #[arg(long, value_name = "S")]
    idle_timeout_s: Option<u32>,
    /// A connection is closed if a request takes longer to arrive, s; 0: never [default: 30]
    #[arg(long, value_name = "S")]
    request_timeout_s: Option<u32>,
    /// A connection is closed if its peer takes nothing of its replies for so long, s; 0: never [default: 60]
    #[arg(long, value_name = "S")]
    send_timeout_s: Option<u32>,
    /// How long connections may take to end when the instance stops, ms [default: 5000]
    #[arg(long, value_name = "MS")]
    drain_ms: Option<u32>,
    /// How long an instance that takes over from this one may be silent before it serves, ms; then this one goes on
    /// [default: 30000]
    #[arg(long, value_name = "MS")]
    take_over_ms: Option<u32>,
    /// Replies per second to one source by UDP that are as large as their requests, per worker; more are dropped. 0: no limit
    /// [default: 50000]
    #[arg(long, value_name = "N")]
    reply_rate: Option<u32>,
}

impl From<LimitArgs> for LimitOverrides {
    fn from(args: LimitArgs) -> Self {
        let LimitArgs {
            connections,
            connections_per_source,
            connection_bytes,
            queued_bytes,
            idle_timeout_s,
            request_timeout_s,
            send_timeout_s,
            drain_ms,
            take_over_ms,
            reply_rate,
        } = args;
        Self {
            connections,
            connections_per_source,
            connection_bytes,
            queued_bytes,
            idle_timeout_s,
            request_timeout_s,
            send_timeout_s,
            drain_ms,
            take_over_ms,
            reply_rate,
        }
    }
}
