//! The number of calls that wait for the worker, and its bound.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, ErrorKind};

/// Calls that were handed to the worker and whose callers still wait.
#[derive(Debug)]
pub(crate) struct InFlight {
    calls: AtomicU32,
    max: u32,
    /// Made once: where it is needed, many calls fail at once.
    overloaded: Error,
}

/// The place of one call. Dropping it, with the future of the call, gives it back.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a> {
    calls: &'a AtomicU32,
}

impl InFlight {
    pub(crate) fn new(max: u32) -> Self {
        let problem = format!("{max} calls wait for Redis already, which is the `max_in_flight` of this limiter");
        Self { calls: AtomicU32::new(0), max, overloaded: Error::new(ErrorKind::Overloaded, problem) }
    }

    /// Takes a place for one call.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`]: every place is taken.
    pub(crate) fn enter(&self) -> Result<InFlightCall<'_>, Error> {
        // Never above the bound, not even for a moment: another call would be refused for it.
        let one_more = |calls| (calls < self.max).then_some(calls + 1);
        match self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(InFlightCall { calls: &self.calls }),
            Err(_) => Err(self.overloaded.clone()),
        }
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_bound_is_exact_while_threads_come_and_go() {
        const MAX: u32 = 3;
        let (in_flight, inside) = (InFlight::new(MAX), AtomicU32::new(0));
        thread::scope(|scope| {
            // As many threads as places: none is ever refused.
            for _ in 0..MAX {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        let _place = in_flight.enter().expect("a place for each thread");
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < MAX);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let places: Vec<_> = (0..MAX).map(|_| in_flight.enter().expect("a place")).collect();
        assert_eq!(in_flight.enter().expect_err("all are taken").kind(), ErrorKind::Overloaded);
        drop(places);
        assert!(in_flight.enter().is_ok());
    }
}
