//! What the state of a switch needs of the tables that workers judge by.

use core::fmt::Debug;

use twinpath_openflow_wire::{Match, PortStats};
use twinpath_pipeline::{Flow, FlowCount, GroupConfig, MeterConfig, PartsCount, Port, TableCount, TableFull};
use twinpath_time::Instant;

/// A flow as it is put in, with how long it stays. It has been checked.
#[derive(Clone, Copy, Debug)]
pub struct TimedFlow<'a> {
    /// What workers judge by.
    pub flow: Flow<'a>,
    /// When it was put in.
    pub created: Instant,
    /// It goes when it took no packet for so long, s; 0: never.
    pub idle_timeout_s: u16,
    /// It goes after so long, s; 0: never.
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
    /// Gives a flow other instructions and another cookie; the rest is as it was. It goes on counting.
    fn change_flow(&mut self, id: Self::FlowId, flow: TimedFlow<'_>);
    /// Takes a flow out; [`Datapath::take_gone`] reports it once no worker judges by it.
    fn remove_flow(&mut self, id: Self::FlowId);
    /// A controller has deleted the flows with this match, in a table or in all (`None`), whether there were any or not;
    /// only those with an output to a port if one is given. [`Datapath::remove_flow`] is called for each that there was.
    fn flows_deleted(&mut self, table_id: Option<u8>, matches: &Match, out_port: Option<u32>) {
        let _ = (table_id, matches, out_port);
    }
    /// Flows that were taken out and that no worker judges by any more, with all that they have counted.
    fn take_gone(&mut self) -> Vec<(Self::FlowId, FlowCount)>;
    /// What a flow has counted.
    fn flow_count(&self, id: Self::FlowId) -> FlowCount;
    /// Has a flow count from zero.
    fn reset_flow_count(&mut self, id: Self::FlowId);
    /// What a table has counted.
    fn table_count(&self, table_id: u8) -> TableCount;
    /// Puts a group in, or another one in its place.
    ///
    /// # Errors
    /// [`TableFull`].
    fn set_group(&mut self, group_id: u32, group: GroupConfig) -> Result<(), TableFull>;
    /// Takes a group out.
    fn remove_group(&mut self, group_id: u32);
    /// What a group has counted.
    fn group_count(&self, group_id: u32) -> PartsCount;
    /// Puts a meter in, or another one in its place.
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
    /// Whether fragments of IP packets are dropped before they come to the tables.
    fn set_drop_fragments(&mut self, drop: bool);
    /// What a port has counted; the durations are left out.
    fn port_count(&self, port_no: u32) -> PortStats;
    /// The version that has all changes until now.
    fn barrier(&self) -> u64;
    /// Whether no worker judges what arrives by an older version.
    fn is_in_force(&self, version: u64) -> bool;
}
