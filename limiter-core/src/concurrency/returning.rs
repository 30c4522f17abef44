//! The return of free slots at the end of a program. A process keeps them for a moment, and nothing returns them once it has
//! ended: others get them when they end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::SlotTable;
use crate::clock::Clock;
use crate::sync::process::PerProcess;
use crate::sync::{Mutex, lock};

/// The tables of all limiters with a store that processes share.
static TABLES: PerProcess<Mutex<Vec<Weak<SlotTable>>>> = PerProcess::new();

/// The longest wait. A server that sends no reply must not keep a program from its end.
const MAX_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Adds the table of a limiter, whose free slots are returned at the end of the program.
pub(crate) fn return_at_the_end(table: &Arc<SlotTable>) {
    let mut tables = lock(TABLES.here());
    tables.retain(|table| table.strong_count() > 0);
    tables.push(Arc::downgrade(table));
}

/// Waits until the store has all slots back of which no call runs, of all limiters, for at most a second.
pub(crate) async fn free_slots_returned() {
    let tables: Vec<_> = lock(TABLES.here()).iter().filter_map(Weak::upgrade).collect();
    let clock = Clock::System;
    let latest = clock.now().after(MAX_WAIT);
    while tables.iter().any(|table| table.has_free_slots()) {
        if clock.now() >= latest || clock.sleep(PAUSE).await.is_err() {
            return;
        }
    }
}
