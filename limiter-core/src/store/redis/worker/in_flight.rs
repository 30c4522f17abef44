//! The number of calls in flight to the worker, and its bound.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, ErrorKind};

/// Counts the calls that were sent to the worker, or by their callers, and whose callers still wait.
#[derive(Debug)]
pub(crate) struct InFlight {
    calls: AtomicU32,
    max: u32,
    /// The error of a call above the bound. It is made once, since many calls fail at a time.
    overloaded: Error,
}

/// One call in flight. Dropping it, with the future of the call, ends it.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a> {
    calls: &'a AtomicU32,
}

impl InFlight {
    pub(crate) fn new(max: u32) -> Self {
        let problem = format!("{max} calls wait for Redis already, which is the `max_in_flight` of this limiter");
        Self { calls: AtomicU32::new(0), max, overloaded: Error::new(ErrorKind::Overloaded, problem) }
    }

    /// Counts one more call.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] at the bound.
    pub(crate) fn enter(&self) -> Result<InFlightCall<'_>, Error> {
        // Never above the bound, not even for a moment: another call would be rejected for it.
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
            // As many threads as the bound: none is ever rejected.
            for _ in 0..MAX {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        let _call = in_flight.enter().expect("room for each thread");
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < MAX);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let calls: Vec<_> = (0..MAX).map(|_| in_flight.enter().expect("room")).collect();
        assert_eq!(in_flight.enter().expect_err("full").kind(), ErrorKind::Overloaded);
        drop(calls);
        assert!(in_flight.enter().is_ok());
    }
}
