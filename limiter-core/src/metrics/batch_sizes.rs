//! The sizes of batches, on their way from the worker to a caller.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{IS_ON, batches_sent};
use crate::sync::{Mutex, lock};

/// The sizes of batches that are not recorded yet. The worker adds them, and the next caller with a reply records them:
/// a recorder is code of the program, which must not run on the worker's thread.
#[derive(Clone, Debug)]
pub(crate) struct BatchSizes(Arc<WaitingSizes>);

#[derive(Debug)]
struct WaitingSizes {
    has_any: AtomicBool,
    sizes: Mutex<Vec<u32>>,
}

/// The most sizes that wait for a caller. Further ones are not recorded.
const MAX_WAITING: usize = 1024;

impl BatchSizes {
    pub(crate) fn new() -> Self {
        Self(Arc::new(WaitingSizes { has_any: AtomicBool::new(false), sizes: Mutex::default() }))
    }

    /// Adds the number of calls of a batch.
    pub(crate) fn push(&self, calls: usize) {
        if !IS_ON {
            return;
        }
        let mut sizes = lock(&self.0.sizes);
        if sizes.len() < MAX_WAITING {
            sizes.push(u32::try_from(calls).unwrap_or(u32::MAX));
        }
        self.0.has_any.store(true, Ordering::Relaxed);
    }

    /// Records the sizes on the thread of a caller.
    pub(crate) fn record(&self) {
        if !IS_ON || !self.0.has_any.load(Ordering::Relaxed) {
            return;
        }
        let sizes = {
            let mut sizes = lock(&self.0.sizes);
            self.0.has_any.store(false, Ordering::Relaxed);
            mem::take(&mut *sizes)
        };
        batches_sent(sizes);
    }
}
