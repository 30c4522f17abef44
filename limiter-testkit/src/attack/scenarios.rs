//! The list of scenarios.

use super::round::{Outcome, Round};
use super::{clocks, cluster, concurrent, drops, faults, forks, ledger, replies, schedules, sentinels, waiters};

/// One kind of attack.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The name to choose it by.
    pub name: &'static str,
    /// A line that says what is attacked and what is judged.
    pub about: &'static str,
    /// Whether it is part of the short form: it needs no cluster and no sentinels, and a round takes about a second.
    pub short: bool,
    pub(super) round: fn(&mut Round) -> Outcome,
}

/// Returns all scenarios, in the order in which their rounds take turns.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, about, short, round| Scenario { name, about, short, round };
    vec![
        scenario(
            "schedules",
            "random histories on both stores and layouts, step by step the answers of the naive oracles",
            true,
            schedules::round,
        ),
        scenario(
            "ledger",
            "batches of concurrent calls, refunds and drops by a clock that stands still: no permit more or less",
            true,
            ledger::round,
        ),
        scenario(
            "concurrent",
            "five algorithms on a real clock, with drops, refunds, resets and waits: each by its worst window",
            true,
            concurrent::round,
        ),
        scenario(
            "faults",
            "restarts, stops, cuts, garbled and lost replies on one server: from one process each algorithm by its worst window",
            true,
            faults::round,
        ),
        scenario(
            "replies",
            "lost replies: no command is sent twice, and nothing that was allowed is lost",
            true,
            replies::round,
        ),
        scenario(
            "waiters",
            "waits that are polled by hand, stalled and dropped: order, and none that is never served",
            true,
            waiters::round,
        ),
        scenario(
            "drops",
            "limiters that end at any moment, also over TLS and in their observers: no panic, no thread left",
            true,
            drops::round,
        ),
        scenario(
            "clocks",
            "a server's clock that steps: what that frees is what is documented, and it blocks no key",
            true,
            clocks::round,
        ),
        scenario(
            "forks",
            "children at once, with and without calls before: every call is counted, or fails at once, and none hangs",
            true,
            forks::round,
        ),
        scenario(
            "several",
            "decisions about several slots of a cluster: a rollback gives back its own permits alone",
            false,
            cluster::several,
        ),
        scenario(
            "slots",
            "slots that move under three processes: every limit is kept, and the store decides",
            false,
            cluster::slots,
        ),
        scenario(
            "cluster",
            "a master of a cluster that dies: from one process each algorithm by its worst window",
            false,
            cluster::failover,
        ),
        scenario(
            "sentinel",
            "a master that sentinels replace: from one process each algorithm by its worst window",
            false,
            sentinels::failover,
        ),
    ]
}
