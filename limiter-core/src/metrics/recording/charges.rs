//! Permits of charges: those that count, those beyond the limit, and those that no counter has.

use super::contained::record;
use super::rule_series::{UncountedReason, series_of};
use super::{distinct, name_of};
use crate::request::{ChargeReply, Request};

/// Records a charge of these requests, for each rule: the largest numbers of its requests.
pub(crate) fn charged(names: &[&'static str], requests: &[Request<'_>], charges: &[ChargeReply]) {
    let counted = |index: usize| {
        let (request, charge) = (requests.get(index)?, charges.get(index)?);
        let counted = request.cost.saturating_sub(charge.uncounted);
        Some([counted, counted.min(charge.overdrawn), charge.uncounted.min(request.cost)])
    };
    record(|| {
        for name in distinct(names, requests.len()) {
            let own = (0..requests.len()).filter(|index| name_of(names, *index) == name).filter_map(counted);
            let most = own.reduce(|most, one| [0, 1, 2].map(|number| most[number].max(one[number])));
            let [counted, overdrawn, uncounted] = most.unwrap_or_default();
            let series = series_of(name);
            series.count_charges(counted, overdrawn);
            series.count_uncounted(UncountedReason::Full, uncounted);
        }
    });
}

/// Records a charge that failed, for each rule.
pub(crate) fn charge_failed(names: &[&'static str], requests: &[Request<'_>]) {
    record(|| {
        for name in distinct(names, requests.len()) {
            let own = requests.iter().enumerate().filter(|(index, _)| name_of(names, *index) == name);
            let cost = own.map(|(_, request)| request.cost).max().unwrap_or(0);
            series_of(name).count_uncounted(UncountedReason::Error, cost);
        }
    });
}

/// Records what a settled call of a rule counts in addition, and what of that no counter had room for.
pub(crate) fn settled(name: &'static str, charged: u32, overdrawn: u32, uncounted: u32) {
    record(|| {
        let (series, uncounted) = (series_of(name), uncounted.min(charged));
        let counted = charged - uncounted;
        series.count_charges(counted, counted.min(overdrawn));
        series.count_uncounted(UncountedReason::Full, uncounted);
    });
}

/// Records what a settled call of a rule should have counted in addition.
pub(crate) fn settle_failed(name: &'static str, charged: u32) {
    record(|| series_of(name).count_uncounted(UncountedReason::Error, charged));
}
