//! The Lua scripts: their sources, the commands that call them, and their replies.

use crate::clock::Clock;

pub(crate) mod action;
pub(crate) mod command;
pub(crate) mod reply;
pub(crate) mod block_arguments;
mod packed_arguments;
mod slot_arguments;
pub(crate) mod slots;
#[cfg(test)]
mod fuzz;

/// Concatenates the function that returns the module of an algorithm. A script builds only the modules that a call uses,
/// since each run builds them anew.
macro_rules! modules {
    () => {
        concat!(
            "local function make(name)\n",
            include_str!("script/lua/sliding_window.lua"),
            "if name == 'sliding_window' then return sliding_window() end\n",
            include_str!("script/lua/leased_window.lua"),
            "if name == 'leased_window' then return leased_window(sliding_window()) end\n",
            "local algorithms = {}\n",
            include_str!("script/lua/arithmetic.lua"),
            include_str!("script/lua/fixed_window.lua"),
            include_str!("script/lua/sliding_counter.lua"),
            include_str!("script/lua/bucket.lua"),
            include_str!("script/lua/token_bucket.lua"),
            include_str!("script/lua/leaky_bucket.lua"),
            include_str!("script/lua/calendar.lua"),
            include_str!("script/lua/zset.lua"),
            "return algorithms[name]()\n",
            "end\n",
        )
    };
}

/// Concatenates the functions of a batch and of one decision, for the scripts that have one of them inside.
macro_rules! batch_and_decide {
    () => {
        concat!(
            "local function batch()\n",
            include_str!("script/lua/sliding_simple.lua"),
            include_str!("script/lua/sliding_at_once.lua"),
            include_str!("script/lua/batch.lua"),
            "end\n",
            "local function decide(denials)\n",
            include_str!("script/lua/decide.lua"),
            "end\n",
        )
    };
}

/// The script of one decision.
const DECIDE: &str = concat!(
    include_str!("script/lua/clock.lua"),
    modules!(),
    "local denials\n",
    include_str!("script/lua/decide.lua"),
);

/// The script of a batch: the clock, the part that decides most calls, the algorithms, and the part that decides the others.
const BATCH: &str = concat!(
    include_str!("script/lua/clock.lua"),
    include_str!("script/lua/sliding_simple.lua"),
    modules!(),
    include_str!("script/lua/sliding_at_once.lua"),
    include_str!("script/lua/batch.lua"),
);

/// The script of both about keys that may be blocked. A script without blocks has nothing of it.
const BLOCKS: &str = concat!(
    include_str!("script/lua/clock.lua"),
    "local function simple()\n",
    include_str!("script/lua/sliding_simple.lua"),
    "end\n",
    include_str!("script/lua/blocks_lone.lua"),
    modules!(),
    batch_and_decide!(),
    include_str!("script/lua/blocks.lua"),
);

/// The script of both about counts that share hashes. What is inside of it calls the `redis` of its first part.
const PACKED: &str = concat!(
    include_str!("script/lua/clock.lua"),
    include_str!("script/lua/packed.lua"),
    modules!(),
    batch_and_decide!(),
    include_str!("script/lua/packed_end.lua"),
);

/// The script that a command calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// One decision, of any kind.
    Decide,
    /// Many decisions, each about one counter.
    Batch,
    /// The slots of calls that run at once.
    Slots,
    /// Decisions, or many of them, about keys that may be blocked.
    Blocks,
    /// Decisions, or many of them, about counts that share hashes.
    Packed,
}

/// The number of programs.
pub(crate) const PROGRAMS: usize = 5;

impl Program {
    pub(crate) const ALL: [Self; PROGRAMS] = [Self::Decide, Self::Batch, Self::Slots, Self::Blocks, Self::Packed];

    const fn source(self) -> &'static str {
        match self {
            Self::Decide => DECIDE,
            Self::Batch => BATCH,
            Self::Blocks => BLOCKS,
            Self::Packed => PACKED,
            Self::Slots => concat!(include_str!("script/lua/clock.lua"), include_str!("script/lua/slots.lua")),
        }
    }
}

/// The expression of the script that reads the server's clock.
#[cfg(feature = "test-util")]
const SERVER_TIME: &str = "redis.call('TIME')";
/// The expression that replaces it for a limiter with a clock of its own: seconds and microseconds, as TIME gives them.
#[cfg(feature = "test-util")]
const GIVEN_TIME: &str = "{ ARGV[#ARGV - 1], ARGV[#ARGV] }";

/// The source of each program, in the order of [`Program::ALL`].
pub(crate) fn sources(clock: &Clock) -> [String; PROGRAMS] {
    Program::ALL.map(|program| match clock {
        Clock::System => program.source().to_owned(),
        #[cfg(feature = "test-util")]
        Clock::Manual(_) => program.source().replace(SERVER_TIME, GIVEN_TIME),
    })
}
