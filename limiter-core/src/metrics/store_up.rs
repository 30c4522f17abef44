//! The gauges of the number and of the state of shared stores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::gauge;

use super::contained::record;
#[cfg(feature = "redis")]
use super::describe::describe;
use crate::health::HealthState;

/// A shared store of this process. The gauge is 1 while each of them is up.
///
/// The limiter owns the value: its drop runs the recorder, which must not run on the thread of a worker.
#[derive(Debug)]
pub(crate) struct StoreUp(Arc<StoreState>);

/// The state of a store, which its changes are written to. They are no longer counted once the limiter is dropped.
#[derive(Debug)]
pub(crate) struct StoreState {
    /// `None` once the limiter is dropped.
    is_up: Mutex<Option<bool>>,
}

static STORES: AtomicU32 = AtomicU32::new(0);
static STORES_UP: AtomicU32 = AtomicU32::new(0);

impl StoreUp {
    /// Adds a store in a state.
    pub(crate) fn new(state: HealthState) -> Self {
        STORES.fetch_add(1, Ordering::SeqCst);
        let store = Self(Arc::new(StoreState { is_up: Mutex::new(Some(false)) }));
        store.0.change(Some(state == HealthState::Up));
        show();
        store
    }

    /// Returns the state, for its changes.
    #[cfg(feature = "redis")]
    pub(crate) fn state(&self) -> Arc<StoreState> {
        Arc::clone(&self.0)
    }
}

impl Drop for StoreUp {
    fn drop(&mut self) {
        self.0.change(None);
        STORES.fetch_sub(1, Ordering::SeqCst);
        show();
    }
}

impl StoreState {
    /// Sets the state. It runs the recorder.
    #[cfg(feature = "redis")]
    pub(crate) fn set(&self, state: HealthState) {
        record(describe);
        self.change(Some(state == HealthState::Up));
        show();
    }

    fn change(&self, new: Option<bool>) {
        let mut is_up = self.is_up.lock().unwrap_or_else(PoisonError::into_inner);
        match (*is_up, new) {
            (Some(false), Some(true)) => drop(STORES_UP.fetch_add(1, Ordering::SeqCst)),
            (Some(true), Some(false) | None) => drop(STORES_UP.fetch_sub(1, Ordering::SeqCst)),
            // Nothing changes, or the limiter is dropped.
            _ => {}
        }
        if is_up.is_some() {
            *is_up = new;
        }
    }
}

/// Sets the gauges, again if another thread has changed the state meanwhile.
fn show() {
    record(|| {
        let (stores, up) = (gauge!("rate_limited_stores"), gauge!("rate_limited_store_up"));
        loop {
            let shown = present();
            stores.set(shown.0);
            up.set(u8::from(shown.1));
            if present() == shown {
                break;
            }
        }
    });
}

/// Returns the number of stores, and whether there are any and each is up.
fn present() -> (u32, bool) {
    let stores = STORES.load(Ordering::SeqCst);
    (stores, stores > 0 && STORES_UP.load(Ordering::SeqCst) == stores)
}
