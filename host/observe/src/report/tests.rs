use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::*;

/// The keys of an object, in order, including repeated ones.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(KeysOf)
    }
}

struct KeysOf;

impl<'de> Visitor<'de> for KeysOf {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }
}

/// The names of the fields in JSON: none occurs twice, and written values can be read.
fn fields<T: Default + Serialize + DeserializeOwned>() -> BTreeSet<String> {
    let text = serde_json::to_string(&T::default()).unwrap();
    let read: T = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    let Keys(keys) = serde_json::from_str(&text).unwrap();
    let names: BTreeSet<String> = keys.iter().cloned().collect();
    assert_eq!(names.len(), keys.len(), "{keys:?}");
    names
}

fn names(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

/// Programs read these names: a counter's name here is that of its declaration.
#[test]
fn counts_are_beside_the_other_fields_under_their_stable_names() {
    assert_eq!(
        fields::<Queue>(),
        names(
            "queue worker path mode frames_in frames_out bytes_in bytes_out frames_direct direct_opened packets_in \
             packets_out frames_joined frames_split super_frames_refused kicks ring_full"
        )
    );
    assert_eq!(
        fields::<Worker>(),
        names(
            "worker cpu mode priority priority_why guard latency_request turns_busy turns_empty sleeps wakeups idle \
             cpu_ns frames_in frames_out handed_over handed_in handoff_signals stuck_ms times_stuck kernel_requests \
             kernel_replies service_time turn_cpu allocations connections heap_bytes pool_mib pool_frames pool_free"
        )
    );
    assert_eq!(
        fields::<Idle>(),
        names(
            "goal decided spins woken_by_packet woken_by_prediction woken_by_other spun_ns slept_ns held_ns \
             spin_limit_sleeps wake_latency"
        )
    );
    assert_eq!(fields::<Guard>(), names("spin_share_max run_share_max sleeps pauses lower steps"));
    assert_eq!(
        fields::<Service>(),
        names(
            "name claims fast_requests fast_replies fast_replies_by_kernel reflex_replies no_reflex unanswered_ports \
             kept kernel_requests kernel_replies requests own connections accepted sessions sessions_aged \
             sessions_displaced deferred deferred_done deferred_waits deferred_threads queued_bytes stream_bytes_in \
             stream_bytes_out peers fast_connections fast_accepted fast_half_open fast_time_wait fast_segments_in \
             fast_segments_out fast_retransmitted fast_resets fast_declined fast_given_up fast_path_told \
             fast_path_forged fast_moved fast_not_moved fast_kept fast_in_kernel"
        )
    );
    assert_eq!(
        fields::<ServiceClaim>(),
        names("claim path why fast_requests kernel_requests reflex_replies")
    );
    assert_eq!(fields::<RequestCounts>(), names("answered refused repeated forgotten"));
    assert_eq!(fields::<Times>(), names("count sum_ns p50_ns p99_ns p999_ns buckets"));
}

#[test]
fn counts_of_a_switch_are_beside_its_other_fields() {
    assert_eq!(
        fields::<Switch>(),
        names(
            "name vlans ageing_s addresses mac_entries_max learned moved flooded_broadcast flooded_multicast \
             flooded_unknown loops kernel_entries"
        )
    );
}

#[test]
fn no_name_comes_twice_in_what_has_groups_of_counts() {
    fields::<Interface>();
    fields::<KeptReplies>();
    fields::<OpenFlow>();
    fields::<FlowTable>();
    fields::<Program>();
    fields::<ServiceKept>();
    fields::<SwitchPort>();
}

#[test]
fn what_an_instance_is_is_one_text_in_a_report() {
    for (kind, text) in [
        (InstanceKind::Serve("echo, rpc".to_owned()), "echo, rpc"),
        (InstanceKind::Bridge, "bridge"),
        (InstanceKind::Switch, "switch"),
        (InstanceKind::Sockets, "sockets"),
    ] {
        let instance = Instance { kind: kind.clone(), ..Instance::default() };
        let written = serde_json::to_value(&instance).unwrap();
        assert_eq!(written["service"], text);
        assert_eq!(serde_json::from_value::<Instance>(written).unwrap().kind, kind);
    }
}
