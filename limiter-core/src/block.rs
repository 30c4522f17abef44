//! Blocks: the first denial by a rule's limits blocks the key for a time, for every limit of the rule.
//!
//! A block is a value beside the counters, by key and rule: its end and its length. Only calls whose rule has a block read
//! it. The arithmetic exists twice: in [`BlockState`], and in `store/redis/script/lua/blocks.lua`.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::str::FromStr;
use std::time::Duration;

use limiter_syntax::{BlockProblem, BlockText, parse_block};

use crate::sync::process::PerProcess;
use crate::sync::{RwLock, read, write};
use crate::{Error, ErrorKind};

mod blocked_keys;

pub(crate) use blocked_keys::BlockedKeys;

/// The time for which the first denial of a rule blocks its key: see [`Rule::block`](crate::Rule::block).
///
/// As a text it is `10min`, or `1min x2 up to 1d` for blocks that grow, with ` extended` behind it if attempts extend it.
///
/// ```
/// # use limiter_core as rate_limited;
/// use std::time::Duration;
/// use rate_limited::Block;
///
/// let block = Block::new(Duration::from_secs(60))?.growing(2.0, Duration::from_secs(86_400))?;
/// assert_eq!(block, "1min x2 up to 1d".parse()?);
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block(BlockText);

impl Block {
    /// Creates blocks of one length, 1 ms to 366 days. It may be shorter than a window of the rule: calls that still count
    /// then deny the key once more, and block it again.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another length.
    pub fn new(time: Duration) -> Result<Self, Error> {
        let text = BlockText::from_parts(millis(time), None, None, false);
        text.map(Self).map_err(|problem| error(problem, &format!("{time:?}")))
    }

    /// Returns blocks each of which is `factor` times as long as the one before it, above 1 and up to 1 000, but at most
    /// `most` long. A key that was not blocked for `most` since its last block begins anew.
    ///
    /// The factor counts in thousandths.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another factor, and for a `most` that is less than the first block or above 366 days.
    pub fn growing(self, factor: f64, most: Duration) -> Result<Self, Error> {
        let found = format!("a factor of {factor} up to {most:?}");
        let factor = limiter_syntax::parse_factor(&format!("{factor}")).unwrap_or(0);
        let text = BlockText::from_parts(self.0.time_millis, Some(factor), Some(millis(most)), self.0.is_extended);
        text.map(Self).map_err(|problem| error(problem, &found))
    }

    /// Sets whether an attempt during a block lets it begin again, with its length. Default: `false`.
    ///
    /// Most attempts are denied by this process, from its cache of denials. So a block is extended at most once a second.
    #[must_use]
    pub const fn extended(mut self, is_extended: bool) -> Self {
        self.0.is_extended = is_extended;
        self
    }

    /// Stands for whatever block a rule has, where only the rule matters.
    pub(crate) const ANY: Self = Self(BlockText::constant(1));

    /// The block of parts that were checked at compile time.
    pub(crate) const fn of_text(text: BlockText) -> Self {
        Self(text)
    }

    pub(crate) const fn is_extended(self) -> bool {
        self.0.is_extended
    }

    /// The length of the first block, in milliseconds.
    pub(crate) const fn first_millis(self) -> u64 {
        self.0.time_millis
    }

    /// The length of the longest block, in milliseconds.
    pub(crate) const fn longest_millis(self) -> u64 {
        self.0.most_millis
    }

    /// The length of each further block by that of the one before it, in thousandths.
    pub(crate) const fn factor_thousandths(self) -> u32 {
        self.0.factor_thousandths
    }

    const fn grows(self) -> bool {
        self.0.most_millis > self.0.time_millis
    }

    /// The time for which an ended block is kept, so that the next one is longer. In milliseconds.
    pub(crate) const fn kept_millis(self) -> u64 {
        if self.grows() { self.0.most_millis } else { 0 }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block(\"{}\")", self.0)
    }
}

impl FromStr for Block {
    type Err = Error;

