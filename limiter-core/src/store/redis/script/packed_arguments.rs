//! The part of a command that is about packed counts: see `lua/packed.lua`.

use redis::Cmd;

use crate::limit::PackedBuckets;
use crate::store::redis::naming::RedisKey;
use crate::store::redis::packed::{DeclaredCounts, PackedPlace};

/// The packed counts of a decision's requests, or of a batch's entries.
#[derive(Debug)]
pub(crate) struct PackedArguments {
    is_batch: bool,
    counts: Vec<DescribedCount>,
}

/// The packed count of one request, or of one entry of a batch.
#[derive(Debug)]
struct DescribedCount {
    index: usize,
    place: PackedPlace,
    /// This process knows that it has moved out, or has to declare all keys of the call.
    is_declared: bool,
}

impl PackedArguments {
    /// Describes the packed counts of these keys, of which each may share so many hashes. `None` if none does.
    pub(super) fn new(
        is_batch: bool,
        keys: &[RedisKey],
        packed: impl Iterator<Item = Option<PackedBuckets>>,
    ) -> Option<Self> {
        let describe = |(index, (key, buckets)): (usize, (&RedisKey, Option<PackedBuckets>))| {
            let place = PackedPlace::new(&key.name, buckets?);
            Some(DescribedCount { index, is_declared: place.has_moved_out(), place })
        };
        let mut counts: Vec<_> = keys.iter().zip(packed).enumerate().filter_map(describe).collect();
        if counts.is_empty() {
            return None;
        }
        // Beside keys that are written at once, nothing can be refused afterwards.
        if counts.len() < keys.len() {
            counts.iter_mut().for_each(|count| count.is_declared = true);
        }
        Some(Self { is_batch, counts })
    }

    /// Adds the keys of a call, each hash in place of its counts' own keys.
    pub(super) fn push_keys(&self, command: &mut Cmd, keys: &[RedisKey], declared: &DeclaredCounts) {
        let own = self.declared(declared);
        command.arg(keys.len() + own.len());
        let mut packed = self.counts.iter().peekable();
        for (index, key) in keys.iter().enumerate() {
            match packed.next_if(|count| count.index == index) {
                Some(count) => command.arg(&*count.place.hash),
                None => command.arg(&*key.name),
            };
        }
        for count in own {
            command.arg(&*count.place.own);
        }
    }

    /// Adds the description of the counts, which follows the other arguments.
    pub(super) fn push_description(&self, command: &mut Cmd, keys: usize, declared: &DeclaredCounts) {
        let mut packed = self.counts.iter().peekable();
        for index in 0..keys {
            match packed.next_if(|count| count.index == index) {
                Some(count) => command.arg(&count.place.field[..]),
                None => command.arg(""),
            };
        }
        let own = self.declared(declared);
        let letter = match (self.is_batch, declared.is_slot_moving()) {
            (true, false) if own.is_empty() => return,
            (true, false) => b'b',
            (true, true) => b'B',
            (false, false) => b'd',
            (false, true) => b'D',
        };
        let number = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
        let mut described = vec![letter];
        described.extend(number(own.len()));
        described.extend(own.iter().flat_map(|count| number(count.index)));
        command.arg(described);
    }

    /// The counts that are declared.
    fn declared(&self, declared: &DeclaredCounts) -> Vec<&DescribedCount> {
        let is_declared = |count: &&DescribedCount| declared.contains(count.index, count.is_declared);
        self.counts.iter().filter(is_declared).collect()
    }

    /// Returns whether a call about these keys uses several, if no count has moved out.
    pub(super) fn has_several_keys(&self, keys: &[RedisKey]) -> bool {
        let mut packed = self.counts.iter().peekable();
        let mut names = keys.iter().enumerate().map(|(index, key)| {
            packed.next_if(|count| count.index == index).map_or(&key.name, |count| &count.place.hash)
        });
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// Remembers that the counts with these indices have moved out.
    pub(super) fn remember(&self, moved_out: &[usize]) {
        self.counts
            .iter()
            .filter(|count| moved_out.contains(&count.index))
            .for_each(|count| count.place.remember_moved_out());
    }
}
