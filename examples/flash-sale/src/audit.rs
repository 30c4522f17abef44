//! The audit: compares Redis with the buyers' own records.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::buyers::{Call, Outcome, Record};
use crate::medals::{Grade, Medals};
use crate::sale::Sale;
use crate::shop::Limits;
use crate::store::{Ledger, SoldItem};

#[cfg(test)]
mod tests;
mod windows;

/// The faults that were found. All numbers are zero if the sale was correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Items that were sold beyond the stock, and numbers that were given twice.
    oversold: usize,
    /// Buyers with two items in one sale.
    bought_twice: usize,
    /// Calls that were admitted beyond the limits, in the fullest window of each key.
    above_the_limit: usize,
    /// Calls without an answer, visits without a final one, items that only one of Redis and buyer knows, and buyers
    /// who were turned away while items were left.
    lost: usize,
    /// Clubs with other medals on the leaderboard than those of their items.
    wrong_medals: usize,
}

/// The sale with all that Redis has of it.
pub(crate) struct AuditedSale {
    pub(crate) sale: Sale,
    pub(crate) ledger: Ledger,
}

impl Faults {
    /// Returns the faults. Items of requests without the prefix are of other clients, such as the page.
    pub(crate) fn find(
        records: &[Record],
        buyers: u32,
        request_prefix: &str,
        sales: &[AuditedSale],
        limits: Limits,
    ) -> Self {
        let mut faults = Self { above_the_limit: above_the_limits(records, limits), ..Self::default() };
        // The record of a buyer whose task panicked is missing.
        faults.lost += usize::try_from(buyers).unwrap_or(usize::MAX).abs_diff(records.len());
        for visit in records.iter().flat_map(|record| &record.visits) {
            faults.lost += visit.calls.iter().filter(|call| call.outcome == Outcome::NoAnswer).count();
            faults.lost += usize::from(!visit.has_final_answer);
            faults.bought_twice += usize::from(visit.bought.len() > 1 || visit.numbers().len() > 1);
        }
        for AuditedSale { sale, ledger } in sales {
            faults.check_sale(records, request_prefix, sale, ledger);
        }
        faults
    }

    pub(crate) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of clubs with wrong medals, if there are any.
    pub(crate) fn wrong_medals(&self) -> Option<usize> {
        (self.wrong_medals > 0).then_some(self.wrong_medals)
    }

    fn check_sale(&mut self, records: &[Record], request_prefix: &str, sale: &Sale, ledger: &Ledger) {
        let of_buyers: HashSet<(&str, u32)> = records
            .iter()
            .flat_map(|record| record.visits.iter().map(move |visit| (record, visit)))
            .filter(|(_, visit)| visit.sale == sale.id)
            .flat_map(|(record, visit)| visit.numbers().into_iter().map(|number| (&*record.buyer, number)))
            .collect();
        let of_redis: HashSet<(&str, u32)> = ledger
            .items
            .iter()
            .filter(|item| item.request.starts_with(request_prefix))
            .map(|item| (&*item.buyer, item.number))
            .collect();
        self.lost += of_buyers.symmetric_difference(&of_redis).count();
        if ledger.left > 0 {
            let visits = records.iter().flat_map(|record| &record.visits).filter(|visit| visit.sale == sale.id);
            self.lost += visits.filter(|visit| visit.is_turned_away).count();
        }

        let sold = ledger.items.len();
        let stock = usize::try_from(sale.items).unwrap_or(usize::MAX);
        let taken = usize::try_from(i64::from(sale.items) - ledger.left).unwrap_or(0);
        self.oversold += sold.max(taken).saturating_sub(stock);
        self.oversold += repeated(ledger.items.iter().map(|item| item.number));
        self.oversold += repeated(of_buyers.iter().map(|(_, number)| *number));
        // A buyer's second item would replace the first one in the hash, but not in the stock.
        self.bought_twice += taken.saturating_sub(sold);
        self.wrong_medals += wrong_medals(records, request_prefix, ledger);
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oversold, bought_twice, above_the_limit, lost, .. } = self;
        write!(f, "oversold {oversold}, bought twice {bought_twice}, above the limit {above_the_limit}, lost {lost}")
    }
}

fn repeated(numbers: impl Iterator<Item = u32>) -> usize {
    let mut seen = HashSet::new();
    numbers.filter(|number| !seen.insert(*number)).count()
}

/// Returns the calls beyond the limits of buyers and products.
fn above_the_limits(records: &[Record], limits: Limits) -> usize {
    // A call without a known outcome has its permits too.
    let admitted = |call: &&Call| matches!(call.outcome, Outcome::Admitted | Outcome::Unknown);
    let mut of_products: HashMap<&str, Vec<Call>> = HashMap::new();
    let mut above = 0;
    for record in records {
        let mut of_buyer = Vec::new();
        for visit in &record.visits {
            let calls: Vec<Call> = visit.calls.iter().filter(admitted).copied().collect();
            of_products.entry(&visit.sale).or_default().extend(&calls);
            of_buyer.extend(calls);
        }
        above += windows::calls_beyond(limits.buyer, of_buyer);
    }
    above + of_products.into_values().map(|calls| windows::calls_beyond(limits.product, calls)).sum::<usize>()
}

/// Returns the number of clubs with other medals than those of their items. This cannot be checked if other clients
/// have items, since their clubs are unknown.
fn wrong_medals(records: &[Record], request_prefix: &str, ledger: &Ledger) -> usize {
    if ledger.items.iter().any(|item| !item.request.starts_with(request_prefix)) {
        return 0;
    }
    let clubs: HashMap<&str, &str> = records.iter().map(|record| (&*record.buyer, record.club)).collect();
    let mut expected: HashMap<&str, Medals> = HashMap::new();
    for SoldItem { buyer, number, .. } in &ledger.items {
        let medals = expected.entry(clubs.get(&**buyer).copied().unwrap_or_default()).or_default();
        match Grade::of_item(*number) {
            Grade::Gold => medals.gold += 1,
            Grade::Silver => medals.silver += 1,
            Grade::Bronze => medals.bronze += 1,
        }
    }
    let found: HashMap<&str, Medals> = ledger.clubs.iter().map(|leader| (&*leader.club, leader.medals)).collect();
    let all: HashSet<&str> = expected.keys().chain(found.keys()).copied().collect();
    all.into_iter().filter(|club| expected.get(club) != found.get(club)).count()
}
