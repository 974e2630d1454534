//! The services of this program as one type, so that one worker can have several.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use twinpath_config::{Config, Service as Asked, ServiceKind};
use twinpath_rpc::{RpcConnection, RpcService};
use twinpath_service::{
    Answer, Closed, Datagram, Echo, EthernetFrame, Instant, Output, Reason, Reflect, Service, ServiceCounters,
};

use super::rpc;

/// One of the program's services.
#[derive(Clone)]
pub(super) enum Program {
    Echo(Echo),
    Reflect(Reflect),
    Rpc(Box<RpcService>),
}

/// What they keep of a connection.
pub(super) enum Connection {
    Plain,
    Rpc(RpcConnection),
}

impl Program {
    /// The service that a configuration asks for.
    pub(super) fn of(config: &Config, asked: &Asked) -> anyhow::Result<Self> {
        Ok(match asked.kind {
            Some(ServiceKind::Echo) => Self::Echo(Echo),
            Some(ServiceKind::Reflect) => Self::Reflect(Reflect),
            Some(ServiceKind::Rpc) => Self::Rpc(Box::new(rpc::service(&config.rpc_of(asked))?)),
            None => bail!("service.kind: which service?"),
        })
    }
}

impl Service for Program {
    type Connection = Connection;

    #[inline]
    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        match self {
            Self::Echo(echo) => echo.datagram(datagram),
            Self::Reflect(reflect) => reflect.datagram(datagram),
            Self::Rpc(rpc) => rpc.datagram(datagram),
        }
    }

    #[inline]
    fn frame(&mut self, frame: &mut EthernetFrame<'_>) -> Answer {
        match self {
            Self::Echo(echo) => echo.frame(frame),
            Self::Reflect(reflect) => reflect.frame(frame),
            Self::Rpc(rpc) => rpc.frame(frame),
        }
    }

    fn accept(&mut self, now: Instant, peer: SocketAddr) -> Result<Connection, Reason> {
        match self {
            Self::Echo(echo) => echo.accept(now, peer).map(|()| Connection::Plain),
            Self::Reflect(reflect) => reflect.accept(now, peer).map(|()| Connection::Plain),
            Self::Rpc(rpc) => rpc.accept(now, peer).map(Connection::Rpc),
        }
    }

    #[inline]
    fn stream(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        match (self, connection) {
            (Self::Echo(echo), _) => echo.stream(now, &mut (), input, output),
            (Self::Rpc(rpc), Connection::Rpc(connection)) => rpc.stream(now, connection, input, output),
            (Self::Reflect(_) | Self::Rpc(_), _) => input.len(),
        }
    }

    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        match self {
            Self::Echo(_) | Self::Reflect(_) => None,
            Self::Rpc(rpc) => rpc.counters(),
        }
    }

    fn late_reply(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        number: u64,
        reply: &[u8],
    ) -> Result<(), Reason> {
        match self {
            Self::Echo(_) | Self::Reflect(_) => Ok(()),
            Self::Rpc(rpc) => rpc.late_reply(now, peer, number, reply),
        }
    }

    fn defers(&self) -> bool {
        matches!(self, Self::Rpc(rpc) if rpc.defers())
    }

    fn close(&mut self, connection: Connection, why: Closed) {
        if let (Self::Rpc(rpc), Connection::Rpc(connection)) = (self, connection) {
            rpc.close(connection, why);
        }
    }
}
