//! The part of a command that is about blocks of keys: see `lua/blocks.lua`.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::block::{Block, BlockRef};
use crate::request::{BatchEntryReply, DecisionReply};
use crate::{Error, ErrorKind, Layout};

/// The blocks of a decision's requests, or of a batch's entries.
#[derive(Debug)]
pub(crate) struct BlockArguments {
    is_batch: bool,
    blocks: Vec<DescribedBlock>,
    /// A denial begins them.
    begins: bool,
}

/// The block of a request, or of an entry of a batch with so many calls, by its index.
pub(crate) struct CountedBlock {
    pub(crate) index: usize,
    pub(crate) calls: u32,
    pub(crate) layout: Layout,
    pub(crate) block: BlockRef,
}

/// The block of one request, or of one entry of a batch.
#[derive(Clone, Copy, Debug)]
struct DescribedBlock {
    index: usize,
    /// The calls of the entry.
    calls: u32,
    block: Block,
}

/// The number of a reply that stands for a block with no time left. The time in microseconds is subtracted from it.
const BLOCKED: i64 = -2;
/// The place of `retry after` in the reply to a decision, and in a packed entry.
const RETRY_NUMBER: usize = 3;
const RETRY_BYTES: usize = 8;
const ENTRY_BYTES: usize = 24;

impl BlockArguments {
    /// No blocks of a decision or a batch. A denial `begins` those that are added.
    pub(super) fn new(is_batch: bool, begins: bool) -> Self {
        Self { is_batch, blocks: Vec::new(), begins }
    }

    /// Adds the block of a request, or of an entry with so many calls.
    pub(super) fn add(&mut self, index: usize, calls: u32, block: Block) {
        self.blocks.push(DescribedBlock { index, calls, block });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds the description of the blocks, which comes before the other arguments.
    pub(super) fn push_to(&self, command: &mut Cmd) {
        let mut described = vec![if self.is_batch { b'b' } else { b'd' }];
        for DescribedBlock { index, calls, block } in &self.blocks {
            described.extend_from_slice(&u16::try_from(*index).unwrap_or(u16::MAX).to_be_bytes());
            described.extend_from_slice(&calls.to_be_bytes());
            // A time of 366 days in milliseconds has 5 bytes.
            described.extend_from_slice(&block.first_millis().to_be_bytes()[2..]);
            described.extend_from_slice(&block.longest_millis().to_be_bytes()[2..]);
            described.extend_from_slice(&block.factor_thousandths().to_be_bytes());
            described.push(u8::from(self.begins) + 2 * u8::from(block.is_extended()));
        }
        command.arg(described);
    }

    /// Decodes the reply to a decision by `decode`, which knows no blocks.
    ///
    /// # Errors
    /// Those of `decode`, and [`ErrorKind::Protocol`] for a block that is longer than any.
    pub(super) fn decode(
        reply: &Value,
        decode: impl FnOnce(&Value) -> Result<DecisionReply, Error>,
    ) -> Result<DecisionReply, Error> {
        let Value::Array(numbers) = reply else { return decode(reply) };
        let Some(&Value::Int(retry @ ..=BLOCKED)) = numbers.get(RETRY_NUMBER) else { return decode(reply) };
        let left = time_left(retry)?;
        let mut numbers = numbers.clone();
        numbers[RETRY_NUMBER] = Value::Int(0);
        let mut decision = decode(&Value::Array(numbers))?;
        let reply = &mut decision.reply;
        (reply.is_blocked, reply.retry_after, reply.reset_after) = (true, Some(left), reply.reset_after.max(left));
        Ok(decision)
    }

    /// Removes the times of blocks from the reply to a batch, and returns them, each with the index of its entry.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for a block that is longer than any.
    pub(super) fn take_times(&self, reply: &mut Value) -> Result<Vec<(usize, Duration)>, Error> {
        let Value::Array(values) = reply else { return Ok(Vec::new()) };
        let Some(Value::BulkString(packed)) = values.get_mut(1) else { return Ok(Vec::new()) };
        let mut times = Vec::new();
        for DescribedBlock { index, .. } in &self.blocks {
            let at = index * ENTRY_BYTES + RETRY_BYTES;
            let Some(bytes) = packed.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else { continue };
            let retry = i64::from_be_bytes(*bytes);
            if retry <= BLOCKED {
                *bytes = 0_i64.to_be_bytes();
                times.push((*index, time_left(retry)?));
            }
        }
        Ok(times)
    }
}

/// Adds times of blocks to the replies to the entries of a batch.
pub(super) fn add_times(entries: &mut [Result<BatchEntryReply, Error>], times: &[(usize, Duration)]) {
    for (index, left) in times {
        if let Some(Ok(entry)) = entries.get_mut(*index) {
            (entry.is_blocked, entry.retry_after) = (true, Some(*left));
        }
    }
}

/// The time until the end of a block.
fn time_left(retry: i64) -> Result<Duration, Error> {
    /// 366 days, and the milliseconds by which times are rounded up.
    const MAX: Duration = Duration::from_millis(limiter_syntax::MAX_WINDOW_MILLIS + 2);
    let left = Duration::from_micros(BLOCKED.abs_diff(retry));
    if left <= MAX { Ok(left) } else { Err(Error::new(ErrorKind::Protocol, "a block that is longer than any")) }
}
