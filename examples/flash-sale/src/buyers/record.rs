//! The buyers' own records, from which the audit is made.

use std::time::Duration;

/// A call with its times, by one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) sent: Duration,
    pub(crate) answered: Duration,
    pub(crate) outcome: Outcome,
}

/// The outcome of a call, as far as the limits are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passed the limits: the answer has their fields, or only the script gives it.
    Admitted,
    /// It was answered before the limits: the sale was known to be sold out.
    Unlimited,
    Degraded,
    /// 503 of the policy `closed`: nothing was done.
    Refused,
    /// 503 of the sale: the call passed the limits, but Redis did not reply, and the item may be sold.
    Unknown,
    NoAnswer,
}

/// A buyer's calls and items.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) buyer: String,
    pub(crate) club: &'static str,
    pub(crate) visits: Vec<Visit>,
}

/// A buyer's calls for one sale.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) sale: String,
    pub(crate) calls: Vec<Call>,
    /// The numbers in answers that an item was bought now.
    pub(crate) bought: Vec<u32>,
    /// The numbers in answers that this buyer's request had bought an item before.
    pub(crate) confirmed: Vec<u32>,
    /// The buyer has an item, or knows that it gets none.
    pub(crate) has_final_answer: bool,
    /// The answer, or the page, was that the buyer gets no item.
    pub(crate) is_turned_away: bool,
}

impl Visit {
    pub(super) fn new(sale: &str) -> Self {
        Self {
            sale: sale.to_owned(),
            calls: Vec::new(),
            bought: Vec::new(),
            confirmed: Vec::new(),
            has_final_answer: false,
            is_turned_away: false,
        }
    }

    /// Returns whether a call may have bought an item without an answer. Only another call finds that out.
    pub(super) fn has_unknown_outcome(&self) -> bool {
        self.calls.iter().any(|call| matches!(call.outcome, Outcome::Unknown | Outcome::NoAnswer))
    }

    /// Returns the numbers of this buyer's items, each once.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut numbers = [&self.bought[..], &self.confirmed].concat();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}
