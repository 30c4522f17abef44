//! The reports that observers receive, recorded.

use std::mem::take;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rate_limited::{Allowed, Builder, Decision, Denied, Limit, Source};

/// The values of one report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) is_allowed: bool,
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    pub(crate) limit: Limit,
    pub(crate) remaining: u32,
    pub(crate) reset_after: Duration,
    pub(crate) source: Source,
}

impl From<&Decision> for Report {
    fn from(decision: &Decision) -> Self {
        Self {
            is_allowed: decision.is_allowed(),
            name: decision.name().to_owned(),
            key: decision.key().map(str::to_owned),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after: decision.reset_after(),
            source: decision.source(),
        }
    }
}

/// The reports that the observers of a limiter have received.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    all: Arc<Mutex<Vec<Decision>>>,
}

impl Reports {
    /// Adds the observers.
    pub(crate) fn observe(&self, builder: Builder) -> Builder {
        let (allowed, denied) = (self.clone(), self.clone());
        builder
            .expose_keys()
            .on_allowed(move |event: &Allowed| allowed.push(Decision::Allowed(event.clone())))
            .on_denied(move |event: &Denied| denied.push(Decision::Denied(event.clone())))
    }

    pub(crate) fn push(&self, report: Decision) {
        self.all.lock().expect("no panic").push(report);
    }

    /// Removes all reports, and returns them as they were received.
    pub(crate) fn take_decisions(&self) -> Vec<Decision> {
        take(&mut *self.all.lock().expect("no panic"))
    }

    /// Removes and returns all reports.
    pub(crate) fn take(&self) -> Vec<Report> {
        self.take_decisions().iter().map(Report::from).collect()
    }

    /// Removes all reports, and returns the name and the permits left of each.
    pub(crate) fn take_names(&self) -> Vec<(String, u32)> {
        self.take().into_iter().map(|report| (report.name, report.remaining)).collect()
    }
}
