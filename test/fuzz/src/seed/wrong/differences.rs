//! Where this switch answers differently from Open vSwitch, and why. Sections are those of OpenFlow 1.3.5.

use super::known::Difference;

/// A difference of every value of these fields, or of some.
const fn differs(
    fields: &'static str,
    values: &'static str,
    theirs: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference { fields, values, theirs, ours, why }
}

const HELLO_LATER: &str =
    "a second hello and an error are no requests: some controllers send them (section 6.3.1)";
const VERSION: &str = "a version that was not agreed on is an error of every message (section 7.4.4)";
const WIDE_PORTS: &str = "port numbers have 32 bits here, and 16 in Open vSwitch";
const NO_FIELD: &str = "Open vSwitch has no such field";
const NO_ACTION: &str = "Open vSwitch has no such action";
const NO_REMARK: &str = "Open vSwitch has no bands but those that drop";
const TWICE_WRONG: &str = "two things are wrong, and both answers name one";
const FIELD_LEN: &str = "the field is known, its length is wrong (OFPBMC_BAD_LEN, section 7.4.4)";
const SET_FIELD: &str = "a field that cannot be set is OFPBAC_BAD_SET_TYPE, one of a wrong length OFPBAC_BAD_SET_LEN (section 7.4.4)";
const SETTABLE: &str = "every field but the port, its physical port and metadata can be set (section 7.2.5)";
const PADDING: &str = "padding is ignored (section 7.1.1)";
const LATER_VERSIONS: &str = "Open vSwitch takes commands of later versions, too";
const TABLES_FIXED: &str =
    "what tables do cannot be changed (OFPTFFC_EPERM); Open vSwitch has an error of its own";
const DELETED_BUCKETS: &str = "buckets of a deletion have no meaning; Open vSwitch refuses them";
const NO_QUEUES: &str = "there are no queues here";
const RATES: &str = "without a flag rates are in kilobits (section 7.3.4.4)";
const NO_BANDS: &str = "a meter may have any number of bands (section 7.3.4.4)";
const VIRTUAL_METERS: &str = "meters of the slow path and of packet-ins are optional (section 7.3.4.4)";
const WATCHES: &str = "a group or port that cannot be watched is OFPGMFC_BAD_WATCH (section 7.4.4)";
const PARTS: &str = "no request needs several parts, so none is kept (section 7.3.5)";
const PORTS: &str = "frames come from ports that are there (OFPBRC_BAD_PORT, section 7.4.4)";
const MAY_NOT_APPLY: &str =
    "an action that a frame has nothing for does nothing: refusing it is optional (section 5.12)";
const NOT_A_HELLO: &str = "the controller is told why the connection ends (section 6.3.1)";
const PART_FIRST: &str = "the part whose length is wrong has the error; Open vSwitch names the message";

