//! What the variants are asked.

use std::time::Duration;

use crate::contestant::Rate;

/// One table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// In one word or two.
    pub name: &'static str,
    /// In the report.
    pub title: &'static str,
    /// How many keys there are, asked for in turn.
    pub keys: usize,
    /// The limit of each.
    pub rate: Rate,
    /// Keys of one script call.
    pub group: usize,
    /// What comes before what is measured.
    pub before: Before,
    /// Whether every call is denied; else none is.
    pub denied: bool,
    /// Whether logs get as long as they may.
    pub long: bool,
}

/// What comes before what is measured.
#[derive(Debug, Clone, Copy)]
pub enum Before {
    /// So many decisions on each key.
    Each(usize),
    /// As many as come in this time.
    For(Duration),
}

/// Most keys are new or nearly so.
pub const MANY: &str = "many keys";
/// Logs are as long as they get.
pub const LONG: &str = "long log";
/// Nothing is written.
pub const DENIED: &str = "denied";
/// The same, with many decisions a call.
pub const MANY_GROUPS: &str = "many keys, 64";
/// The same, with many decisions a call.
pub const LONG_GROUPS: &str = "long log, 64";
/// The same, with many decisions a call.
pub const DENIED_GROUPS: &str = "denied, 64";

/// Keys of one call in a group.
pub const GROUP: usize = 64;

/// 5 in 10 seconds.
const FEW: Rate = Rate { max: 5, seconds: 10 };
/// More than come.
const ENDLESS: Rate = Rate { max: 1_000_000, seconds: 1 };
/// Longer than that window: as many runs are over as come.
const STEADY: Duration = Duration::from_millis(1_200);

/// In the order of the report.
#[must_use]
pub fn all(keys: usize) -> [Case; 6] {
    let few = Case {
        name: MANY,
        title: "One decision a call: 5/10 s on many keys, nothing denied",
        keys,
        rate: FEW,
        group: 1,
        before: Before::Each(1),
        denied: false,
        long: false,
    };
    let long = Case {
        name: LONG,
        title: "One decision a call: 1 000 000/s on one key, as many live runs as are kept, nothing denied",
        keys: 1,
        rate: ENDLESS,
        before: Before::For(STEADY),
        long: true,
        ..few
    };
    let denied = Case {
        name: DENIED,
        title: "One decision a call: 5/10 s on 1 000 keys, all denied",
        keys: 1_000,
        before: Before::Each(5),
        denied: true,
        ..few
    };
    let grouped = |case: Case, name, title| Case { name, title, group: GROUP, ..case };
    [
        few,
        long,
        denied,
        grouped(few, MANY_GROUPS, "64 decisions a call: 5/10 s on many keys, nothing denied"),
        grouped(
            Case { keys: GROUP, ..long },
            LONG_GROUPS,
            "64 decisions a call: 1 000 000/s on 64 keys, as many live runs as are kept, nothing denied",
        ),
        grouped(denied, DENIED_GROUPS, "64 decisions a call: 5/10 s on 1 000 keys, all denied"),
    ]
}