    /// Parses a text such as `10min` or `1min x2 up to 1d`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        const MAX_BYTES: usize = 100;
        let shown: String = text.chars().filter(|letter| !letter.is_control()).take(MAX_BYTES).collect();
        parse_block(text).map(Self).map_err(|problem| error(problem, &format!("`{shown}`")))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn error(problem: BlockProblem<'_>, found: &str) -> Error {
    Error::new(ErrorKind::Config, problem_text(problem, found))
}

/// Returns the message for a value that is no block.
pub(crate) fn problem_text(problem: BlockProblem<'_>, found: &str) -> String {
    match problem {
        BlockProblem::Unreadable => format!(
            "`block` must have a time, then ` x2 up to 1d` for blocks that grow, and ` extended` if attempts extend \
             them, got {found}: write one such as `10min`, `1min x2 up to 1d` or `10min extended`"
        ),
        BlockProblem::Time(_) | BlockProblem::TimeOutOfRange => format!(
            "`block` must have times from 1 ms to 366 days, got {found}: write one such as `10min`, or `1min x2 up to 1d` for \
             blocks that grow"
        ),
        BlockProblem::Factor => format!(
            "`block` must have a factor from 1 to 1000 with at most three decimals, got {found}: write one such as \
             `1min x2 up to 1d`"
        ),
        BlockProblem::MostBelowTime => format!(
            "`block` must have a longest time of at least the first one, got {found}: write the longer one last, as in \
             `1min x2 up to 1d`"
        ),
        BlockProblem::OnlyOneOfFactorAndMost => format!(
            "`block` must have a factor above 1 and a longest time, or neither, got {found}: write both, as in \
             `1min x2 up to 1d`"
        ),
    }
}

// The block of one rule, as requests have it.

/// The block of a rule. It lives until the process ends, so a request has a reference alone.
#[derive(Debug)]
pub(crate) struct RuleBlock {
    pub(crate) rule: &'static str,
    pub(crate) block: Block,
}

/// A rule's block in a request. There is one for each rule and block, so the address identifies it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRef(&'static RuleBlock);

/// The blocks of rules so far. Each change of a rule's block adds one.
static RULE_BLOCKS: PerProcess<RwLock<HashMap<(&'static str, Block), BlockRef>>> = PerProcess::new();

impl BlockRef {
    /// Returns the block of a rule.
    pub(crate) fn of_rule(rule: &'static str, block: Block) -> Self {
        let blocks = RULE_BLOCKS.here();
        let known = read(blocks).get(&(rule, block)).copied();
        known.unwrap_or_else(|| {
            let new = || Self(Box::leak(Box::new(RuleBlock { rule, block })));
            *write(blocks).entry((rule, block)).or_insert_with(new)
        })
    }

    pub(crate) const fn rule(self) -> &'static str {
        self.0.rule
    }

    pub(crate) const fn block(self) -> Block {
        self.0.block
    }
}

impl PartialEq for BlockRef {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for BlockRef {}

impl Hash for BlockRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

// The arithmetic.

/// The last block of a key: its end and its length, in milliseconds of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockState {
    pub(crate) end: u64,
    pub(crate) length: u64,
}

/// The shortest time between two extensions of a block, in milliseconds.
const EXTENSION_PAUSE: u64 = 1000;
/// The milliseconds by which the clock may step back in a block.
const CLOCK_SLACK: u64 = 1000;

impl BlockState {
    /// Returns the end of the block if it is in force. One that ends much later than its length from now is from before a
    /// step of the clock, and void.
    pub(crate) fn end_if_in_force(self, now: u64) -> Option<u64> {
        (now < self.end && self.end - now <= self.length + CLOCK_SLACK).then_some(self.end)
    }

    /// Returns the block that a denial begins now, after the `last` one of the key. `now` is rounded up.
    pub(crate) fn begun(block: Block, last: Option<Self>, now: u64) -> Self {
        // None grows from one of a clock that has stepped back.
        let is_recent = |last: &Self| last.end <= now && now < last.end.saturating_add(block.kept_millis());
        let length = match last.filter(is_recent) {
            Some(last) if block.grows() => {
                let longer = last.length.saturating_mul(block.factor_thousandths().into()) / 1000;
                longer.clamp(block.first_millis(), block.longest_millis())
            }
            _ => block.first_millis(),
        };
        Self { end: now + length, length }
    }

    /// Returns the block after an attempt, if that extends it now. `now` is rounded up.
    pub(crate) fn extended(self, block: Block, now: u64) -> Option<Self> {
        let is_due = block.is_extended() && self.end.saturating_sub(now) + EXTENSION_PAUSE <= self.length;
        is_due.then_some(Self { end: now + self.length, ..self })
    }

    /// Returns whether nothing depends on it any more.
    pub(crate) fn is_forgotten(self, block: Block, now: u64) -> bool {
        self.end.saturating_add(block.kept_millis()) <= now
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