/// All of them.
pub(super) static KNOWN: &[Difference] = &[
    // The connection.
    differs(
        "error.* hello.* slave.error.* slave.hello.* slave.type_0.* type_0.* type_1.*",
        "",
        "1/1 1/0",
        "-",
        HELLO_LATER,
    ),
    differs("echo_request.version echo_reply.version", "", "r3 -", "1/0", VERSION),
    differs("greeting.type_*", "", "!", "0/0!", NOT_A_HELLO),
    differs("greeting.version", "00", "!", "0/0!", NOT_A_HELLO),
    differs(
        "greeting_*.version",
        "00",
        "!",
        "open",
        "the versions in the message decide, not its own (section 6.3.1)",
    ),
    differs(
        "greeting_*.bitmap",
        "00000000 00000001",
        "open",
        "0/0!",
        "no version in common (section 6.3.1); Open vSwitch goes by the message's own version then",
    ),
    differs(
        "slave.type_*",
        "",
        "1/6",
        "1/10",
        "a slave may not send it, whatever is wrong with it (section 6.3.5)",
    ),
    differs(
        "slave.multipart.TableFeatures_set.*",
        "",
        "65535/10?",
        "1/10",
        "a slave may not send it (section 6.3.5)",
    ),
    differs("type_10.* type_11.* type_23.*", "", "1/1", "1/6 4/0", TWICE_WRONG),
    differs("type_13.*", "", "1/8", "1/11", TWICE_WRONG),
    differs("type_14.*", "", "4/1", "4/0", TWICE_WRONG),
    // Ports.
    differs("*.out_port *.port *.port_no *.value", "80000000", "2/4 4/7", "- m1 m2 1/11 7/0 9/0", WIDE_PORTS),
    differs("packet_out.in_port", "80000000", "2/4", "1/11", WIDE_PORTS),
    differs("packet_out.in_port", "00000000 ffffffff", "-", "1/11", PORTS),
    differs("multipart.PortStats.port_no", "", "m4", "1/11", PORTS),
    differs(
        "port_mod.port_no multipart.Queue.port_no",
        "fffffffe",
        "7/1 m5",
        "7/0 9/0",
        "this switch has no port of its own",
    ),
    differs(
        "*.port",
        "ffffff00",
        "2/4",
        "-",
        "a port that is not there may come later (OFPBAC_BAD_OUT_PORT, section 7.4.4)",
    ),
    differs("*.port", "00000000", "-", "2/4", "ports are numbered from 1 on (section 7.2.1)"),
    differs("flow_mod_add.port", "fffffff9", "-", "2/4", "only packet-outs go to the tables (section 4.5)"),
    differs(
        "port_mod.config port_mod.mask",
        "",
        "-",
        "7/2",
        "bits that have no meaning (OFPPMFC_BAD_CONFIG, section 7.4.4)",
    ),
    differs(
        "port_mod.advertise",
        "",
        "-",
        "7/3",
        "what ports offer cannot be changed (OFPPMFC_BAD_ADVERTISE, section 7.4.4)",
    ),
    // Configuration.
    differs(
        "set_config.flags",
        "0002 0003",
        "-",
        "10/0",
        "fragments are not put together here, as the capabilities say (section 7.3.1)",
    ),
    differs(
        "table_mod.config",
        "",
        "-",
        "8/1",
        "bits that have no meaning (OFPTMFC_BAD_CONFIG, section 7.4.4)",
    ),
    differs("multipart.TableFeatures_set.*", "", "65535/10? 3/0 13/0 13/2 13/3", "13/5 13/3", TABLES_FIXED),
    differs("multipart.TableFeatures.length", "20", "1/6", "13/3", PART_FIRST),
    // Packet-outs.
    differs("packet_out.length", "40", "-", "1/12", "there is no frame (OFPBRC_BAD_PACKET, section 7.4.4)"),
    differs("packet_out.actions_len", "0018", "2/0", "2/1", TWICE_WRONG),
    // Flows.
    differs(
        "flow_mod_add.flags",
        "0002 001f",
        "-",
        "5/3",
        "an equal flow overlaps, too: a frame may match both (section 6.4); later versions except it",
    ),
    differs("*.length", "48", "4/1", "1/6", "the match is not there at all"),
    differs("*.length", "52 54 55", "1/6", "4/1", PART_FIRST),
    differs(
        "multipart.*.length",
        "72",
        "m1 m2",
        "1/6",
        "bytes behind the end (OFPBRC_BAD_LEN, section 7.4.4)",
    ),
    differs(
        "multipart.*.match_len",
        "0004",
        "m1 m2",
        "1/6",
        "bytes behind the end (OFPBRC_BAD_LEN, section 7.4.4)",
    ),
    differs(
        "*.match_type",
        "0000",
        "4/1",
        "4/0",
        "the older match is no type of this version (OFPBMC_BAD_TYPE, section 7.4.4)",
    ),
    differs("flow_mod_add.field match*.field multipart.*.field", "", "4/5 4/6", "4/1", FIELD_LEN),
    differs("*.field_len", "", "4/5 4/6", "4/1", FIELD_LEN),
    differs(
        "match*.Metadata.class",
        "8001",
        "-",
        "4/6",
        "a class that the specification leaves open (section 7.2.3.3)",
    ),
    differs(
        "match.ArpOp.value",
        "8000 ffff",
        "4/7",
        "-",
        "the operation of ARP has 16 bits; Open vSwitch looks at 8",
    ),
    differs("match_masked.*.mask match_masked.*.value", "", "4/5", "4/8", TWICE_WRONG),
    differs(
        "match_masked.IpEcn.* match_masked.MplsBos.*",
        "",
        "4/8",
        "-",
        "all bits that count are in the mask",
    ),
    differs("match_masked.Ipv6Nd*", "", "-", "4/8", "these have no masks (section 7.2.3.8, table 12)"),
    differs("match*.InPhyPort.* match*.PbbIsid.* match*.Ipv6Exthdr.*", "", "4/6", "- 4/7 4/8 4/9", NO_FIELD),
    differs("set_field*.PbbIsid.*", "", "2/14", "- 2/1 2/10", NO_FIELD),
    differs("set_field*.InPhyPort.* set_field*.Ipv6Exthdr.*", "", "2/14", "2/13", SET_FIELD),
    differs("set_field.InPort.*", "", "2/15", "2/13", SET_FIELD),
    differs("set_field.Metadata.*", "", "-", "2/13", SETTABLE),
    differs("set_field.*.class set_field.*.field set_field.*.field_len", "", "2/14", "2/13", SET_FIELD),
    differs("set_field.*.field_len", "", "2/13", "2/14", SET_FIELD),
    differs(
        "set_field.*.len",
        "",
        "4/1",
        "2/1 2/13",
        "the length of an action is OFPBAC_BAD_LEN (section 7.4.4)",
    ),
    differs("set_field.EthType.* set_field.IpProto.* set_field.MplsBos.*", "", "2/15", "-", SETTABLE),
    differs("set_field_alone.IpProto.* set_field_alone.MplsBos.*", "", "2/15", "2/10", SETTABLE),
    differs(
        "set_field.ArpOp.value",
        "8000 ffff",
        "2/15",
        "-",
        "the operation of ARP has 16 bits; Open vSwitch looks at 8",
    ),
    differs("set_field.VlanVid.*", "", "2/10", "-", "it has no prerequisite (section 7.2.3.8, table 12)"),
    differs("set_field.*.pad", "", "2/15", "-", PADDING),
    // Instructions and actions.
    differs("instruction.GotoTable.table_id", "ff", "-", "3/2", "there is no such table (section 7.1.1)"),
    differs("instruction_twice.*", "", "65535/2600?", "3/1", "Open vSwitch has an error of its own for it"),
    differs("*.CopyTtlOut.* *.CopyTtlIn.* *.PushPbb.* *.PopPbb.*", "", "2/0", "- 2/1 2/5", NO_ACTION),
    differs("action.Experimenter.len", "", "2/2", "2/1", TWICE_WRONG),
    differs("action_of_any_frame.*", "", "2/10", "-", MAY_NOT_APPLY),
    differs("*.SetQueue.*", "", "-", "2/8", NO_QUEUES),
    // Groups.
    differs("group_mod_*.bucket_len", "001c 001f", "1/6", "6/12", PART_FIRST),
    differs("group_mod_*.command", "0003 8000", "- 6/8 65535/10?", "6/11", LATER_VERSIONS),
    differs(
        "group_mod_delete_with_buckets.* group_mod_modify.command",
        "",
        "6/1 6/13",
        "- 6/10",
        DELETED_BUCKETS,
    ),
    differs(
        "group_mod_delete.group_id",
        "ffffff01 ffffffff",
        "-",
        "6/1",
        "no group has such a number (section 7.3.4.2)",
    ),
    differs("group_mod_*.watch_group group_mod_*.watch_port", "", "-", "6/13", WATCHES),
    differs("group_mod_*.watch_port", "80000000", "6/13", "- 6/6", WIDE_PORTS),
    differs(
        "group_mod_loop.*",
        "",
        "-",
        "6/7",
        "groups in a circle are refused (OFPGMFC_LOOP, section 7.4.4)",
    ),
    // Meters.
    differs("meter_mod_*.flags", "", "12/5", "-", RATES),
    differs("meter_mod_add_remark.*", "", "12/8", "- 12/2 12/9", NO_REMARK),
    differs("meter_mod_add.band_type", "0002", "12/8", "12/9", NO_REMARK),
    differs("meter_mod_add_experimenter.*", "", "12/8", "1/6 12/1 12/2 12/5", TWICE_WRONG),
    differs("meter_mod_*", "", "12/11", "-", NO_BANDS),
    differs("meter_mod_*.meter_id", "fffffffd fffffffe", "- 12/3", "12/2", VIRTUAL_METERS),
    differs(
        "meter_mod_delete.meter_id",
        "00000000",
        "-",
        "12/2",
        "no meter has such a number (section 7.3.4.4)",
    ),
    differs("meter_mod_delete.length", "24", "-", "1/6", "half a band (OFPBRC_BAD_LEN, section 7.4.4)"),
    // Multipart requests.
    differs("multipart.*.flags", "", "- 1/3", "1/13", PARTS),
    differs("multipart.*.flags multipart.*.pad", "", "1/2?", "m*", PADDING),
    differs("multipart.Queue.queue_id", "00000000", "m5", "9/1", NO_QUEUES),
];
