//! The sizes of batches, on their way from the worker to a caller.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{Histogram, histogram};

use super::contained::record;
use super::describe::describe;
use crate::sync::Mutex;
use crate::sync::process::{id, lock_at_home};

/// The sizes of batches that are not recorded yet. The worker adds them, and the next caller with a reply records them:
/// a recorder is code of the program, which must not run on the worker's thread.
#[derive(Clone, Debug)]
pub(crate) struct BatchSizes(Arc<WaitingSizes>);

#[derive(Debug)]
struct WaitingSizes {
    home: u32,
    has_any: AtomicBool,
    sizes: Mutex<Vec<u32>>,
}

/// The most sizes that wait for a caller. Further ones are not recorded.
const MAX_WAITING: usize = 1024;

impl BatchSizes {
    pub(crate) fn new() -> Self {
        Self(Arc::new(WaitingSizes { home: id(), has_any: AtomicBool::new(false), sizes: Mutex::default() }))
    }

    /// Adds the number of calls of a batch.
    pub(crate) fn push(&self, calls: usize) {
        let Some(mut sizes) = lock_at_home(&self.0.sizes, self.0.home) else { return };
        if sizes.len() < MAX_WAITING {
            sizes.push(u32::try_from(calls).unwrap_or(u32::MAX));
        }
        self.0.has_any.store(true, Ordering::Relaxed);
    }

    /// Records the sizes on the thread of a caller.
    pub(crate) fn record(&self) {
        if !self.0.has_any.load(Ordering::Relaxed) {
            return;
        }
        let sizes = match lock_at_home(&self.0.sizes, self.0.home) {
            Some(mut sizes) => {
                self.0.has_any.store(false, Ordering::Relaxed);
                mem::take(&mut *sizes)
            }
            None => return,
        };
        record(|| sizes.into_iter().for_each(|calls| batch_size().record(calls)));
    }
}

fn batch_size() -> &'static Histogram {
    static BATCH_SIZE: OnceLock<Histogram> = OnceLock::new();
    BATCH_SIZE.get_or_init(|| {
        describe();
        histogram!("rate_limited_batch_size")
    })
}
