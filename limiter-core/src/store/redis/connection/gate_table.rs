//! The gates of all servers, by slot. Callers use them on their own threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::Error;
use crate::store::redis::connection::breaker::Breaker;
use crate::store::redis::pipelined::DirectWriter;
use crate::store::redis::slot;
use crate::sync::{RwLock, read, write};

#[derive(Debug)]
pub(crate) struct GateTable(Gates);

#[derive(Debug)]
enum Gates {
    Single(Arc<ServerGate>),
    /// One for each slot of a cluster.
    BySlot {
        gates: RwLock<Box<[Arc<ServerGate>]>>,
        /// The gate of slots without a known owner.
        unowned: Arc<ServerGate>,
    },
}

impl GateTable {
    /// A table for one server.
    pub(crate) fn single() -> Self {
        Self(Gates::Single(Arc::default()))
    }

    /// A table for a cluster.
    pub(crate) fn by_slot() -> Self {
        let unowned: Arc<ServerGate> = Arc::default();
        let gates = RwLock::new(vec![Arc::clone(&unowned); slot::COUNT.into()].into());
        Self(Gates::BySlot { gates, unowned })
    }

    /// The gate of the one server, or of slots without a known owner.
    pub(crate) fn default_gate(&self) -> Arc<ServerGate> {
        match &self.0 {
            Gates::Single(gate) | Gates::BySlot { unowned: gate, .. } => Arc::clone(gate),
        }
    }

    /// The gate of the server that owns a slot, if a condition holds for it.
    pub(crate) fn gate_if(&self, slot: u16, condition: impl Fn(&ServerGate) -> bool) -> Option<Arc<ServerGate>> {
        // It is cloned only then: the count of a pointer is in a cache line that all callers would write.
        let cloned = |gate: &Arc<ServerGate>| condition(gate).then(|| Arc::clone(gate));
        match &self.0 {
            Gates::Single(gate) => cloned(gate),
            Gates::BySlot { gates, .. } => cloned(&read(gates)[usize::from(slot)]),
        }
    }

    /// The error of a call on keys in these slots, if a breaker is open. A single server needs no slots.
    pub(crate) fn open_error(&self, slots: &[u16]) -> Option<Error> {
        match &self.0 {
            Gates::Single(gate) => gate.breaker.open_error(),
            Gates::BySlot { gates, .. } => {
                let gates = read(gates);
                slots.iter().find_map(|slot| gates[usize::from(*slot)].breaker.open_error())
            }
        }
    }

    /// Assigns gates to slots.
    pub(crate) fn assign(&self, assigned: impl Iterator<Item = (u16, Arc<ServerGate>)>) {
        if let Gates::BySlot { gates, .. } = &self.0 {
            let mut gates = write(gates);
            for (slot, gate) in assigned {
                gates[usize::from(slot)] = gate;
            }
        }
    }
}

// The state of one server that callers use on their own threads.

/// Stops calls while the server is down, and lets a call write to the server's connection while that is idle.
#[derive(Debug, Default)]
pub(crate) struct ServerGate {
    pub(crate) breaker: Breaker,
    pub(crate) direct_writer: Arc<DirectWriter>,
    /// The microseconds by which the server's clock is ahead, as its last reply about the edges of a calendar has shown.
    clock_lead: AtomicI64,
}

impl ServerGate {
    /// The microseconds by which the server's clock is ahead of this process's, as far as it is known.
    pub(crate) fn clock_lead(&self) -> i64 {
        self.clock_lead.load(Ordering::Relaxed)
    }

    pub(crate) fn set_clock_lead(&self, lead: i64) {
        self.clock_lead.store(lead, Ordering::Relaxed);
    }
}
