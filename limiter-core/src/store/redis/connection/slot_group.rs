//! The requests of one decision that one script call can serve.

use crate::request::Request;
use crate::store::redis::naming::RedisKey;

/// Requests whose keys are in one slot, by their indices in the decision.
#[derive(Clone)]
pub(crate) struct SlotGroup {
    pub(crate) slot: u16,
    pub(crate) indices: Vec<usize>,
}

impl SlotGroup {
    /// The groups of a decision, in the order of their first requests.
    pub(crate) fn of_keys(keys: &[RedisKey]) -> Vec<Self> {
        let all = Self { slot: keys.first().map_or(0, |key| key.slot), indices: (0..keys.len()).collect() };
        if keys.iter().all(|key| key.slot == all.slot) {
            return vec![all];
        }
        let mut groups = all.split_by(|index| keys[index].slot);
        groups.iter_mut().for_each(|group| group.slot = keys[group.indices[0]].slot);
        groups
    }

    /// Groups of the same slot, one for each value of `key_of`, in the order of their first requests.
    pub(crate) fn split_by<K: PartialEq>(&self, key_of: impl Fn(usize) -> K) -> Vec<Self> {
        let mut groups: Vec<(K, Self)> = Vec::new();
        for index in self.indices.iter().copied() {
            let key = key_of(index);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.indices.push(index),
                None => groups.push((key, Self { slot: self.slot, indices: vec![index] })),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// The requests of this group, out of all requests of the decision.
    pub(crate) fn select<'a>(&self, requests: &[Request<'a>]) -> Vec<Request<'a>> {
        self.indices.iter().map(|index| requests[*index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_the_slot_and_the_order_of_the_requests() {
        let group = SlotGroup { slot: 7, indices: vec![4, 1, 6, 3] };
        let groups = group.split_by(|index| index % 2);
        let groups: Vec<_> = groups.iter().map(|group| (group.slot, &group.indices[..])).collect();
        assert_eq!(groups, [(7, &[4, 6][..]), (7, &[1, 3][..])]);
    }
}
