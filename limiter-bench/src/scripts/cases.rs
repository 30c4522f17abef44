//! The cases in which scripts are measured.

use std::time::Duration;

use crate::contestant::Rate;

/// The parameters of one table.
#[derive(Debug, Clone, Copy)]
pub struct ScriptCase {
    /// A short name.
    pub name: &'static str,
    /// The heading in the report.
    pub title: &'static str,
    /// The number of keys. Calls use them in turn.
    pub keys: usize,
    /// The limit of each key.
    pub rate: Rate,
    /// Keys of one script call.
    pub keys_per_call: usize,
    /// Decisions before the measured ones.
    pub warm_up: WarmUp,
    /// True if every measured call is denied, false if none is.
    pub denied: bool,
}

/// Decisions before the measured ones.
#[derive(Debug, Clone, Copy)]
pub enum WarmUp {
    /// A number of decisions on each key.
    PerKey(usize),
    /// The decisions that fit into a duration.
    For(Duration),
}

/// Keys of one call in the cases with batches.
pub const BATCH_KEYS: usize = 64;

/// So many keys that each has fewer runs than a log keeps, and that each decision expires about one of them.
const BUSY_KEYS: usize = 2_000;

/// The rate 5 in 10 seconds.
const FEW: Rate = Rate { max: 5, seconds: 10 };
/// A rate above that of the calls.
const ENDLESS: Rate = Rate { max: 1_000_000, seconds: 1 };
/// A duration longer than the window of [`ENDLESS`]: from then on as many runs expire as are added.
const STEADY_AFTER: Duration = Duration::from_millis(1_200);

/// Returns all cases, in the order of the report.
#[must_use]
pub fn all(keys: usize) -> [ScriptCase; 7] {
    let few = ScriptCase {
        name: "many keys",
        title: "One decision a call: 5/10 s on many keys, nothing denied",
        keys,
        rate: FEW,
        keys_per_call: 1,
        warm_up: WarmUp::PerKey(1),
        denied: false,
    };
    let long = ScriptCase {
        name: "long log",
        title: "One decision a call: 1 000 000/s on one key, as many live runs as a log keeps, nothing denied",
        keys: 1,
        rate: ENDLESS,
        warm_up: WarmUp::For(STEADY_AFTER),
        ..few
    };
    let denied = ScriptCase {
        name: "denied",
        title: "One decision a call: 5/10 s on 1 000 keys, all denied",
        keys: 1_000,
        warm_up: WarmUp::PerKey(5),
        denied: true,
        ..few
    };
    let batched = |case: ScriptCase, name, title| ScriptCase { name, title, keys_per_call: BATCH_KEYS, ..case };
    [
        few,
        long,
        denied,
        batched(few, "many keys, 64", "64 decisions a call: 5/10 s on many keys, nothing denied"),
        batched(
            ScriptCase { keys: BATCH_KEYS, ..long },
            "long log, 64",
            "64 decisions a call: 1 000 000/s on 64 keys, as many live runs as a log keeps, nothing denied",
        ),
        batched(
            ScriptCase { keys: BUSY_KEYS, ..long },
            "busy keys, 64",
            "64 decisions a call: 1 000 000/s on 2 000 busy keys, runs expire as others are added, nothing denied",
        ),
        batched(denied, "denied, 64", "64 decisions a call: 5/10 s on 1 000 keys, all denied"),
    ]
}
