//! What the state of a switch needs of the tables that workers judge by.

use core::fmt::Debug;

use crate::openflow::pipeline::{
    Flow, FlowCount, GroupConfig, MeterConfig, PartsCount, Port, TableCount, TableFull,
};
use twinpath_openflow_wire::{Match, PortStats};
use twinpath_time::Instant;

/// A flow to be put in, with its timeouts. It has been checked.
#[derive(Clone, Copy, Debug)]
pub struct TimedFlow<'a> {
    /// What workers judge by.
    pub flow: Flow<'a>,
    /// When it was put in.
    pub created: Instant,
    /// Idle timeout, s: it is removed after this time without a packet; 0: never.
    pub idle_timeout_s: u16,
    /// Hard timeout, s: it is removed after this time; 0: never.
    pub hard_timeout_s: u16,
}

/// The tables that workers judge by, as control changes them. Nothing here waits for a worker: a change is in force once
/// [`Datapath::is_in_force`] says so of the version that [`Datapath::barrier`] named after it.
pub trait Datapath {
    /// The name of a flow, for as long as it is there or is not yet reported as gone.
    type FlowId: Copy + Ord + Debug;

    /// Puts a flow in. The table has none with the same match and priority.
    ///
    /// # Errors
    /// [`TableFull`].
    fn add_flow(&mut self, flow: TimedFlow<'_>) -> Result<Self::FlowId, TableFull>;
    /// Replaces the instructions and the cookie of a flow. Its counters go on.
    fn change_flow(&mut self, id: Self::FlowId, flow: TimedFlow<'_>);
    /// Takes a flow out; [`Datapath::take_gone`] reports it once no worker judges by it.
    fn remove_flow(&mut self, id: Self::FlowId);
    /// A controller has deleted the flows with this match, in one table or in all (`None`). If a port is given, only
    /// those with an output to it. Called even if there was no such flow; [`Datapath::remove_flow`] is called for each
    /// that there was.
    fn flows_deleted(&mut self, table_id: Option<u8>, matches: &Match, out_port: Option<u32>) {
        let _ = (table_id, matches, out_port);
    }
    /// Flows that were taken out and that no worker judges by any more, with their final counters.
    fn take_gone(&mut self) -> Vec<(Self::FlowId, FlowCount)>;
    /// What a flow has counted.
    fn flow_count(&self, id: Self::FlowId) -> FlowCount;
    /// Resets the counters of a flow.
    fn reset_flow_count(&mut self, id: Self::FlowId);
    /// What a table has counted.
    fn table_count(&self, table_id: u8) -> TableCount;
    /// Puts a group in, or replaces the one with its number.
    ///
    /// # Errors
    /// [`TableFull`].
    fn set_group(&mut self, group_id: u32, group: GroupConfig) -> Result<(), TableFull>;
    /// Takes a group out.
    fn remove_group(&mut self, group_id: u32);
    /// What a group has counted.
    fn group_count(&self, group_id: u32) -> PartsCount;
    /// Puts a meter in, or replaces the one with its number.
    ///
    /// # Errors
    /// [`TableFull`].
    fn set_meter(&mut self, meter_id: u32, meter: &MeterConfig) -> Result<(), TableFull>;
    /// Takes a meter out.
    fn remove_meter(&mut self, meter_id: u32);
    /// What a meter has counted.
    fn meter_count(&self, meter_id: u32) -> PartsCount;
    /// Replaces what is known of the ports.
    fn set_ports(&mut self, ports: &[Port]);
    /// Sets whether fragments of IP packets are dropped before the tables.
    fn set_drop_fragments(&mut self, drop: bool);
    /// What a port has counted; the durations are left out.
    fn port_count(&self, port_no: u32) -> PortStats;
    /// The version that has all changes until now.
    fn barrier(&self) -> u64;
    /// Whether no worker judges new arrivals by an older version.
    fn is_in_force(&self, version: u64) -> bool;
}
