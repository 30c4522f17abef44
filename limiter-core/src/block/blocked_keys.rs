//! The blocked keys of this process.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::Key;
use crate::block::{Block, BlockRef, BlockState};
use crate::clock::Moment;
use crate::sync::{Mutex, Seed, lock, seed};

/// The last block of each key and rule that was blocked lately.
#[derive(Debug)]
pub(crate) struct BlockedKeys {
    shards: Box<[Mutex<BlockShard>]>,
    seed: Seed,
    /// The most blocks of a shard. Beyond it one that ends soon goes.
    capacity: usize,
}

/// The last blocks by key and rule, each with its terms.
type Blocks = HashMap<(Key, &'static str), (BlockState, Block), Seed>;

#[derive(Debug)]
struct BlockShard {
    blocks: Blocks,
    /// The time of the last search for blocks that nothing depends on, in milliseconds.
    swept_at: u64,
}

/// The most blocks of a process.
const MAX_BLOCKS: usize = 100_000;
/// The time between two searches of a full shard, in milliseconds.
const SWEEP_PAUSE: u64 = 10_000;
/// The blocks of a full shard of which the one that ends first goes.
const SAMPLE: usize = 8;
const SHARDS: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 16 };

impl BlockedKeys {
    /// A table of about so many blocks, and of at most [`MAX_BLOCKS`].
    pub(crate) fn new(capacity: usize) -> Self {
        let seed = seed();
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(BlockShard { blocks: HashMap::with_hasher(seed.clone()), swept_at: 0 }))
            .collect();
        Self { shards, seed, capacity: (capacity.min(MAX_BLOCKS) / SHARDS).max(1) }
    }

    /// Returns the end of the block of a key, in milliseconds, if one is in force. An attempt that takes permits may extend
    /// it.
    pub(crate) fn end(&self, key: &Key, block: BlockRef, now: Moment, takes: bool) -> Option<u64> {
        let mut shard = lock(self.shard(key));
        let (state, _) = shard.blocks.get_mut(&(key.clone(), block.rule()))?;
        let end = state.end_if_in_force(now.floor_millis())?;
        let Some(extended) = state.extended(block.block(), now.ceil_millis()).filter(|_| takes) else {
            return Some(end);
        };
        *state = extended;
        Some(extended.end)
    }

    /// Begins the block of a key after a denial, and returns its end in milliseconds. One in force goes on.
    pub(crate) fn begin(&self, key: &Key, block: BlockRef, now: Moment) -> u64 {
        let begun = |last: Option<BlockState>| match last {
            Some(last) if last.end_if_in_force(now.floor_millis()).is_some() => last,
            last => BlockState::begun(block.block(), last, now.ceil_millis()),
        };
        self.set(key, block, now, begun).end
    }

    /// Records the block that another store has begun or extended. It lasts for so many milliseconds from now.
    pub(crate) fn record(&self, key: &Key, block: BlockRef, now: Moment, left: u64) {
        let end = now.ceil_millis().saturating_add(left);
        let recorded = |last: Option<BlockState>| {
            // The length is known at the beginning alone. Until it is over, the time that is left only shrinks.
            let length =
                last.filter(|last| last.end_if_in_force(now.floor_millis()).is_some()).map_or(0, |last| last.length);
            BlockState { end, length: length.max(left) }
        };
        self.set(key, block, now, recorded);
    }

    /// Ends the block of a key.
    pub(crate) fn forget(&self, key: &Key, block: BlockRef) {
        lock(self.shard(key)).blocks.remove(&(key.clone(), block.rule()));
    }

    fn set(
        &self,
        key: &Key,
        block: BlockRef,
        now: Moment,
        new: impl FnOnce(Option<BlockState>) -> BlockState,
    ) -> BlockState {
        let mut shard = lock(self.shard(key));
        let at = (key.clone(), block.rule());
        // Before the table would grow, so that an insertion takes constant time on average.
        let is_full = shard.blocks.len() >= shard.blocks.capacity().min(self.capacity);
        if is_full && !shard.blocks.contains_key(&at) {
            self.make_room(&mut shard, now.floor_millis());
        }
        let state = new(shard.blocks.get(&at).map(|(state, _)| *state));
        shard.blocks.insert(at, (state, block.block()));
        state
    }

    /// Removes the blocks that nothing depends on, from time to time, and in a full shard at least one that ends soon.
    #[cold]
    fn make_room(&self, BlockShard { blocks, swept_at }: &mut BlockShard, now: u64) {
        if blocks.len() < self.capacity || now >= swept_at.saturating_add(SWEEP_PAUSE) {
            *swept_at = now;
            blocks.retain(|_, (state, block)| !state.is_forgotten(*block, now));
        }
        if blocks.len() >= self.capacity {
            let sample = blocks.iter().take(SAMPLE);
            let first = sample.min_by_key(|(_, (state, _))| state.end).map(|(at, _)| at.clone());
            first.and_then(|first| blocks.remove(&first));
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<BlockShard> {
        let hash = self.seed.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}
