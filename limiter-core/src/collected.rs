//! The quotas of the decisions that a task makes while it works on an answer, for the fields of the answer.
//!
//! A layer around a service collects while it calls the service and polls its future. So it has the decisions that are
//! made on the thread of the poll: those of annotated functions and direct calls in the handler's task. It has not those of
//! tasks that the handler spawns, or of other threads. Layers for requests and for clients make their decisions
//! [outside](without), since the former write fields of their own, and the latter are about another service.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Decision;
use crate::http::{self, Fields, Quota};

/// True once anything in this process has collected. Until then a decision reads no more than this.
static IS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The quotas that the poll on this thread collects. `None` outside of a layer.
    static COLLECTING: RefCell<Option<CollectedQuotas>> = const { RefCell::new(None) };
}

/// The quotas of the decisions about one request, each limit once.
#[derive(Debug, Default)]
pub struct CollectedQuotas(Vec<Quota>);

impl CollectedQuotas {
    /// Runs a part of the work on an answer, and collects the quotas of its decisions. They come before what an outer
    /// call of this collects.
    pub fn collect<R>(&mut self, run: impl FnOnce() -> R) -> R {
        if !IS_USED.load(Ordering::Relaxed) {
            IS_USED.store(true, Ordering::Relaxed);
        }
        let own = take(self);
        let Ok(outer) = COLLECTING.try_with(|collecting| collecting.replace(Some(own))) else { return run() };
        let _scope = OuterScope { outer, collected: Some(self) };
        run()
    }

    /// Passes each header field about the quotas to `write`, except those of limits that `is_shown` leaves out. It gets the
    /// name of the rule, and the name of the limit in the fields.
    pub fn write_fields(
        &self,
        fields: Fields,
        is_shown: impl Fn(&str, &dyn fmt::Display) -> bool,
        write: impl FnMut(&'static str, fmt::Arguments<'_>),
    ) {
        let quotas = || self.0.iter().copied().filter(|quota| is_shown(quota.name.rule(), &quota.name));
        http::write_quotas(&quotas, fields, write);
    }

    /// Adds the quotas of a decision. They replace earlier ones of the same names.
    fn add(&mut self, decision: &Decision) {
        for quota in Quota::each_of(decision) {
            match self.0.iter_mut().find(|earlier| earlier.name == quota.name) {
                Some(earlier) => *earlier = quota,
                None => self.0.push(quota),
            }
        }
    }
}

/// Restores what was collected outside when it is dropped, also by a panic.
struct OuterScope<'a> {
    outer: Option<CollectedQuotas>,
    /// Gets what was collected inside. `None` if that is nothing.
    collected: Option<&'a mut CollectedQuotas>,
}

impl Drop for OuterScope<'_> {
    fn drop(&mut self) {
        let outer = self.outer.take();
        let collected = COLLECTING.try_with(|collecting| collecting.replace(outer)).ok().flatten();
        if let (Some(place), Some(collected)) = (&mut self.collected, collected) {
            **place = collected;
        }
    }
}

/// Returns whether the calling thread collects the quotas of its decisions now.
#[inline]
pub(crate) fn is_collecting() -> bool {
    IS_USED.load(Ordering::Relaxed) && is_collecting_here()
}

#[cold]
#[inline(never)]
fn is_collecting_here() -> bool {
    COLLECTING.try_with(|collecting| collecting.borrow().is_some()).unwrap_or(false)
}

/// Adds the quotas of a decision, if the calling thread collects them.
#[inline]
pub(crate) fn add(decision: &Decision) {
    if IS_USED.load(Ordering::Relaxed) {
        add_here(decision);
    }
}

#[cold]
#[inline(never)]
fn add_here(decision: &Decision) {
    let _ = COLLECTING.try_with(|collecting| {
        if let Some(collected) = &mut *collecting.borrow_mut() {
            collected.add(decision);
        }
    });
}

/// Runs `run` without collecting the quotas of its decisions.
#[inline]
pub(crate) fn without<R>(run: impl FnOnce() -> R) -> R {
    if !is_collecting() {
        return run();
    }
    let outer = COLLECTING.try_with(RefCell::take).ok().flatten();
    let _scope = OuterScope { outer, collected: None };
    run()
}

/// Awaits a future without collecting the quotas of its decisions.
///
/// It gets a reference, since an `async fn` keeps a future that it gets twice.
pub(crate) async fn poll_without<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|context| without(|| future.as_mut().poll(context))).await
}
