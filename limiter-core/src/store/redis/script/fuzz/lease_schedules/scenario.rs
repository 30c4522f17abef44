//! The kinds of schedules, and the counts of what happened in them.

/// A kind of schedules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) rules: LeaseRules,
    pub(super) has_resets: bool,
    /// The server's clock steps back.
    pub(super) has_steps: bool,
    /// The sizes of leases follow the demand. Else they are random.
    pub(super) has_demands: bool,
    /// A second key competes for the only place of each process's table.
    pub(super) has_second_key: bool,
    /// Processes have different `max`, and change it while leases are in force.
    pub(super) has_max_changes: bool,
    /// Charges take permits whether they fit or not.
    pub(super) has_charges: bool,
    /// All calls are of processes with leases, and a ledger has the permits that the store may count.
    pub(super) has_ledger: bool,
}

/// The rules by which the processes of a schedule use their leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseRules {
    /// Those of `worker/leases/life.rs`.
    Worker,
    /// A reset leaves the process's own lease in force. That is no mistake: the store keeps those permits.
    LeaseOutlivesReset,
    /// The time of a lease begins with the reply.
    EndFromReply,
    /// Permits are given back while calls may still take them.
    EarlyReturn,
    /// The receipt of a call has the time of the call, although the store stamped its permits later.
    ReceiptAtCall,
}

impl Scenario {
    /// The scenario with all that is optional apart from resets and steps.
    pub(super) const fn extended(self) -> Self {
        Self { has_demands: true, has_second_key: true, has_max_changes: true, ..self }
    }
}

/// The counts of one schedule, or of several.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) schedules: u64,
    /// Schedules with more permits in a window than its limit allows.
    pub(super) over: u64,
    /// Schedules with exactly as many.
    pub(super) full: u64,
    pub(super) script_calls: u64,
    pub(super) admitted: u64,
    /// Admitted permits that came from a lease.
    pub(super) leased: u64,
    pub(super) leases: u64,
    pub(super) refunds: u64,
    /// Script calls with unused permits.
    pub(super) returns: u64,
    pub(super) resets: u64,
    pub(super) steps: u64,
    pub(super) charges: u64,
    /// Changes of the `max` of a process.
    pub(super) max_changes: u64,
    /// Leases that found the place of the table in use by the other key.
    pub(super) refused: u64,
    /// Script calls after which the store counted more permits than the ledger.
    pub(super) beyond_ledger: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.over += other.over;
        self.full += other.full;
        self.script_calls += other.script_calls;
        self.admitted += other.admitted;
        self.leased += other.leased;
        self.leases += other.leases;
        self.refunds += other.refunds;
        self.returns += other.returns;
        self.resets += other.resets;
        self.steps += other.steps;
        self.charges += other.charges;
        self.max_changes += other.max_changes;
        self.refused += other.refused;
        self.beyond_ledger += other.beyond_ledger;
    }
}
