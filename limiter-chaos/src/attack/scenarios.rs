//! The list of scenarios.

use super::round::{Outcome, Round};
use super::{clocks, cluster, concurrent, drops, faults, flood, forks, ledger, replies, schedules, sentinels, waiters};

/// One kind of attack.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The name, as on the command line.
    pub name: &'static str,
    /// A one-line description of the attack and its check.
    pub about: &'static str,
    /// True if the short form includes it: it needs no cluster and no sentinels, and a round takes about a second.
    pub short: bool,
    /// True if it can run with leases.
    pub leases: bool,
    /// True if it can run with TLS.
    pub tls: bool,
    pub(super) round: fn(&mut Round) -> Outcome,
}

/// The scenarios that can run with leases.
///
/// `clocks` cannot: a step forward frees what is on lease, by an exception of docs/leases.md. The limits of `several` and
/// `ledger` are too small for leases, and decisions about several counts take none. `flood` has leases in any case.
const WITH_LEASES: [&str; 5] = ["concurrent", "faults", "slots", "cluster", "sentinel"];

/// The scenarios that can run with TLS.
const WITH_TLS: [&str; 5] = ["concurrent", "faults", "drops", "cluster", "sentinel"];

/// Returns all scenarios, in the order in which their rounds take turns.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, about, short, round| {
        let (leases, tls) = (WITH_LEASES.contains(&name), WITH_TLS.contains(&name));
        Scenario { name, about, short, leases, tls, round }
    };
    vec![
        scenario(
            "schedules",
            "random histories on both stores and layouts, compared step by step with the naive oracles",
            true,
            schedules::round,
        ),
        scenario(
            "ledger",
            "batches of concurrent calls, charges, refunds and drops by a manual clock: exact counts",
            true,
            ledger::round,
        ),
        scenario(
            "concurrent",
            "five algorithms on a real clock, with charges, drops, refunds, resets and waits: worst windows",
            true,
            concurrent::round,
        ),
        scenario(
            "faults",
            "restarts, stops, cuts, garbled and lost replies on one server: worst windows of one process",
            true,
            faults::round,
        ),
        scenario(
            "flood",
            "a flood of denied keys beside leased keys in steady use: worst windows, and no lease is ended",
            true,
            flood::round,
        ),
        scenario("replies", "lost replies: no command is sent twice, and no admission is lost", true, replies::round),
        scenario(
            "waiters",
            "waits that are polled by hand, stalled and dropped: order, and every wait is served",
            true,
            waiters::round,
        ),
        scenario(
            "drops",
            "limiters dropped at any moment, also over TLS and in their observers: no panic, no thread left",
            true,
            drops::round,
        ),
        scenario(
            "clocks",
            "a server's clock that steps: it frees no more than is documented, and blocks no key",
            true,
            clocks::round,
        ),
        scenario(
            "forks",
            "concurrent children, with and without calls before the fork: every call is counted or fails at once",
            true,
            forks::round,
        ),
        scenario(
            "several",
            "multi-slot decisions on a cluster: a rollback refunds exactly its own permits",
            false,
            cluster::multi_slot_decisions,
        ),
        scenario(
            "slots",
            "moving slots under three processes: every limit holds, and the store decides",
            false,
            cluster::moving_slots,
        ),
        scenario("cluster", "a killed master of a cluster: worst windows of one process", false, cluster::failover),
        scenario(
            "sentinel",
            "a master that sentinels replace: worst windows of one process",
            false,
            sentinels::failover,
        ),
    ]
}
