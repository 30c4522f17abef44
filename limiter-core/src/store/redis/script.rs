//! The Lua scripts: their sources, the commands that call them, and their replies.

use std::borrow::Cow;

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

/// The script of both about counts that share hashes. What is inside of it calls the `redis` of `packed.lua`. At
/// [`PACKED_SIMPLE`] it has the part that decides most calls.
const PACKED: &str = concat!(
    include_str!("script/lua/clock.lua"),
    include_str!("script/lua/packed_sweep.lua"),
    include_str!("script/lua/packed_simple.lua"),
    include_str!("script/lua/packed.lua"),
    modules!(),
    batch_and_decide!(),
    include_str!("script/lua/packed_end.lua"),
);

/// The line of the script of packed counts that `sliding_simple.lua` replaces.
const PACKED_SIMPLE: &str = "  -- sliding_simple.lua\n";

/// The texts of `sliding_simple.lua` that are others for packed counts: the read of a value, and each of its newest stamp. A
/// write that changes a long value in place stays: it fails, and `packed.lua` decides.
const PACKED_TEXTS: [(&str, &str); 2] = [
    ("call('GET', key)\n", "call('HGET', key, words[7 + index])\n    local old_stamp\n"),
    ("stamp = base + newest * unit\n", "stamp = base + newest * unit\n      old_stamp = stamp\n"),
];
/// The first text of the lines that write a whole value, and the last one.
const PACKED_WRITE: [&str; 2] = ["        if new_ttl ~= ttl then\n", "granted = stored and stored.ok and 1\n"];

/// Returns `sliding_simple.lua` for packed counts.
fn packed_simple() -> String {
    let mut simple = include_str!("script/lua/sliding_simple.lua").to_owned();
    for (text, replacement) in PACKED_TEXTS {
        simple = simple.replace(text, replacement);
    }
    let [first, last] = PACKED_WRITE;
    if let (Some(start), Some(end)) = (simple.find(first), simple.find(last)) {
        simple.replace_range(start..end + last.len(), include_str!("script/lua/packed_write.lua"));
    }
    simple
}

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

    fn source(self) -> Cow<'static, str> {
        let source = match self {
            Self::Decide => DECIDE,
            Self::Batch => BATCH,
            Self::Blocks => BLOCKS,
            Self::Packed => return PACKED.replacen(PACKED_SIMPLE, &packed_simple(), 1).into(),
            Self::Slots => concat!(include_str!("script/lua/clock.lua"), include_str!("script/lua/slots.lua")),
        };
        source.into()
    }
}

/// The expression of the script that reads the server's clock.
#[cfg(feature = "test-util")]
const SERVER_TIME: &str = "redis.call('TIME')";
/// The expression that replaces it for a limiter with a clock of its own: seconds and microseconds, as TIME gives them.
#[cfg(feature = "test-util")]
const GIVEN_TIME: &str = "{ table.remove(ARGV, #ARGV - 1), table.remove(ARGV) }";

/// The source of each program, in the order of [`Program::ALL`].
pub(crate) fn sources(clock: &Clock) -> [String; PROGRAMS] {
    Program::ALL.map(|program| match clock {
        Clock::System => program.source().into_owned(),
        #[cfg(feature = "test-util")]
        Clock::Manual(_) => program.source().replace(SERVER_TIME, GIVEN_TIME),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_decisions_about_packed_counts_read_and_write_fields_alone() {
        let simple = packed_simple();
        let count = |text: &str| simple.matches(text).count();
        assert_eq!([count("call('HGET'"), count("call('HSET'"), count("old_stamp = stamp\n")], [1, 1, 2]);
        assert_eq!([count("call('GET'"), count("call('SET'")], [0, 0]);
        assert!(!Program::Packed.source().contains(PACKED_SIMPLE));
    }
}
