//! The number and the state of the shared stores of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::describe;
use super::stores;
use crate::health::HealthState;
use crate::sync::process::PerProcess;

/// A shared store of this process. The gauge is 1 while each of them is up.
///
/// The limiter owns the value: its drop runs the recorder, which must not run on the thread of a worker.
#[derive(Debug)]
pub(crate) struct StoreUp(Arc<StoreState>);

/// The state of a store, which its changes are written to. They are no longer counted once the limiter is dropped.
#[derive(Debug)]
pub(crate) struct StoreState {
    state: AtomicU8,
}

const DOWN: u8 = 0;
const UP: u8 = 1;
/// The limiter is dropped.
const WITHDRAWN: u8 = 2;

static STORES: PerProcess<AtomicU32> = PerProcess::new();
static STORES_UP: PerProcess<AtomicU32> = PerProcess::new();

impl StoreUp {
    /// Adds a store in a state. The gauges show it once [`show_stores`] was called.
    pub(crate) fn new(state: HealthState) -> Self {
        STORES.here().fetch_add(1, Ordering::SeqCst);
        let store = Self(Arc::new(StoreState { state: AtomicU8::new(DOWN) }));
        store.0.change(if state == HealthState::Up { UP } else { DOWN });
        store
    }

    /// Returns the state, for its changes.
    pub(crate) fn state(&self) -> Arc<StoreState> {
        Arc::clone(&self.0)
    }
}

impl Drop for StoreUp {
    fn drop(&mut self) {
        self.0.change(WITHDRAWN);
        STORES.here().fetch_sub(1, Ordering::SeqCst);
        show_stores();
    }
}

impl StoreState {
    /// Sets the state. It runs the recorder.
    pub(crate) fn set(&self, state: HealthState) {
        describe();
        self.change(if state == HealthState::Up { UP } else { DOWN });
        show_stores();
    }

    fn change(&self, new: u8) {
        let change = |old| (old != WITHDRAWN && old != new).then_some(new);
        let Ok(old) = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) else { return };
        match (old, new) {
            (_, UP) => drop(STORES_UP.here().fetch_add(1, Ordering::SeqCst)),
            (UP, _) => drop(STORES_UP.here().fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

/// Sets the gauges, again if another thread has changed the state meanwhile. It runs the recorder.
pub(crate) fn show_stores() {
    loop {
        let (number, are_up) = present();
        stores(number, are_up);
        if present() == (number, are_up) {
            break;
        }
    }
}

/// Returns the number of stores, and whether there are any and each is up.
fn present() -> (u32, bool) {
    let stores = STORES.here().load(Ordering::SeqCst);
    (stores, stores > 0 && STORES_UP.here().load(Ordering::SeqCst) == stores)
}
