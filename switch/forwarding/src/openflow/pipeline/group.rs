//! Groups: sets of buckets that frames go through (OpenFlow 1.3.5, 5.6).

use twinpath_openflow_wire::{Action, Bucket, GroupType};

use crate::openflow::pipeline::action_set::SetPart;

/// A group as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Which buckets a frame goes to.
    pub kind: GroupType,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

/// A bucket as workers see it.
#[derive(Debug)]
pub(crate) struct BucketActions {
    /// In the order of an action set.
    pub(crate) actions: Box<[Action]>,
    pub(crate) counter: u32,
}

/// A group as workers see it: which buckets are live is decided already.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) counter: u32,
    pub(crate) buckets: Box<[BucketActions]>,
    pub(crate) choice: Choice,
}

/// Which buckets a frame goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    /// One, or none.
    One(Option<u16>),
    /// By a hash of the frame's flow: the sums of the weights up to each live bucket, and their numbers.
    Weighted(Box<[(u32, u16)]>),
}

impl Choice {
    /// `is_live` says which buckets are.
    pub(crate) fn new(config: &GroupConfig, is_live: impl Fn(&Bucket) -> bool) -> Self {
        let numbered = || config.buckets.iter().zip(0_u16..);
        match config.kind {
            GroupType::All => Self::All,
            GroupType::Indirect => Self::One((!config.buckets.is_empty()).then_some(0)),
            GroupType::FastFailover => {
                Self::One(numbered().find(|(bucket, _)| is_live(bucket)).map(|(_, number)| number))
            }
            GroupType::Select => {
                let mut sum = 0_u32;
                let live = numbered().filter(|(bucket, _)| bucket.weight > 0 && is_live(bucket));
                Self::Weighted(
                    live.map(|(bucket, number)| {
                        sum += u32::from(bucket.weight);
                        (sum, number)
                    })
                    .collect(),
                )
            }
        }
    }
}

impl Group {
    /// `counters` are those of the group and of its buckets, in order.
    pub(crate) fn new(config: &GroupConfig, choice: Choice, counter: u32, bucket_counters: &[u32]) -> Self {
        let bucket = |(bucket, counter): (&Bucket, &u32)| BucketActions {
            actions: SetPart::compile(&bucket.actions).actions().collect(),
            counter: *counter,
        };
        Self { counter, buckets: config.buckets.iter().zip(bucket_counters).map(bucket).collect(), choice }
    }

    /// The one bucket of a frame whose flow has this hash, if the group has one for it.
    pub(crate) fn bucket(&self, hash: u64) -> Option<&BucketActions> {
        let number = match &self.choice {
            Choice::All => None,
            Choice::One(number) => *number,
            Choice::Weighted(sums) => {
                let total = sums.last()?.0;
                let point = ((u128::from(hash) * u128::from(total)) >> 64) as u32;
                sums.get(sums.partition_point(|(sum, _)| *sum <= point)).map(|(_, number)| *number)
            }
        };
        self.buckets.get(usize::from(number?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use twinpath_openflow_wire::number;

    use super::*;

    fn bucket(weight: u16, watch_port: u32) -> Bucket {
        Bucket { weight, watch_port, watch_group: number::group::ANY, actions: Box::default() }
    }

    fn group(kind: GroupType, buckets: &[Bucket], live: impl Fn(&Bucket) -> bool) -> Group {
        let config = GroupConfig { kind, buckets: buckets.to_vec() };
        let choice = Choice::new(&config, live);
        let counters: Vec<u32> = (100..).take(buckets.len()).collect();
        Group::new(&config, choice, 1, &counters)
    }

    #[test]
    fn shares_are_those_of_the_weights_of_live_buckets() {
        let buckets = [bucket(1, 1), bucket(0, 2), bucket(3, 3), bucket(100, 4)];
        let group = group(GroupType::Select, &buckets, |bucket| bucket.watch_port != 4);
        let mut counts = [0_u32; 4];
        for number in 0..4000_u64 {
            let hash = number * (u64::MAX / 4000 + 1);
            counts[group.bucket(hash).expect("live").counter as usize - 100] += 1;
        }
        assert!(counts[0].abs_diff(1000) < 3 && counts[0] + counts[2] == 4000, "{counts:?}");
    }

    #[test]
    fn the_first_live_bucket_takes_over() {
        let buckets = [bucket(0, 1), bucket(0, 2)];
        let of = |dead: &'static [u32]| {
            group(GroupType::FastFailover, &buckets, |bucket| !dead.contains(&bucket.watch_port))
        };
        assert_eq!(of(&[]).bucket(0).map(|bucket| bucket.counter), Some(100));
        assert_eq!(of(&[1]).bucket(0).map(|bucket| bucket.counter), Some(101));
        assert!(of(&[1, 2]).bucket(0).is_none());
    }

    #[test]
    fn a_group_without_buckets_has_none() {
        for kind in GroupType::ALL {
            assert!(group(*kind, &[], |_| true).bucket(7).is_none());
        }
    }
}
